"""Of a log that keeps its records for a time or up to a size nothing goes before that is over."""

from fencepost.chaos.checkers.expired import MARGIN_MS, Expired
from fencepost.chaos.checkers.observations import Began, Wrote

KEY = "t-0"
NO_LIMIT = -1


def judge(retention_ms: int, retention_bytes: int, *, batches: int = 10) -> Expired:
    """Batch i is offset i, written at i * 100 ms, of 100 bytes."""
    made = Expired(retention_ms, retention_bytes)
    for offset in range(batches):
        made.wrote(wrote(offset))
    return made


def wrote(offset: int, *, epoch: int = 1, size: int = 100, at_ms: int | None = None) -> Wrote:
    written_ms = offset * 100 if at_ms is None else at_ms
    return Wrote(KEY, epoch, offset, offset + 1, written_ms, size)


def rules(made: Expired, start: int, now_ms: int, *, by_time: bool = True) -> list[str]:
    seen = Began("node-1", KEY, start, now_ms)
    return [each.rule for each in made.see(seen, by_time=by_time)]


def test_a_record_that_is_gone_and_is_young_is_seen() -> None:
    assert rules(judge(1000, NO_LIMIT), 5, 1401) == []
    assert rules(judge(1000, NO_LIMIT), 5, 1400 - MARGIN_MS) == ["expired-early"]
    assert rules(judge(1000, NO_LIMIT), 6, 1401) == ["expired-early"]
    assert rules(judge(NO_LIMIT, 1 << 20), 1, 1 << 40) == ["expired-early"]


def test_a_record_that_is_gone_and_has_too_little_behind_it_is_seen() -> None:
    assert rules(judge(NO_LIMIT, 600), 4, 1000) == []
    assert rules(judge(NO_LIMIT, 601), 4, 1000) == ["expired-early"]
    assert rules(judge(NO_LIMIT, 600), 5, 1000) == ["expired-early"]


def test_either_limit_will_do() -> None:
    assert rules(judge(1000, 600), 4, 0) == []
    assert rules(judge(1000, 5000), 4, 1301) == []


def test_what_was_allowed_once_is_allowed_to_those_who_are_late() -> None:
    made = judge(NO_LIMIT, 600)
    made.wrote(wrote(5, epoch=2))  # a leader that never had what came behind
    assert rules(made, 4, 1000) == []
    assert rules(made, 3, 0) == []
    assert made.low(KEY) == 4


def test_what_is_there_is_what_the_last_leader_has_whoever_wrote_it() -> None:
    """A leader that nobody followed wrote over the end, and died: what stood there before is there."""
    made = judge(1000, NO_LIMIT)
    for offset in (5, 6):
        made.wrote(wrote(offset, epoch=2, at_ms=1500))
    for offset in range(10):
        made.wrote(wrote(offset, epoch=3))
    assert rules(made, 7, 1601) == []
    assert rules(made, 8, 1601) == ["expired-early"]


def test_what_a_leader_had_before_is_noted_once() -> None:
    made = judge(NO_LIMIT, 600)
    for offset in (*range(10), *range(3, 10)):  # it was started, and looks at its log anew
        made.wrote(wrote(offset))
    made.wrote(wrote(2, epoch=0))  # deposed, and has not heard of it
    assert rules(made, 5, 1000) == ["expired-early"]


def test_where_clocks_are_not_known_only_the_size_counts() -> None:
    assert rules(judge(1000, NO_LIMIT), 9, 0, by_time=False) == []
    assert rules(judge(NO_LIMIT, 600), 5, 0, by_time=False) == ["expired-early"]
