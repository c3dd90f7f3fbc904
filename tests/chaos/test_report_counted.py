"""One run has one set of figures: those of its verdict."""

import re

import pytest
from fencepost.chaos.checkers.history import FINAL
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn, to_line
from fencepost.chaos.report import digest
from fencepost.chaos.report.index import write_index
from fencepost.chaos.report.page import write_page
from fencepost.chaos.runs.folder import HISTORY, RunFolder
from fencepost.chaos.runs.judging import judge
from test_kept_run import LOOPS, ended
from test_report_page import read

POLL = Polled("t0-0", 0, 8, 1)
LINES = [
    Txn("assign", "ok", "a"),
    Txn("subscribe", "ok", "b"),
    Txn("subscribe", "ok", "c"),
    Txn("txn", "ok", "a", 1, sends=[Sent("t0-0", 8, 0)]),
    Txn("read", "ok", "b", polls=[POLL, POLL]),
    Txn("txn", "fail", "c", 2, sends=[Sent("t0-0", 9)], polls=[POLL]),
    Txn("send", "info", "a", 3, sends=[Sent("t0-0", 10)]),
    Txn("crash", "info", "a", why="killed"),
    Txn("ends", "ok", "b", positions={"t0-0": 1}),
    Txn("read", "ok", FINAL, polls=[POLL]),
]


def judged(folder, *, unknown=()) -> dict:
    for at, op in enumerate(LINES):
        op.began_s, op.ended_s = at + 0.5, at + 1.0
    run = RunFolder(folder)
    run.create({"nodes": 3, "name": "queue", "unknown": [*unknown]})
    run.append_text(HISTORY, map(to_line, LINES))
    return judge(run, lambda _: None)


def test_a_page_names_the_figures_of_the_verdict_and_what_is_beside_them(tmp_path) -> None:
    """Under "299 operations" a tile said 336: crashes, and who was assigned what, were counted as operations there."""
    counts = judged(tmp_path / "run")["counts"]
    assert (counts["operations"], counts["records"], counts["records read"]) == (4, 1, 3)
    _, said = read(write_page(tmp_path / "run"))
    assert "Operations 4 2 ok, 1 failed, 1 unknown; the history holds 6 more lines:" in said
    assert "lines: 1 assignment, 2 subscriptions, 1 crash, 2 other (final polls," in said
    assert "1 operation failed, of 1 the outcome is unknown." in said  # the crash is none
    assert (
        "Records acknowledged 1 3 read meanwhile (1 in what failed or is unknown), 1 at the end"
        in said
    )
    assert digest.last(tmp_path / "run").operations == {"ok": 2, "fail": 1, "info": 1}
    _, of_all = read(write_index(tmp_path))
    assert "Operations 4 of all clients" in of_all


def test_a_run_that_nobody_judged_has_what_was_measured(tmp_path) -> None:
    """And so has one of which a part of the history is gone."""
    judged(tmp_path / "run")
    history = tmp_path / "run" / HISTORY
    history.write_text("".join(history.read_text().splitlines(keepends=True)[:3]))
    _, said = read(write_page(tmp_path / "run"))
    assert "Operations 3 3 ok, 0 failed, 0 unknown Records" in said
    run = RunFolder(tmp_path / "other")
    run.create({"nodes": 3, "name": "queue"})
    run.append_text(HISTORY, map(to_line, LINES))
    _, said = read(write_page(run.path))
    assert "Operations 10 7 ok, 1 failed, 2 unknown Records" in said


@pytest.mark.parametrize(("loop", "operations"), [*zip(LOOPS, (1, 3), strict=True)])
def test_a_kill_loop_has_its_own_figures_on_its_page(tmp_path, loop, operations) -> None:
    """Of the loop of transactions they were given as records."""
    folder = ended(tmp_path / "run", loop, broken=[])
    for _ in range(2):
        _, said = read(write_page(folder.path))
        assert f"Operations {operations} {operations} ok, 0 failed, 0 unknown; the history" in said
        assert "the history holds 2 more lines: 2 other (polls and notes)" in said
        assert re.search(r"Records acknowledged 1 [12] read meanwhile, 1 at the end", said)
        why = judge(folder, lambda _: None)["why"]
        assert f"{operations} operations, 1 records acknowledged: nothing lost" in why


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({}, "recovery: there is no fault of which it was measured"),
        (
            {"p50": 412.0, "p99": 3100.0, "max": 3100.0, "not served": 0},
            "recovery: p50 0.41 s, p99 3.10 s, max 3.10 s from a fault until all were served again",
        ),
        (
            {"not served": 2},
            "recovery: after 2 faults somebody was never served again",
        ),
        ("damaged", "recovery: there is no fault of which it was measured"),
    ],
)
def test_what_recovery_took_is_told_in_a_sentence_with_units(tmp_path, times, said) -> None:
    run = RunFolder(tmp_path / "run")
    run.create({"nodes": 3, "recovery_ms": times})
    run.append_text(HISTORY, map(to_line, LINES[3:4]))
    told: list[str] = []
    judge(run, told.append)
    assert said in "\n".join(told).splitlines()
