from unittest import mock

from fencepost.txn.runtime import timers as of_timers
from fencepost.txn.runtime.timers import Timers
from hypothesis import example, given
from hypothesis import strategies as st

OWNERS = st.sampled_from(["a", "b"])
KEYS = st.sampled_from([("x",), ("y", 1), ("y", 2)])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), OWNERS, KEYS, st.integers(0, 12)),
        st.tuples(st.just("cancel"), OWNERS, KEYS),
        st.tuples(st.just("drop"), OWNERS),
        st.tuples(st.just("pass"), st.integers(0, 6)),
    ),
    min_size=20,  # without it a list has five steps, most often
    max_size=60,
)
LATER = [("set", "a", ("x",), 5), ("set", "a", ("x",), 9), ("pass", 6), ("pass", 3)]
GONE = [("set", "b", key, 3) for key in (("x",), ("y", 1), ("y", 2))]
BURIED = [*GONE, *LATER[:2], ("drop", "b"), ("set", "a", ("y", 1), 12)]


@given(STEPS, st.sampled_from([0, 2, 1_000]))
@example(LATER, 1_000)
@example(BURIED, 0)
def test_the_heap_agrees_with_a_plain_list_of_deadlines(steps, dead_max) -> None:
    timers, plain, now = Timers(), {}, 0
    with mock.patch.object(of_timers, "DEAD_MAX", dead_max):
        _play(steps, timers, plain, now)


def _play(steps, timers, plain, now) -> None:
    for step in steps:
        match step:
            case ("set", owner, key, delay):
                timers.set(owner, key, now + delay)
                plain[owner, key] = now + delay
            case ("cancel", owner, key):
                timers.cancel(owner, key)
                plain.pop((owner, key), None)
            case ("drop", owner):
                timers.drop(owner)
                plain = {k: due for k, due in plain.items() if k[0] != owner}
            case ("pass", ms):
                now += ms
                expected = sorted((due, k) for k, due in plain.items() if due <= now)
                got = list(timers.due(now, 1000))
                assert sorted(got) == sorted(k for _, k in expected)
                plain = {k: due for k, due in plain.items() if due > now}
        next_ms = timers.next_ms()
        assert not plain or (next_ms is not None and next_ms <= min(plain.values()))


def test_a_member_that_sends_heartbeats_costs_one_entry_in_the_heap() -> None:
    timers = Timers()
    for now in range(1_000):
        timers.set("shard", ("session", "g", "m"), now + 45_000)
    assert len(timers._heap) == 1
    assert list(timers.due(45_000, 10)) == []
    assert list(timers.due(45_999, 10)) == [("shard", ("session", "g", "m"))]


def test_what_was_cancelled_is_not_kept_until_it_would_have_been_due() -> None:
    """Ids that are handed out and never used, one after the other, each for half an hour."""
    timers = Timers()
    timers.set("s", ("kept",), 10**7)
    for number in range(10_000):
        timers.set("s", (number,), 10**6 + number)
        timers.cancel("s", (number,))
    assert len(timers._heap) <= 2 * 1 + of_timers.DEAD_MAX + 1
    assert len(timers._entries) <= len(timers._heap)
    assert list(timers.due(10**7, 9)) == [("s", ("kept",))]


def test_what_is_due_comes_in_order_and_no_more_than_asked_for() -> None:
    timers = Timers()
    for delay in (30, 10, 20):
        timers.set("shard", ("t", delay), delay)
    assert [key for _, key in timers.due(30, 2)] == [("t", 10), ("t", 20)]
    assert [key for _, key in timers.due(30, 2)] == [("t", 30)]


def test_a_deadline_can_be_moved_earlier() -> None:
    timers = Timers()
    timers.set("s", ("t",), 100)
    timers.set("s", ("t",), 10)
    assert [key for _, key in timers.due(10, 9)] == [("t",)]
    assert list(timers.due(100, 9)) == []
