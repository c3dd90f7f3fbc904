"""Verdicts of histories in which groups have committed, and nobody looks at what."""

import pytest
from fencepost.chaos.checkers import final_positions, queue_verdict
from fencepost.chaos.checkers.final_positions import ASKED_MAX, FinalPositions
from fencepost.chaos.checkers.history import FINAL
from fencepost.chaos.checkers.queue_made import make
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn, to_line
from fencepost.chaos.runs import final_polls
from fencepost.chaos.runs.clients import Known
from fencepost.chaos.runs.folder import HISTORY, RunFolder
from fencepost.chaos.runs.judging import judge

POLLS = [Polled("t0-0", 0, 8, 1)]
SENT = Txn("send", "ok", "a", 1, sends=[Sent("t0-0", 8, 0)], began_s=1.0, ended_s=1.5)
MOVED = Txn("txn", "ok", "b", 2, sends=[Sent("t0-1", 16, 0)], polls=POLLS, began_s=2.0, ended_s=2.5)
MOVED.offsets = {"queue|t0-0": 1}
OWN = Txn("txn", "ok", "c", 3, sends=[Sent("t0-1", 24, 2)], polls=POLLS, began_s=3.0, ended_s=3.5)
OWN.offsets = {"c|t0-0": 1}
SEEN = Txn("read", "ok", FINAL, began_s=9.0, ended_s=9.5)
SEEN.polls = [*POLLS, Polled("t0-1", 0, 16, 2), Polled("t0-1", 2, 24, 3)]
TOLD = [
    Txn("position", "ok", FINAL, offsets=dict(op.offsets), writers=dict.fromkeys(op.offsets, at))
    for at, op in ((2, MOVED), (3, OWN))
]
WHOLE = [SENT, MOVED, OWN, SEEN, *TOLD]


def committed(group: str, key: str = "t0-0", kind="ok") -> Txn:
    return Txn("txn", kind, group, offsets={f"{group}|{key}": 1})


def told(*places: str) -> Txn:
    nowhere = dict.fromkeys(places, -1)
    return Txn("position", "ok", FINAL, offsets=nowhere, writers=nowhere)


def untold(*ops: Txn) -> str:
    found = FinalPositions()
    for op in ops:
        found.see(op)
    return found.untold


@pytest.mark.parametrize("held_bytes", [queue_verdict.HELD_BYTES_MAX, 0], ids=["short", "long"])
@pytest.mark.parametrize("workload", ["queue", "transactions-kill-loop"])
def test_a_run_of_which_a_position_is_lost_is_unknown(
    tmp_path, monkeypatch, workload, held_bytes
) -> None:
    """As it is without figures of the history: the last line is whole, and all others are sound."""
    monkeypatch.setattr(queue_verdict, "HELD_BYTES_MAX", held_bytes)
    for lost, ops in (
        ("c|t0-0", WHOLE[:-1]),
        ("queue|t0-0", [*WHOLE[:-2], WHOLE[-1]]),
        ("", WHOLE),
    ):
        folder = RunFolder(tmp_path / (lost or "all"))
        folder.create({"nodes": 3, "unknown": [], "workload": workload})
        folder.append_text(HISTORY, map(to_line, ops))
        found = judge(folder, lambda _: None)
        assert found["verdict"] == ("unknown" if lost else "valid"), found["why"]
        assert not lost or found["why"].endswith(f"what groups have committed in {lost}")
        assert queue_verdict.main([str(folder.history)]) == (2 if lost else 0)


def test_a_place_that_nobody_was_told_of_in_the_end_is_named() -> None:
    ops = [committed("queue"), committed("queue", "t0-1"), committed("a"), committed("b")]
    assert untold(*ops).endswith("committed in queue|t0-0, queue|t0-1, a|t0-0 and 1 more")
    assert untold(*ops, told("queue|t0-0", "queue|t0-1", "a|t0-0")).endswith("in b|t0-0")
    assert untold(*ops, told("queue|t0-0", "queue|t0-1", "a|t0-0"), told("b|t0-0")) == ""
    # What was seen on the way is not the end of it.
    assert untold(committed("a"), Txn("position", "ok", "a", offsets={"a|t0-0": 1})) != ""


def test_a_position_of_which_nobody_knows_whose_it_is_tells_nothing() -> None:
    """Histories from elsewhere may lack that: of such a place no rule could say that it is at an older one."""
    told_only = Txn("position", "ok", FINAL, offsets={"a|t0-0": 0})
    assert untold(committed("a"), told_only).endswith("committed in a|t0-0")


def test_of_what_was_not_committed_nobody_has_to_be_told() -> None:
    assert (
        untold(committed("a", kind="fail"), committed("queue", kind="info"), told("x|t0-0")) == ""
    )


def test_as_many_groups_are_demanded_as_are_asked_for_in_the_end(monkeypatch) -> None:
    monkeypatch.setattr(final_positions, "HELD_MAX", 2 * ASKED_MAX)
    known = Known()
    # The first life goes on all the time; one fails, and is asked for all the same.
    lives = [f"queue-{life}" for life in range(3 * ASKED_MAX)]
    ops = [committed("queue"), committed("pipeline")]
    for life in lives:
        ops += [committed(life, kind="fail" if life == lives[-2] else "ok"), committed(lives[0])]
    for op in ops:
        known.see(op)
    asked = final_polls.asked_groups(known)
    assert len(asked) == ASKED_MAX
    for group in asked:
        without = told(*(f"{each}|t0-0" for each in asked if each != group))
        assert (untold(*ops, without) == "") == (group == lives[-2])
    assert untold(*ops, told(*(f"{group}|t0-0" for group in asked))) == ""


def test_a_long_history_that_is_sound_lacks_no_position(tmp_path) -> None:
    file = tmp_path / "history.jsonl"
    make(file, 4_000, 0)
    judged = queue_verdict.judge(file)
    assert (judged.untold, judged.cut, judged.fatal) == ("", "", [])
