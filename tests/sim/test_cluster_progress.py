"""Producers are served while one thing at a time is broken."""

from types import SimpleNamespace

import pytest
from fencepost.chaos.campaigns.campaign import run_plan
from fencepost.chaos.sim.cluster_fault_table import FAULTS
from fencepost.chaos.sim.cluster_progress import LEAVES_A_MAJORITY, SERVED_S, Progress
from fencepost.chaos.sim.cluster_rare_disks import FULL_FOR_S
from fencepost.chaos.sim.plan import Plan

FULL = "full-for-long"


class Clock:
    """A world of which only the time is looked at; it keeps what ended it."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.failed: list[str] = []
        self.loop = SimpleNamespace(time=lambda: self.now_s)

    def fail(self, failure: BaseException) -> None:
        self.failed.append(str(failure))


def scene(*struck: str, one_by_one: bool = True):
    world = Clock()
    faults = SimpleNamespace(
        struck=[SimpleNamespace(name=name) for name in struck], one_by_one=one_by_one
    )
    producer = SimpleNamespace(name="p0", key="stream-0", waiting=1, acknowledged=5)
    return world, producer, Progress(world, faults, [producer])


def wait(world: Clock, progress: Progress, seconds: float) -> None:
    for _ in range(int(seconds * 4)):
        world.now_s += 0.25
        progress.look()


def test_a_producer_that_waits_for_longer_than_all_timers_ends_the_run() -> None:
    world, _, progress = scene("kill")
    wait(world, progress, SERVED_S)
    assert world.failed == [] and progress.longest_s > SERVED_S - 1.0
    wait(world, progress, 1.0)
    assert world.failed[0].startswith("no-progress: stream-0: p0 has waited for")


def test_an_acknowledgement_begins_the_wait_anew_and_who_waits_for_nothing_does_not_wait() -> None:
    world, producer, progress = scene("kill")
    for _ in range(5):
        wait(world, progress, SERVED_S - 1.0)
        producer.acknowledged += 1
    producer.waiting = 0
    wait(world, progress, 3 * SERVED_S)
    assert world.failed == []


@pytest.mark.parametrize(
    ("struck", "one_by_one"), [(("kill", "kill-two"), True), (("kill",), False)]
)
def test_where_a_majority_may_be_away_nothing_is_asked(struck, one_by_one) -> None:
    world, _, progress = scene(*struck, one_by_one=one_by_one)
    wait(world, progress, 3 * SERVED_S)
    assert world.failed == [] and not progress.is_owed


def test_faults_that_leave_a_majority_are_faults_that_there_are() -> None:
    assert set(FAULTS) >= LEAVES_A_MAJORITY


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 3])
def test_a_disk_that_stays_full_keeps_nobody_waiting(seed: int) -> None:
    outcome = run_plan(
        Plan(campaign="cluster", seed=seed, faults=(FULL,), at_once=1, seconds=FULL_FOR_S + 1)
    )
    assert not outcome.failure, outcome.failure
    assert [each.name for each in outcome.struck] == [FULL]
    assert outcome.counts["longest gap ms"] <= SERVED_S * 1000


def test_a_full_disk_that_lasts_outlasts_what_producers_may_wait() -> None:
    """Or whoever waited for room would pass."""
    assert FULL_FOR_S > SERVED_S


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_broken_alone_everybody_is_served_meanwhile(seed: int) -> None:
    faults = tuple(sorted(LEAVES_A_MAJORITY - {FULL}))  # which takes all the time that there is
    outcome = run_plan(Plan(campaign="cluster", seed=seed, faults=faults, at_once=1))
    assert not outcome.failure, outcome.failure
    assert 0 < outcome.counts["longest wait ms"] <= SERVED_S * 1000
