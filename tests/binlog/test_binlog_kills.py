"""A source is killed by SIGKILL at each of its steps, and started again: then each change is there, once."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from fencepost.chaos.harness.processes import Node
from fencepost.clients.binlog import Settings
from fencepost.clients.binlog.source import BinlogSource
from fencepost.clients.binlog.transactions import Fenced
from followed import Followed

pytestmark = pytest.mark.slow
ROWS = 5
Run = Callable[..., int]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """`run(settings, "committing", delay_ms=3)`: a source in a process of its own; its exit code."""
    program = [sys.executable, str(Path(__file__).with_name("struck_sources.py"))]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None

        def one(settings: Settings, step: str = "", nth: int = 1, delay_ms: float = 0) -> int:
            strike = {"step": step, "nth": nth, "delay_ms": delay_ms}
            told = json.dumps({"settings": asdict(settings), **strike})
            process.stdin.write(f"{told}\n")
            process.stdin.flush()
            return int(process.stdout.readline())

        yield one
        process.stdin.close()


def fill(sql: Any) -> None:
    sql("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
    sql("INSERT INTO t VALUES " + ", ".join(f"({each}, 0)" for each in range(ROWS)))


def change(sql: Any) -> None:
    """Three transactions, of which the second has all rows."""
    sql("INSERT INTO t VALUES (100, 0)")
    sql("UPDATE t SET n = n + 1")
    sql("DELETE FROM t WHERE id = 0")


SNAPSHOT = [("r", each, 0) for each in range(ROWS)]
CHANGES = [
    ("c", 100, 0),
    *(("u", each, 1) for each in range(ROWS)),
    ("u", 100, 1),
    ("d", 0, 1),
]


def told(followed: Followed) -> list[tuple[str, int, int]]:
    rows = [(each["op"], each["after"] or each["before"]) for each in followed.told("t")]
    return [(op, row["id"], row["n"]) for op, row in rows]


@pytest.mark.parametrize(
    ("step", "nth", "delay_ms"),
    [
        ("position-read", 1, 0),
        ("snapshot-began", 1, 0),
        ("snapshot-row", 3, 0),
        ("snapshot-written", 1, 0),
        ("committing", 1, 2),
        ("committed", 1, 0),
    ],
)
def test_a_snapshot_that_is_killed_begins_anew_and_is_there_once(
    sql, followed, run: Run, step, nth, delay_ms
) -> None:
    fill(sql)
    struck = run(followed.settings, step, nth, delay_ms)
    # A commit that is done before the blow falls has nothing more to be killed in.
    assert struck == -9 or (delay_ms and struck == 0)
    change(sql)
    assert run(followed.settings) == 0
    seen = told(followed)
    if step == "committed" or len(seen) == len(SNAPSHOT) + len(CHANGES):
        assert seen == SNAPSHOT + CHANGES
    else:  # nothing of the first snapshot was committed: the second one has it all
        after = {100: 1, **dict.fromkeys(range(1, ROWS), 1)}
        assert seen == [("r", each, after[each]) for each in sorted(after)]


@pytest.mark.parametrize(
    ("step", "nth", "delay_ms"),
    [
        ("fenced", 1, 0),
        ("change-written", 4, 0),
        ("transaction-ended", 2, 0),
        ("committing", 2, 0),
        ("committing", 1, 2),
        ("committed", 1, 0),
    ],
)
def test_whatever_step_a_source_is_killed_at_each_change_is_there_once(
    sql, followed, run: Run, step, nth, delay_ms
) -> None:
    fill(sql)
    assert run(followed.settings) == 0
    change(sql)
    one_by_one = replace(followed.settings, records_max=1)
    struck = run(one_by_one, step, nth, delay_ms)
    assert struck == -9 or (delay_ms and struck == 0)
    assert run(followed.settings) == 0
    assert told(followed) == SNAPSHOT + CHANGES


@pytest.mark.timeout(200)  # two starts of a node
def test_a_broker_that_is_killed_at_a_commit_has_each_change_once(
    sql, followed: Followed, tmp_path: Path
) -> None:
    """Before the snapshot's commit, and in the middle of one of the stream. It is back before anybody gives up."""
    fill(sql)
    node = Node(tmp_path / "node", environment={"FENCEPOST_NUM_PARTITIONS": "2"})
    settings = replace(followed.settings, bootstrap=node.bootstrap)
    over, blows = threading.Event(), []

    def strike(delay_s: float, is_dead: threading.Event) -> None:
        time.sleep(delay_s)
        node.kill()
        is_dead.set()
        node.start()
        over.wait()  # a process ends with the thread that started it

    def on_step(step: str) -> None:
        if step == "committing" and len(blows) == run:
            is_dead = threading.Event()
            blows.append(threading.Thread(target=strike, args=(0.003 * run, is_dead)))
            blows[-1].start()
            if run == 0:
                is_dead.wait()

    node.start()
    try:
        for run in range(2):
            BinlogSource(settings, on_step).run()
            node.wait_ready()
            if run == 0:
                change(sql)
        assert len(blows) == 2
        assert told(Followed(settings)) == SNAPSHOT + CHANGES
    finally:
        over.set()
        for each in blows:
            each.join()
        node.kill()


def test_a_second_copy_fences_the_first_which_says_so(sql, followed: Followed) -> None:
    fill(sql)
    followed.run()
    sql("INSERT INTO t VALUES (100, 0)")

    def take_over(step: str) -> None:
        if step == "committing":
            followed.run()

    first = BinlogSource(followed.settings, take_over)
    with pytest.raises(Fenced, match=r"another copy of the source .* has begun"):
        first.run()
    assert told(followed) == [*SNAPSHOT, ("c", 100, 0)]


def test_of_two_copies_that_run_the_newer_one_goes_on(sql, followed: Followed) -> None:
    """MariaDB ends the older one's stream for the newer one's: they are the same replica."""
    fill(sql)
    followed.run()
    copies: list[BinlogSource] = []
    ended: list[BaseException | None] = []

    def run(copy: BinlogSource) -> None:
        try:
            copy.run()
        except Fenced as fenced:
            ended.append(fenced)

    def begin() -> threading.Thread:
        copies.append(BinlogSource(replace(followed.settings, stop_when_caught_up=False)))
        thread = threading.Thread(target=run, args=(copies[-1],))
        thread.start()
        return thread

    def insert(id_: int) -> None:
        """And wait until the last copy has committed it."""
        before = copies[-1].transactions
        sql(f"INSERT INTO t VALUES ({id_}, 0)")
        deadline = time.monotonic() + 30
        while copies[-1].transactions == before:
            assert time.monotonic() < deadline, f"{id_} was not committed"
            time.sleep(0.01)

    threads = [begin()]
    try:
        insert(100)
        threads.append(begin())
        threads[0].join(30)  # nothing was to be committed
        assert not threads[0].is_alive() and threads[1].is_alive()
        assert len(ended) == 1
        insert(101)
    finally:
        for each in copies:
            each.stop()
        for thread in threads:
            thread.join(30)
    assert told(followed) == [*SNAPSHOT, ("c", 100, 0), ("c", 101, 0)]
