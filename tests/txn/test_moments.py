"""When something began, as one node tells another, and what a group makes of it."""

from math import inf

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.groups.classic_group import ClassicGroup, Phase
from fencepost.txn.groups.classic_machine import ClassicMachine
from fencepost.txn.groups.config import GroupConfig
from fencepost.txn.runtime.moments import Age, Began, Moment
from hypothesis import given
from hypothesis import strategies as st

E = ErrorCode
SECONDS = st.integers(0, 10_000).map(lambda quarters: quarters / 4)  # exact in binary


@given(SECONDS, SECONDS, SECONDS, SECONDS, SECONDS, st.booleans())
def test_a_moment_that_another_node_tells_of_holds_the_true_one(
    apart_s, open_s, goes_s, comes_s, read_s, is_read
) -> None:
    """Two steady clocks that are `apart_s` from each other; one that was read of a log began before it was read."""
    began_s = 1_000.0  # by the one who asks
    asked_s = began_s + open_s
    looked_s = asked_s + goes_s
    noted_s = min(began_s + read_s, looked_s) + apart_s
    known = Moment.before(noted_s) if is_read else Moment.of(began_s + apart_s)
    age = Age.since(known, looked_s + apart_s, by_wall_ms=7)
    told = age.began(asked_s=asked_s, answered_s=looked_s + comes_s, now_ms=100)
    assert told.at.from_s <= began_s <= told.at.to_s
    assert told.by_wall_ms == 93
    assert told.at.has_beginning is not is_read


def test_of_an_older_build_no_more_is_known_than_that_it_had_begun() -> None:
    told = Age(by_wall_ms=5).began(asked_s=10.0, answered_s=12.0, now_ms=100)
    assert told == Began(Moment(-inf, 12.0), 95)


LIVE, READ = Moment.of(50.0), Moment.before(50.0)


@pytest.mark.parametrize("wall_ms", [0, 999_999])
@pytest.mark.parametrize(
    ("since", "began", "code"),
    [
        (LIVE, Moment(50.0, 50.5), E.none),
        (LIVE, Moment(48.0, 49.9), E.invalid_producer_epoch),
        (LIVE, Moment(49.0, 51.0), E.coordinator_not_available),
        (LIVE, Moment(-inf, 49.9), E.invalid_producer_epoch),
        (READ, Moment(50.0, 50.5), E.none),
    ],
)
def test_what_steady_clocks_tell_no_wall_clock_changes(since, began, code, wall_ms) -> None:
    assert settled(since).refuse_older(Began(began, wall_ms)) is code


@pytest.mark.parametrize(
    ("since", "began"), [(READ, Moment(49.0, 49.5)), (LIVE, Moment.before(51.0))]
)
def test_what_began_under_another_coordinator_is_told_by_wall_clocks(since, began) -> None:
    assert settled(since).refuse_older(Began(began, 1_000)) is E.none
    assert settled(since).refuse_older(Began(began, 999)) is E.invalid_producer_epoch


def test_a_generation_that_is_read_from_a_log_began_before_its_coordinator_whenever_it_is_read() -> (
    None
):
    """Groups are decoded when somebody asks for them: by that moment whoever began meanwhile was older than it knew."""
    clock = [10.0]
    machine = ClassicMachine(GroupConfig(), lambda: clock[0])
    clock[0] = 100.0
    machine.apply(settled(LIVE).record())
    assert machine.groups["g"].since == Moment.before(10.0)


def settled(since: Moment) -> ClassicGroup:
    group = ClassicGroup("g")
    group.phase, group.since_ms, group.since = Phase.STABLE, 1_000, since
    return group
