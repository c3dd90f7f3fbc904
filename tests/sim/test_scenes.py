"""The scenes of the transactions campaign: served by either protocol, and what they are for happens in them."""

from collections import Counter

import pytest
from fencepost.chaos.campaigns.campaign import Outcome, run_plan
from fencepost.chaos.campaigns.planted_table import hunt
from fencepost.chaos.sim.plan import Plan
from fencepost.chaos.sim.scenes import ODDS, SCENES, drawn_scenes
from fencepost.chaos.sim.world import World

pytestmark = pytest.mark.slow


def run(seed: int, workload: str, *faults: str, protocol: str = "") -> Outcome:
    return run_plan(
        Plan(
            campaign="transactions",
            seed=seed,
            seconds=4.0,
            faults=faults,
            nodes=3,
            workloads=(workload,),
            protocol=protocol,
        )
    )


@pytest.mark.parametrize("protocol", ["old", "new"])
@pytest.mark.parametrize("workload", SCENES)
def test_a_scene_is_served_by_either_protocol(workload: str, protocol: str) -> None:
    outcome = run(3, workload, "clock", protocol=protocol)
    assert not outcome.failure, outcome.failure
    assert outcome.acknowledged > 3


def test_most_of_what_is_written_to_a_table_is_cleaned_away() -> None:
    counts = run(1, "compacted", "reset").counts
    assert counts["entries"] > 2 * counts["entries at the end"] > 0


def test_a_long_transaction_has_hundreds_of_records() -> None:
    counts = run(1, "long", "reset").counts
    assert counts["records of those"] >= 150 * counts["long"] > 0


def test_positions_are_owed_of_topics_that_come_and_go() -> None:
    counts = run(1, "churn", "reset").counts
    assert counts["positions told of them"] > 10
    assert counts["positions owed of them"] > 10


@pytest.mark.timeout(180)
def test_a_position_that_is_told_of_the_next_topic_of_that_name_is_seen() -> None:
    sighting = hunt("positions-outlive-their-topic")
    assert sighting.was_seen, sighting
    assert "committed in" in sighting.failure, "by its position, not by a record"


@pytest.mark.timeout(180)
def test_a_position_that_goes_with_the_topic_before_is_seen() -> None:
    sighting = hunt("names-mean-whom-a-coordinator-knows-by-them")
    assert sighting.was_seen, sighting


def test_each_scene_is_in_about_a_fifth_of_the_seeds() -> None:
    seeds = 200
    found: Counter[str] = Counter()
    for seed in range(seeds):
        with World(seed=seed) as world:
            found.update(drawn_scenes(world.stream))
    assert all(0.7 * ODDS < found[name] / seeds < 1.4 * ODDS for name in SCENES), found
