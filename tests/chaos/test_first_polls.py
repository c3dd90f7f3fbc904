"""Where a process begins in a partition: what it polls first is the first that is there from that place on."""

import pytest
from fencepost.chaos.checkers import polls
from fencepost.chaos.checkers.history import FINAL
from fencepost.chaos.checkers.queue_stream import stream
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn
from test_queue_stream import rules, written

K = "k-0"
VALUES = {0: 10, 1: 11, 3: 12, 4: 13}  # a marker is at 2
ALL = [Polled(K, at, value, 1) for at, value in VALUES.items()]


def op(f: str, at_s: float, process: str = "p", **more) -> Txn:
    return Txn(f, "ok", process, began_s=at_s, ended_s=at_s + 0.1, **more)


def assign(at_s: float, begin: int | None, process: str = "p") -> Txn:
    begins = {} if begin is None else {K: begin}
    return op("assign", at_s, process, positions={K: 0}, begins=begins)


def found(at: int, who: str = "p", group: str = "p") -> Txn:
    return op("position", 1.5, who, offsets={f"{group}|{K}": at}, writers={f"{group}|{K}": -1})


def took(at_s: float, *offsets: int, kind: str = "ok", process: str = "p") -> Txn:
    polled = [Polled(K, at, VALUES[at], 1) for at in offsets]
    made = op("txn", at_s, process, number=int(at_s * 10), polls=polled)
    made.type = kind
    return made


def judged(tmp_path, *ops: Txn) -> set[str]:
    """By the rules for short histories and by those for long ones."""
    sent = [Sent(K, value, at) for at, value in VALUES.items()]
    last = op("read", 90.0, FINAL, polls=ALL)
    history = [op("txn", 0.1, "w", number=1, sends=sent), *ops, last]
    short = rules(polls.check(history))
    file = written(tmp_path, history)
    assert rules(stream(file, lambda _: None)[0]) - {"torn-offset"} == short
    return short


def test_who_passes_by_what_is_there_in_its_first_poll_has_skipped_it(tmp_path) -> None:
    """Its group has committed nothing: it begins at the beginning, whatever a broker says where that is."""
    nothing = assign(1.0, None), found(-1)
    assert judged(tmp_path, *nothing, took(2.0, 3)) == {"poll-skip"}
    assert judged(tmp_path, *nothing, took(2.0, 0, 1, 3)) == set()


@pytest.mark.parametrize("by", ["assign", "position"])
@pytest.mark.parametrize(
    ("begin", "first", "expected"),
    [
        (1, 1, set()),
        (2, 3, set()),  # there is a marker
        (3, 3, set()),
        (1, 3, {"poll-skip"}),
        (3, 4, {"poll-skip"}),
        (3, 1, {"nonmonotonic-poll"}),
        (2, 1, {"nonmonotonic-poll"}),
    ],
)
def test_who_begins_at_a_place_is_shown_the_first_that_is_there_from_it_on(
    tmp_path, by, begin, first, expected
) -> None:
    chosen = [assign(1.0, begin)] if by == "assign" else [op("assign", 1.0), found(begin)]
    assert judged(tmp_path, *chosen, took(2.0, first)) == expected


def test_what_failed_is_polled_again_from_where_it_began(tmp_path) -> None:
    for kind in ("fail", "info"):
        again = assign(1.0, 1), took(2.0, 1, kind=kind)
        assert judged(tmp_path, *again, took(3.0, 1, 3)) == set()
        assert judged(tmp_path, *again, took(3.0, 3)) == {"poll-skip"}


def test_who_goes_on_in_what_stays_its_own_begins_behind_what_it_polled(tmp_path) -> None:
    ops = assign(1.0, 0), took(2.0, 0, 1), assign(3.0, 2)
    assert judged(tmp_path, *ops, took(4.0, 3)) == set()
    assert judged(tmp_path, *ops, took(4.0, 4)) == {"poll-skip"}


def test_who_leaves_a_partition_and_comes_back_begins_where_it_says_then(tmp_path) -> None:
    ops = assign(1.0, 0), took(2.0, 0, 1), op("assign", 3.0), assign(4.0, 2)
    assert judged(tmp_path, *ops, took(5.0, 3)) == set()
    assert judged(tmp_path, *ops, took(5.0, 4)) == {"poll-skip"}


def test_where_nobody_says_where_a_process_begins_it_may_begin_anywhere(tmp_path) -> None:
    """So it was in histories that were kept before 2026-11-28; and who asks in the end begins nothing."""
    assert judged(tmp_path, assign(1.0, None), took(2.0, 3)) == set()
    assert judged(tmp_path, took(2.0, 3), found(-1, "q")) == set()
    assert judged(tmp_path, found(-1, FINAL), assign(1.6, None), took(2.0, 3)) == set()


def test_a_member_begins_where_its_group_is(tmp_path) -> None:
    given = [op("assign", 1.0, "m"), found(2, "m", "lists")]
    assert judged(tmp_path, *given, took(2.0, 3, process="m")) == set()
    assert judged(tmp_path, *given, took(2.0, 4, process="m")) == {"poll-skip"}
