"""The pipeline's comparison sees what it is there for, and its faults come from the seed. The whole of it: `make pipeline`."""

import re
import sys
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples/pipeline"))

import pipeline_faults as faults
import read_back
from pipeline_report import Report, exit_code
from read_back import Found


class FakeShop:
    def __init__(self, *rows: tuple[Any, ...]) -> None:
        self._rows = rows

    def rows(self, _sql: str) -> list[tuple[Any, ...]]:
        return list(self._rows)


def order(number: int, row: int = 0, op: str = "c", status: str = "placed") -> Found:
    after = {"id": number, "amount": "1.50", "status": status}
    value = {"op": op, "after": after, "source": {"gtid": f"0-1-{number}", "row": row}}
    return Found(str(number), value, 0.0)


MADE = SimpleNamespace(inserted=2, updated=1)
TABLE = FakeShop((1, Decimal("1.50"), "paid"), (2, Decimal("1.50"), "placed"))
ORDERS = [order(1), order(2), order(1, 1, "u", "paid")]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (ORDERS, []),
        ([*ORDERS, order(2)], ["more than once", "3 inserts and 1 updates"]),
        (ORDERS[:2], ["2 inserts and 0 updates", r"1 is \('1.50', 'placed'\)"]),
        (ORDERS[::2], ["1 inserts", r"1 are missing, such as \[2\]"]),
    ],
)
def test_a_change_too_many_or_too_few_is_seen_in_orders(found, said) -> None:
    wrong = read_back.wrong_orders(found, TABLE, MADE)
    assert len(wrong) == len(said)
    for text, pattern in zip(wrong, said, strict=True):
        assert re.search(pattern, text)


def total(changes: int, revenue: str = "3.00", key: str = "north|10:00") -> Found:
    return Found(key, {"revenue": revenue, "orders": 2, "changes": changes}, 0.0)


@pytest.mark.parametrize(
    ("found", "count"),
    [
        ([total(1, "1.50"), total(2)], 0),
        ([total(1, "1.50"), total(2), total(2)], 1),  # a batch that was written twice
        ([total(1, "1.50"), total(3, "4.50")], 1),  # a change that was counted twice
        ([total(1, "1.50")], 1),
        ([total(2), total(1, key="south|10:00")], 1),
        ([], 1),
    ],
)
def test_a_sum_that_is_not_sqls_is_seen_in_revenue(found, count) -> None:
    shop = FakeShop(("north", "10:00", Decimal("3.00"), Decimal(2), Decimal(2)))
    assert len(read_back.wrong_revenue(found, shop)) == count


def test_an_alert_too_many_or_too_few_is_seen() -> None:
    shop = FakeShop((1,), (2,))
    alerts = [Found(str(number), {}, 0.0) for number in (1, 2)]
    assert read_back.wrong_alerts(alerts, shop) == []
    assert read_back.wrong_alerts([*alerts, alerts[0]], shop) == ["alerts: 1 is 2, SQL says 1"]
    assert len(read_back.wrong_alerts(alerts[:1], shop)) == 1


def test_a_seed_is_one_schedule_in_which_every_kind_comes_before_any_comes_twice() -> None:
    first, second = faults.schedule(7, 60), faults.schedule(7, 60)
    assert first == second and first != faults.schedule(8, 60)
    kinds = [each.kind for each in first]
    assert sorted(kinds[:4]) == sorted(faults.KINDS) and len(kinds) > 8
    assert all(each.at_s < 60 for each in first)


def test_topics_that_are_equal_prove_nothing_of_a_fault_that_never_fell() -> None:
    report = Report(seed=7, seconds=5, asked=("broker", "driver"))
    report.faults = [(1.5, "broker 2")]
    assert report.verdict == "UNKNOWN"
    assert report.lines()[1:] == ["  no driver was killed"]
    report.faults.append((2.5, "driver"))
    assert report.verdict == "EQUAL"
    report.left_out = 2
    assert report.verdict == "UNKNOWN"
    assert report.lines()[1:] == ["  2 faults were left out: Spark was too slow"]
    report.wrong = ["orders: 1 < 2"]
    assert report.verdict == "WRONG"


def test_a_run_that_is_unknown_has_an_exit_code_of_its_own() -> None:
    codes = [exit_code(each) for each in (["EQUAL"], ["EQUAL", "UNKNOWN"], ["UNKNOWN", "WRONG"])]
    assert codes == [0, 2, 1]


def test_a_schedule_of_some_kinds_has_no_others() -> None:
    assert {each.kind for each in faults.schedule(7, 60, ("driver", "source"))} == {
        "driver",
        "source",
    }


def test_a_page_says_what_was_wrong_and_what_was_killed(tmp_path: Path) -> None:
    report = Report(seed=7, seconds=5, began=100.0, took_s=60, command="run --seed 7")
    report.times = {"database": [100.0, 101.0], "orders": [100.5], "revenue": [], "alerts": []}
    report.faults, report.starts = [(1.5, "broker 2")], {"source": 1, "job": 2}
    assert report.lines()[0].startswith("EQUAL seed 7: 2 database, 1 orders")
    report.wrong = ["orders: 1 < 2"]
    report.write_page(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "WRONG" in page and "orders: 1 &lt; 2" in page and "broker 2" in page
    assert "http" not in page.replace("http-equiv", "")
