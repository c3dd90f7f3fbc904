"""Records that are deleted on request: what is back, what is gone without a request, and what a history owes beside that."""

import pytest
from fencepost.chaos.checkers import lost_writes, verdict
from fencepost.chaos.checkers.deletions import ALL_COMMITTED, Deletions
from fencepost.chaos.checkers.history import Operation, from_lines, to_line
from fencepost.chaos.checkers.observations import Batch, Begins, Deletion, Held
from fencepost.chaos.checkers.prefixes import Prefixes

KEY = "t-0"
COMMITTED = 100


def deletions(*seen: Deletion | Begins) -> list[str]:
    checker = Deletions(lambda _key: COMMITTED)
    return [anomaly.rule for each in seen for anomaly in checker.see(each)]


def asked(before: int) -> Deletion:
    return Deletion("d", KEY, "asked", before)


def done(before: int, low: int, epoch: int = 1) -> Deletion:
    return Deletion("d", KEY, "ok", before, low, epoch)


def begins(start: int, *, epoch: int = 1, since: int = 1, is_exact: bool = True) -> Begins:
    return Begins("r", KEY, epoch, start, since, is_exact)


# -- where leaders say that they begin --


def test_a_log_that_begins_where_it_was_asked_to_is_no_anomaly() -> None:
    again = (asked(5), done(5, 10))
    assert deletions(asked(10), begins(0, since=0), done(10, 10), begins(10), *again) == []


def test_a_deleted_record_that_is_back_with_a_later_leader_is_seen() -> None:
    assert deletions(asked(10), done(10, 10), begins(7, epoch=2)) == ["undeleted"]


def test_a_deleted_record_that_is_served_is_seen_though_nobody_says_where_the_log_begins() -> None:
    served = begins(7, is_exact=False)
    assert deletions(asked(10), done(10, 10), served) == ["undeleted"]


def test_an_acknowledgement_of_less_than_was_asked_is_seen() -> None:
    assert deletions(asked(10), done(10, 7)) == ["undeleted"]


def test_who_was_deposed_before_and_who_was_asked_before_may_show_more() -> None:
    deposed, asked_before = begins(0, epoch=0), begins(0, since=0)
    assert deletions(asked(10), done(10, 10), deposed, asked_before) == []


def test_a_record_that_is_gone_and_nobody_asked_to_delete_is_seen() -> None:
    assert deletions(begins(1, since=0)) == ["over-deleted"]
    assert deletions(asked(10), done(10, 10), begins(11)) == ["over-deleted"]
    assert deletions(asked(10), done(10, 11)) == ["over-deleted"]


def test_what_may_have_happened_may_be_gone_and_what_was_refused_may_not() -> None:
    unknown, refused = Deletion("d", KEY, "info", 10), Deletion("d", KEY, "fail", 10)
    assert deletions(asked(10), unknown, begins(0), begins(10), begins(4)) == []
    assert deletions(asked(10), refused, begins(10)) == ["over-deleted"]


def test_who_asks_for_all_that_is_committed_gets_no_more_than_that() -> None:
    everything = asked(ALL_COMMITTED)
    assert deletions(everything, begins(COMMITTED, since=0)) == []
    assert deletions(everything, begins(COMMITTED + 1, since=0)) == ["over-deleted"]
    answered = done(ALL_COMMITTED, 60)
    assert deletions(everything, answered, begins(60), begins(61)) == ["over-deleted"]


# -- what a history owes --


def sent(value: int, offset: int | None = None) -> Operation:
    return Operation("send", "ok", 1, KEY, value, offset)


def read(offset: int, value: int, by: str = "final") -> Operation:
    return Operation("read", "ok", by, KEY, value, offset, 1)


def start(offset: int, by: str = "final") -> Operation:
    return Operation("start", "ok", by, KEY, offset=offset)


