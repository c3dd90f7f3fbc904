"""The order services die wherever their README's tables say: then order and message are both there, or neither is."""

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient
from fencepost.chaos.harness.processes import free_port
from fencepost.clients.binlog.reading import read_to_end
from support.fencepost_process import fencepost

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("struck_services.py")
OPENED = re.compile(r'"admin_open".*"address": \["([^"]+)", (\d+)\]')
SETTINGS = {
    "FENCEPOST_TRANSACTION_CHECK_INTERVAL_MS": "200",
    "FENCEPOST_TRANSACTION_CHECK_DELIVERY_TIMEOUT_MS": "500",
}
KILLED = -9
# What the README calls it -> (service, where it is struck, cents); what follows until all is settled.
HALF = {
    "the service, before it wrote anything": [
        ("half", "before the half message", 1),
        ("checks", "", 1),
    ],
    "the service, before the local commit": [
        ("half", "before the local commit", 1),
        ("checks", "", 1),
    ],
    "the service, before the local commit; the order is placed again": [
        ("half", "before the local commit", 1),
        ("half", "", 1),
        ("checks", "", 1),
    ],
    "the service, after the local commit": [
        ("half", "after the local commit", 1),
        ("checks", "", 1),
    ],
    "nothing; the shop refuses the order": [("half", "", 9_999_999)],
    "nothing": [("half", "", 1)],
    "the service, then who was asked": [
        ("half", "after the local commit", 1),
        ("checks", "asked", 1),
        ("checks", "", 1),
    ],
    "the service, then who was asked, and nothing was committed": [
        ("half", "before the local commit", 1),
        ("checks", "asked", 1),
        ("checks", "", 1),
    ],
}
OUTBOX = {
    "the service, before the local commit": [
        ("outbox", "before the local commit", 1),
        ("relay", "", 1),
    ],
    "the service, after the local commit": [
        ("outbox", "after the local commit", 1),
        ("relay", "", 1),
    ],
    "nothing": [("outbox", "", 1), ("relay", "", 1), ("relay", "", 1)],
    "the relay, before its commit": [
        ("outbox", "", 1),
        ("relay", "before the relay's commit", 1),
        ("relay", "", 1),
    ],
    "the relay, after its commit": [
        ("outbox", "", 1),
        ("relay", "after the relay's commit", 1),
        ("relay", "", 1),
    ],
}
IS_PLACED = {
    "the service, before it wrote anything": False,
    "the service, before the local commit": False,
    "the service, then who was asked, and nothing was committed": False,
    "nothing; the shop refuses the order": False,
}


class Services(NamedTuple):
    bootstrap: str
    admin: str
    say: Callable[[dict[str, Any]], int]


