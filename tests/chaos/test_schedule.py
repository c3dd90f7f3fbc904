"""Faults are numbered and independent, so that any of them can be left out."""

import asyncio
from typing import Any

from fencepost.chaos.sim.plan import Plan
from fencepost.chaos.sim.schedule import Schedule
from fencepost.chaos.sim.world import World

NAMES = ("kill", "pause", "cut")


def drawn(**what: Any) -> list[tuple[int, str, float, float]]:
    """Number, name, time, and a throw of its dice, of each fault."""
    found = []

    async def scenario(world: World, schedule: Schedule) -> None:
        await asyncio.sleep(1.0)
        schedule.begin(5.0)
        while (strike := await schedule.next()) is not None:
            schedule.strikes(strike)
            found.append((strike.number, strike.name, world.loop.time(), strike.rng.random()))

    with World(seed=7) as world:
        plan = Plan(campaign="cluster", seed=7, **what)
        schedule = Schedule(world, plan, NAMES, pause=lambda rng: rng.uniform(0.1, 1.0))
        world.run(scenario(world, schedule))
        assert [each.number for each in schedule.struck] == [number for number, *_ in found]
    return found


def test_a_fault_that_is_left_out_changes_no_other() -> None:
    everything = drawn()
    assert len(everything) > 5
    kept = drawn(keep_faults=(2, 5))
    assert kept == [each for each in everything if each[0] in (2, 5)]
    assert drawn(keep_faults=()) == []


def test_an_earlier_end_leaves_what_came_before_it() -> None:
    everything = drawn()
    until = everything[3][2]
    assert drawn(until_s=until) == everything[:3]
    assert drawn(seconds=until - 1.0) == everything[:3]


def test_only_the_faults_that_were_asked_for_strike() -> None:
    assert {name for _, name, *_ in drawn(faults=("cut",))} == {"cut"}