def test_of_what_was_deleted_nothing_is_lost_and_of_the_rest_all_counts() -> None:
    seen = [sent(1, 0), sent(2, 1), sent(3, 2), read(0, 1, by="early")]
    assert verdict.judge([*seen, start(1), read(1, 2), read(2, 3)]).valid
    found = lost_writes.check([*seen, start(1), read(2, 3)])
    assert [(each.rule, each.key) for each in found] == [("lost", KEY)]
    assert [each.rule for each in lost_writes.check([*seen, read(1, 2), read(2, 3)])] == [
        "lost",
        "unread",
    ]


def test_where_another_pass_began_excuses_nothing() -> None:
    history = [sent(1, 0), sent(2, 1), start(1, by="early"), read(1, 2)]
    assert [each.rule for each in lost_writes.check(history)] == ["lost"]


def test_a_record_without_an_offset_was_deleted_only_with_those_that_its_producer_sent_before() -> (
    None
):
    told_nothing = [sent(1, 0), sent(2), sent(3, 2)]
    assert lost_writes.check([*told_nothing, start(2), read(2, 3)]) == []
    behind = [sent(1, 1), sent(2), sent(3, 3), start(1), read(1, 1), read(3, 3)]
    assert [each.rule for each in lost_writes.check(behind)] == ["lost"]


def test_where_all_of_it_was_deleted_a_last_pass_that_finds_nothing_says_so_and_proves_something() -> (
    None
):
    seen = [sent(1, 0), sent(2, 1), read(0, 1, by="early")]
    judged = verdict.judge([*seen, start(2)])
    assert judged.valid
    assert "all that was acknowledged was deleted before the end" in judged.told
    assert not verdict.judge([sent(1, 0), sent(2, 1), start(2)]).proves_something  # nobody read
    assert not verdict.judge([start(2)]).proves_something
    one_is_left = verdict.judge([*seen, start(1)])
    assert [each.rule for each in one_is_left.anomalies] == ["lost"]
    assert not one_is_left.proves_something
    assert not verdict.judge([*seen, start(2, by="early")]).proves_something
    unknown = Operation("send", "info", 1, KEY, 3)
    assert verdict.judge([sent(1, 0), sent(2, 1), unknown, start(2), read(2, 3)]).valid


def test_where_a_partition_begins_is_read_back_from_its_line() -> None:
    assert from_lines([to_line(start(4))]) == [start(4)]


# -- replicas --


def held(node: int, log_start: int, *bases: int, crc: int = 0, until: int = 50) -> Held:
    batches = [Batch(base, base + 10, 1, crc, 100) for base in bases]
    return Held(node, KEY, log_start, batches, until, counted=True)


@pytest.mark.parametrize("log_start", [20, 15])
def test_replicas_are_compared_from_where_the_later_one_begins(log_start: int) -> None:
    """A log may begin inside a batch."""
    everything, rest = (0, 10, 20, 30, 40), (10, 20, 30, 40) if log_start < 20 else (20, 30, 40)
    prefixes = Prefixes()
    assert prefixes.see(held(1, 0, *everything)) == []
    assert prefixes.see(held(2, log_start, *rest)) == []
    assert [each.rule for each in prefixes.see(held(3, log_start, *rest, crc=1))] == ["diverged"]
    assert [each.rule for each in prefixes.see(held(4, log_start, 30, 40))] == ["diverged"]
    assert [each.rule for each in prefixes.see(held(5, 0, 10, 20, 30, 40))] == ["diverged"]


def test_what_was_deleted_before_anybody_looked_is_no_gap() -> None:
    prefixes = Prefixes()
    assert prefixes.see(held(1, 0, 0, 10, until=20)) == []
    assert prefixes.see(held(1, 30, 30, 40)) == []
    assert prefixes.see(held(2, 10, 10, 20, 30, 40)) == []
    assert [each.rule for each in prefixes.see(held(3, 10, 10, 20, 30))] == ["commit-missing"]


def test_what_was_seen_committed_is_remembered_above_the_place_where_another_log_begins() -> None:
    prefixes = Prefixes()
    assert prefixes.see(held(1, 0, 0, 10, 20, until=30)) == []
    assert prefixes.see(held(1, 20, 20, 30, 40)) == []
    assert [each.rule for each in prefixes.see(held(2, 0, 0, 20, 30, 40))] == ["diverged"]