@pytest.fixture(scope="module")
def services() -> Iterator[Services]:
    with (
        fencepost(environment=SETTINGS) as node,
        subprocess.Popen(
            [sys.executable, str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        found = OPENED.search(node.process.said())
        assert found is not None and process.stdin is not None and process.stdout is not None

        def say(told: dict[str, Any]) -> int:
            process.stdin.write(f"{json.dumps(told)}\n")
            process.stdin.flush()
            return int(process.stdout.readline())

        yield Services(node.bootstrap, f"http://{found[1]}:{found[2]}", say)
        process.stdin.close()


def committed(bootstrap: str, topic: str) -> list[str]:
    """The orders of all messages up to the end: one that is still hidden fails."""
    client = {"bootstrap.servers": bootstrap}
    if topic not in AdminClient(client).list_topics(timeout=30).topics:
        return []
    return [json.loads(each.value())["order"] for each in read_to_end(client, topic)]


def placed(shop: Path) -> list[str]:
    with closing(sqlite3.connect(shop)) as connection:
        return [row[0] for row in connection.execute("SELECT id FROM orders")]


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("kind", "dies"), [*(("half", each) for each in HALF), *(("outbox", each) for each in OUTBOX)]
)
def test_order_and_message_are_both_there_or_neither_whoever_dies(
    kind, dies, services: Services, tmp_path: Path
) -> None:
    steps = (HALF if kind == "half" else OUTBOX)[dies]
    name = f"{kind}-{list(HALF if kind == 'half' else OUTBOX).index(dies)}"
    told = {"shop": str(tmp_path / "shop.db"), "topic": name, "name": name, "order": "order-1"}
    where = {"bootstrap": services.bootstrap, "admin": services.admin}
    for service, strike, cents in steps:
        code = services.say({**told, **where, "service": service, "strike": strike, "cents": cents})
        assert code == (KILLED if strike else 0), f"{service} {strike or 'until its end'}"
    wanted = ["order-1"] if IS_PLACED.get(dies, True) else []
    assert placed(tmp_path / "shop.db") == wanted
    assert committed(services.bootstrap, name) == wanted


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_shop_that_begins_anew_is_relayed_from_its_first_message(
    services: Services, tmp_path: Path
) -> None:
    """Its numbers begin at 1 again: by the position of the one before they were relayed already."""
    told = {"topic": "anew", "name": "anew", "strike": "", "cents": 1}
    where = {"bootstrap": services.bootstrap, "admin": services.admin}
    for order in ("order-1", "order-2"):
        shop = str(tmp_path / f"{order}.db")
        for service in ("outbox", "relay"):
            step = {**told, **where, "service": service, "shop": shop, "order": order}
            assert services.say(step) == 0
    assert committed(services.bootstrap, "anew") == ["order-1", "order-2"]


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_shop_is_not_asked_what_became_of_another_ones_order(
    services: Services, tmp_path: Path
) -> None:
    """It had no such order, gave the attempt up in its own database, and had the message rolled back."""
    told = {"topic": "two", "name": "two", "order": "order-1", "cents": 1}
    where = {"bootstrap": services.bootstrap, "admin": services.admin}
    for shop, service, strike in (
        ("ours", "half", "after the local commit"),
        ("theirs", "checks", ""),
        ("ours", "checks", ""),
    ):
        path = str(tmp_path / f"{shop}.db")
        step = {**told, **where, "service": service, "strike": strike, "shop": path}
        assert services.say(step) == (KILLED if strike else 0)
    assert placed(tmp_path / "ours.db") == ["order-1"]
    assert committed(services.bootstrap, "two") == ["order-1"]


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_an_older_copy_of_a_shop_is_not_relayed(services: Services, tmp_path: Path) -> None:
    told = {"topic": "older", "name": "older", "strike": "", "cents": 1}
    where = {"bootstrap": services.bootstrap, "admin": services.admin}
    shop, copy = tmp_path / "shop.db", tmp_path / "copy.db"
    for order in ("order-1", "order-2"):
        for service in ("outbox", "relay"):
            step = {**told, **where, "service": service, "shop": str(shop), "order": order}
            assert services.say(step) == 0
        if order == "order-1":
            copy.write_bytes(shop.read_bytes())
    again = {**told, **where, "shop": str(copy), "order": "order-3"}
    assert services.say({**again, "service": "relay"}) == 1


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_program_that_died_is_run_again_with_the_same_orders(
    services: Services, tmp_path: Path
) -> None:
    """It ended at the order that was there already, before it came to the message of that order."""
    shop = tmp_path / "shop.db"
    struck = {"service": "outbox", "strike": "after the local commit", "cents": 1}
    where = {"bootstrap": services.bootstrap, "admin": services.admin}
    told = {"shop": str(shop), "topic": "orders", "name": "unused", "order": "order-1"}
    assert services.say({**told, **where, **struck}) == KILLED
    program = ROOT / "examples/order_service/outbox_service.py"
    command = [sys.executable, program, "--bootstrap", services.bootstrap, "--shop", shop]
    again = subprocess.run(
        [*command, "order-1", "order-2"], capture_output=True, text=True, check=False, timeout=120
    )
    assert again.returncode == 0, again.stderr
    assert again.stdout == "order-1 is there already\n2 messages written\n"
    assert committed(services.bootstrap, "orders") == ["order-1", "order-2"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "became"), [("half_message_service", "no order"), ("outbox_service", "are taken")]
)
def test_where_no_broker_answers_that_is_one_sentence(program, became, tmp_path: Path) -> None:
    """It was a line of librdkafka's log for each try, for a minute, and then a traceback. No driver of a database is needed."""
    place = f"127.0.0.1:{free_port()}"
    path = ROOT / "examples/order_service" / f"{program}.py"
    run = (
        "import runpy, sys; sys.modules |= dict.fromkeys(('pymysql', 'pymysqlreplication'));"
        f" sys.path.insert(0, {str(path.parent)!r});"
        f" sys.argv[0] = {str(path)!r}; runpy.run_path({str(path)!r}, run_name='__main__')"
    )
    words = ["--bootstrap", place, "--shop", str(tmp_path / "shop.db"), "order-77"]
    ended = subprocess.run(
        [sys.executable, "-c", run, *words], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1), ended.stderr
    assert ended.stderr.startswith(f"no broker answers at {place} (")
    assert became in ended.stderr and "`make run`" in ended.stderr
    if program == "outbox_service":
        assert placed(tmp_path / "shop.db") == ["order-77"]


def test_the_readmes_tables_are_what_is_tried() -> None:
    text = (ROOT / "examples/order_service/README.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| (?:both|neither) \|", text, re.MULTILINE)
    assert rows == [*HALF, *OUTBOX]
    for row, outcome in re.findall(r"^\| ([^|]+) \| (both|neither) \|", text, re.MULTILINE):
        assert IS_PLACED.get(row, True) == (outcome == "both"), row
