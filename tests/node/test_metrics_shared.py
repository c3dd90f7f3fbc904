"""Work that a crowd asks for at once, and one after the other."""

import asyncio

import pytest
from fencepost.chaos.sim.world import World
from fencepost.node.metrics.health import Health, State, Verdict
from fencepost.node.metrics.shared import REST_S_MAX, RESTS, Shared


class Work:
    def __init__(self, world: World, takes_s: float) -> None:
        self.world = world
        self.takes_s = takes_s
        self.began: list[float] = []

    async def __call__(self) -> float:
        self.began.append(self.world.loop.time())
        await asyncio.sleep(self.takes_s)
        return self.began[-1]


@pytest.mark.parametrize("crowd", [1, 100])
def test_work_that_is_asked_for_without_a_break_rests_in_between(crowd: int) -> None:
    with World(seed=1) as world:
        env = world.node("n")
        work = Work(world, 0.02)
        shared = Shared(env, "work", work)

        async def one() -> None:
            while world.loop.time() < 10:
                asked_s = world.loop.time()
                begun_s = await shared.result()
                assert begun_s >= asked_s - work.takes_s

        async def scenario() -> None:
            await asyncio.gather(*(one() for _ in range(crowd)))

        world.run(world.on(env, scenario()))
        assert len(work.began) == pytest.approx(10 / work.takes_s / (RESTS + 1), rel=0.05)


def test_work_that_takes_long_rests_no_longer_than_a_scraper_waits() -> None:
    with World(seed=1) as world:
        env = world.node("n")
        work = Work(world, 5.0)
        shared = Shared(env, "work", work)

        async def scenario() -> None:
            await shared.result()
            ended_s = world.loop.time()
            assert await shared.result() == pytest.approx(ended_s + REST_S_MAX)

        world.run(world.on(env, scenario()))


def test_who_hangs_up_ends_it_for_nobody_else() -> None:
    with World(seed=1) as world:
        env = world.node("n")
        shared = Shared(env, "work", Work(world, 1.0))

        async def scenario() -> None:
            first = asyncio.ensure_future(shared.result())
            second = asyncio.ensure_future(shared.result())
            await asyncio.sleep(0.1)
            first.cancel()
            await second

        world.run(world.on(env, scenario()))


def test_a_crowd_of_probes_has_one_verdict() -> None:
    """With 2,000 replicas it takes 1.8 ms, and was reached for each of 2,500 connections by itself."""
    with World(seed=1) as world:
        env = world.node("n")

        class Node:
            pass

        reached: list[float] = []

        class Counted(Health):
            async def verdict(self) -> Verdict:
                reached.append(world.loop.time())
                await asyncio.sleep(0.002)
                return Verdict(State.READY, "all is well")

        node = Node()
        node.env = env
        health = Counted(node)

        async def scenario() -> None:
            replies = await asyncio.gather(*(health.ready(None) for _ in range(100)))
            assert {reply.status for reply in replies} == {200}

        world.run(world.on(env, scenario()))
        assert len(reached) == 1
