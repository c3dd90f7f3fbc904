"""Work of the simulated disk's threads: done in order, ended with its node, heard of at a moment of its own."""

import asyncio

import pytest
from disk_scene import in_world, opened, save
from fencepost.chaos.sim.habits import DiskHabits
from fencepost.chaos.sim.world import World


@in_world
async def test_work_of_threads_is_done_before_anybody_hears_of_it(world: World) -> None:
    """At once, at the end or between; and loop turns pass between the end of the work and who goes on because of it."""
    world.disk_habits = lambda _: DiskHabits(has_threads=True, run_s=(1.0, 1.0))
    env = world.node("n1")
    done_s: list[float] = []
    for _ in range(40):
        start = env.clock.steady()
        await world.on(env, env.disk.run(lambda: done_s.append(env.clock.steady() - start)))  # noqa: B023
        assert env.clock.steady() - start == pytest.approx(1.0)
    assert {0.0, 1.0} < set(done_s) and len(set(done_s)) > 5 and max(done_s) <= 1.0


@in_world
async def test_work_of_threads_is_done_though_nobody_waits_for_it_any_more(world: World) -> None:
    world.disk_habits = lambda _: DiskHabits(has_threads=True, run_s=(1.0, 1.0))
    env = world.node("n1")
    done: list[int] = []
    for piece in range(20):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await world.on(env, env.disk.run(done.append, piece))
    await asyncio.sleep(1.0)
    assert sorted(done) == list(range(20))


@in_world
async def test_work_of_threads_ends_with_its_node(world: World) -> None:
    world.disk_habits = lambda _: DiskHabits(has_threads=True, run_s=(1.0, 1.0))
    late: list[int] = []
    for piece in range(20):
        env = world.node("n1")
        env.tasks.spawn(env.disk.run(late.append, piece), name="work")
        await asyncio.sleep(0)
        at_once = len(late)
        world.kill("n1")
        await asyncio.sleep(2.0)
        assert len(late) == at_once


@in_world
async def test_what_work_of_threads_raises_is_raised_where_it_is_waited_for(world: World) -> None:
    world.disk_habits = lambda _: DiskHabits(has_threads=True)
    env = world.node("n1")
    with pytest.raises(FileNotFoundError):
        await env.disk.run(env.disk.read_all, "/data/nothing")


@in_world
async def test_a_sync_that_is_waited_for_keeps_the_whole_node_waiting(world: World) -> None:
    """Behind the call, to the next `await`; and whoever was stopped meanwhile stays so."""
    world.disk_habits = lambda _: DiskHabits(syncs_wait=True)
    env = world.node("n1")
    world.disk("n1").faults.sync_s = (1.0, 1.0)
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            await env.clock.sleep(0.1)
            ticks.append(env.clock.steady())

    env.tasks.spawn(tick(), name="ticks")
    await asyncio.sleep(0.05)

    async def save_and_go_on() -> None:
        await save(env)  # a file and a folder, twice
        await asyncio.sleep(0)

    await world.on(env, save_and_go_on())
    assert env.clock.steady() == pytest.approx(4.05)
    await asyncio.sleep(0.5)
    assert ticks[0] == pytest.approx(4.05) and len(ticks) >= 4
    file = opened(env)  # one sync
    world.pause("n1")
    await asyncio.sleep(2.0)
    world.resume("n1")
    file.sync()
    world.pause("n1")
    count = len(ticks)
    world.resume("n1")  # its disk still stands
    await asyncio.sleep(0.9)
    assert len(ticks) == count
    await asyncio.sleep(0.3)
    assert len(ticks) > count


@in_world
async def test_the_syncs_of_work_off_the_loop_make_it_longer_and_nobody_else_waits(
    world: World,
) -> None:
    for has_threads in (False, True):
        habits = DiskHabits(has_threads=has_threads, run_s=(1.0, 1.0), syncs_wait=True)
        world.disk_habits = lambda _, habits=habits: habits  # type: ignore[misc]
        name = f"threads {has_threads}"
        env = world.node(name)
        world.disk(name).faults.sync_s = (2.0, 2.0)
        start = env.clock.steady()
        await env.disk.run(env.disk.replace, "/data/checkpoint", b"x")
        assert env.clock.steady() - start == pytest.approx(5.0)
        assert not env.incarnation.paused
