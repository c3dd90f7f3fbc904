"""The scene whose records expire: it happens, it is judged, and seeds without it are what they were."""

import pytest
from fencepost.chaos.campaigns.campaign import run_plan
from fencepost.chaos.sim.cluster import ClusterRun
from fencepost.chaos.sim.deleting import DELETIONS, SLEEPERS, Deleting
from fencepost.chaos.sim.deleting import ODDS as DELETIONS_ODDS
from fencepost.chaos.sim.expiring import EXPIRING, ODDS, Expiring, scene_of
from fencepost.chaos.sim.plan import Plan
from fencepost.chaos.sim.world import World


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_what_is_old_goes_and_nothing_else_whatever_fails(seed: int) -> None:
    outcome = run_plan(Plan(campaign="cluster", seed=seed, seconds=5.0, workloads=(EXPIRING,)))
    assert not outcome.failure, outcome.failure
    assert outcome.counts["expired"] > 50
    assert outcome.counts["readers overtaken"] > 0


def test_it_is_in_a_part_of_the_seeds_that_delete_nothing_and_in_those_that_ask_for_it() -> None:
    drawn = {DELETIONS: 0, EXPIRING: 0, "": 0}
    naps = 0
    for seed in range(300):
        with World(seed) as world:
            scene, has_sleepers = scene_of(Plan(campaign="cluster", seed=seed), world.stream)
            drawn[scene] += 1
            naps += has_sleepers and scene == EXPIRING
    odds = ODDS * (1 - DELETIONS_ODDS)
    assert 0.6 * odds < drawn[EXPIRING] / 300 < 1.4 * odds
    assert 0.3 < naps / drawn[EXPIRING] < 0.7


@pytest.mark.parametrize(
    ("workloads", "kind", "sleepers"),
    [
        (("light",), type(None), 0),
        ((DELETIONS,), Deleting, 0),
        ((SLEEPERS,), Deleting, 3),
        ((EXPIRING,), Expiring, 0),
        ((EXPIRING, SLEEPERS), Expiring, 3),
    ],
)
def test_what_is_asked_for_is_what_is_run(
    workloads: tuple[str, ...], kind: type, sleepers: int
) -> None:
    made = ClusterRun(Plan(campaign="cluster", seed=1, workloads=workloads))
    made.world.close()
    assert type(made.deleting) is kind
    assert (0 if made.deleting is None else len(made.deleting.sleepers)) == sleepers
