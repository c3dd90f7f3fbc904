"""What the benchmark of the data source says, and when it counts as a whole run; nothing here is timed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import readme_numbers
from fencepost.clients.spark.option_table import BATCH_SINK
from fencepost.clients.spark.options import GROUP, write_options
from spark_growth import Seen, early_and_late, grown, state_bytes
from spark_table import OURS, RATIOS, THEIRS, VALUES, missing, table, without_values

WHOLE = {
    **{name: {OURS: [200.0], THEIRS: [100.0]} for name, *_ in RATIOS},
    **{name: {OURS: [1.0]} for name, *_ in VALUES},
}
RESULT = {
    "date": "2026-01-01T00:00:00+00:00",
    "machine": {"cores": 2, "cpu": "a CPU", "memory_gb": 8.0, "kernel": "6.1", "python": "3.11"},
    "versions": {"fencepost": "abc", "pyspark": "4.2.0", "java": "openjdk 17", "librdkafka": "2.1"},
    "options": {"rounds": 3, "flush": "ack", "tasks": 200, "commits": 25, "batches": 600},
    "load_average": {"before": (0.1, 0.1, 0.1), "after": (1.5, 1.0, 0.5)},
    "measures": WHOLE,
}


def test_a_machine_without_pandas_is_told_before_anything_is_measured() -> None:
    said = missing(("read", "write"), find=lambda _name: None)
    assert (
        said is not None and "needs the package pandas" in said and "make benchmark-spark" in said
    )
    assert missing(("write",), find=lambda _name: None) is None
    assert missing(("read",), find=lambda name: name) is None


@pytest.mark.parametrize("name", ["read_arrow_small_s", "commit_ms", "growth_resident"])
def test_a_run_that_lacks_a_row_is_not_a_whole_one(name) -> None:
    assert without_values(WHOLE) == []
    assert without_values({key: WHOLE[key] for key in WHOLE if key != name}) == [name]


def test_every_row_of_a_whole_run_is_in_its_table() -> None:
    lines = table(RESULT).splitlines()
    assert len(lines) == 4 + len(RATIOS) + len(VALUES)
    assert any("200 tasks, p50 of 25" in line for line in lines)


class Rows:
    """A DataFrame, of which a write is asked for."""

    def __init__(self) -> None:
        self.said: dict[str, str] = {}

    def options(self, **said: str) -> "Rows":
        self.said = said
        return self

    def said_nothing(self, *_: str) -> "Rows":
        return self

    def __getattr__(self, name: str) -> Any:
        return self if name == "write" else self.said_nothing


@pytest.mark.needs("python:pyspark", "python:pyarrow")
def test_the_write_that_is_timed_is_the_one_that_is_promised(monkeypatch) -> None:
    """Without a number no row is looked at, and nothing would be known again."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "spark"))  # the connector's version
    from spark_measures import Bench

    bench = object.__new__(Bench)
    bench.node = SimpleNamespace(bootstrap="here:9092")  # type: ignore[assignment]
    ours, theirs = Rows(), Rows()
    bench.write(ours, OURS, "out")
    bench.write(theirs, THEIRS, "out")
    options = write_options(ours.said, BATCH_SINK)
    assert (options.group, options.number, options.transactions) == ("bench-out", 0, GROUP)
    assert theirs.said == {"kafka.bootstrap.servers": "here:9092", "topic": "out"}


def seen(*, state: int = 300, more: int = 0, resident: float = 0.0) -> list[Seen]:
    """600 batches; each adds `state` bytes, and `more` for each that was before it."""
    return [
        Seen(number, 50.0 + resident * number, state * number + more * number**2 // 2)
        for number in range(601)
    ]


FLAT = [20.0] * 600


def test_what_grows_with_the_batches_is_seen() -> None:
    flat = grown(seen(), FLAT, FLAT)
    for name in ("growth", "growth_commit", "growth_resident", "growth_state"):
        assert flat[name] == pytest.approx(1.0), name
    slower = [20.0 + number / 20 for number in range(600)]
    assert grown(seen(), slower, FLAT)["growth_commit"] > 1.3
    assert grown(seen(), FLAT, slower)["growth"] > 1.3
    assert grown(seen(resident=0.1), FLAT, FLAT)["growth_resident"] > 1.2
    assert grown(seen(more=1), FLAT, FLAT)["growth_state"] > 1.1  # all decisions, with each new one


def test_early_is_from_batch_ten_on_and_late_the_last_tenth() -> None:
    values = [1000.0] * 10 + [1.0] * 60 + [500.0] * 470 + [2.0] * 60
    assert early_and_late(values) == (1.0, 2.0)
    with pytest.raises(AssertionError, match="11 batches show nothing"):
        early_and_late([1.0] * 11)


def test_the_size_of_the_coordinators_logs_is_theirs_alone(tmp_path: Path) -> None:
    for topic, size in (
        ("__transaction_state-3", 7),
        ("__transaction_state-49", 5),
        ("orders-0", 9),
    ):
        (tmp_path / "node" / topic).mkdir(parents=True)
        (tmp_path / "node" / topic / "0.log").write_bytes(b"x" * size)
        (tmp_path / "node" / topic / "0.index").write_bytes(b"x" * 100)
    assert state_bytes(tmp_path) == 12


def test_the_readme_has_a_place_for_sparks_table() -> None:
    readme = readme_numbers.with_numbers(readme_numbers.README.read_text(), "spark", table(RESULT))
    assert "Commit of a micro-batch of 200 tasks" in readme
    assert "spark" in readme_numbers.NAMES
