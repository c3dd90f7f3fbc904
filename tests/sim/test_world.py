"""Nodes that start, die, stop and come back."""

import asyncio
import inspect
from typing import Any

import pytest
from fencepost.chaos.sim.clock import WALL_START_MS
from fencepost.chaos.sim.loop import NodeDown
from fencepost.chaos.sim.world import NodeDied, NodeLost, World
from fencepost.cluster.base.errors import Outcome


def test_code_of_a_dead_node_never_runs_again() -> None:
    steps: list[str] = []

    async def program(env: Any) -> None:
        env.clock.call_later(2.0, lambda: steps.append("timer"))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(env.clock.sleep(5))
                while True:
                    steps.append("tick")
                    await env.clock.sleep(1)
        except BaseException:
            steps.append("handler ran")
            await env.clock.sleep(1)
            steps.append("and went on")
            raise
        finally:
            # Cut off from the world: what a dying process can't do is not done.
            with pytest.raises(NodeDown):
                env.disk.replace("/data/last-words", b"x")

    async def main(world: World) -> None:
        env = world.node("n1")
        world.start(env, program)
        await asyncio.sleep(1.5)
        world.kill("n1")
        await asyncio.sleep(10)
        assert world.restart("n1").disk.list("/data") == []

    with World(1) as world:
        world.run(main(world))
    assert "timer" not in steps and "and went on" not in steps
    assert steps[:2] == ["tick", "tick"] and steps.count("tick") == 2


def test_a_node_that_dies_inside_a_task_group_is_taken_apart_too() -> None:
    """The group's exit awaits its children: the dying task is left waiting when it has unwound so far."""
    ended: list[str] = []

    async def program(env: Any) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(env.clock.sleep(100))
            try:
                env.disk.replace("/data/x", b"x")
            finally:
                ended.append("unwound")
        ended.append("went on")

    async def main(world: World) -> None:
        env = world.node("n1")
        world.start(env, program)
        world.crash_at_disk_op("n1", 3)
        await world.wait_down("n1")
        await asyncio.sleep(1)
        assert [incarnation for _, incarnation in world.loop.tasks()] == [None]

    with World(1) as world:
        world.run(main(world))
    assert ended == ["unwound"]


def test_whoever_waits_on_a_node_that_goes_down_is_told() -> None:
    async def main(world: World) -> None:
        env = world.node("n1")
        waiting = asyncio.ensure_future(world.on(env, env.clock.sleep(10)))
        down = asyncio.ensure_future(world.wait_down("n1"))
        await asyncio.sleep(1)
        assert not down.done() and world.is_up("n1")
        world.crash("n1")
        with pytest.raises(NodeLost) as caught:
            await waiting
        assert caught.value.outcome is Outcome.UNKNOWN
        await down
        assert not world.is_up("n1")
        with pytest.raises(NodeLost):
            await world.on(env, asyncio.sleep(0))

    with World(1) as world:
        world.run(main(world))


def test_work_that_never_began_is_ended_when_nobody_waits_for_it() -> None:
    """A node that stands still, or dies at once, begins nothing; Python would warn of it whenever memory is collected."""

    async def main(world: World) -> None:
        env = world.node("n1")
        world.pause("n1")
        too_late, lost = env.clock.sleep(0), env.clock.sleep(0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(world.on(env, too_late), 1)
        assert inspect.getcoroutinestate(too_late) == inspect.CORO_CLOSED
        waiting = asyncio.ensure_future(world.on(env, lost))
        await asyncio.sleep(0)
        world.kill("n1")
        with pytest.raises(NodeLost):
            await waiting
        assert inspect.getcoroutinestate(lost) == inspect.CORO_CLOSED

    with World(1) as world:
        world.run(main(world))


def test_work_on_a_node_gives_its_result_and_its_errors() -> None:
    async def main(world: World) -> None:
        env = world.node("n1")

        async def work(error: Exception | None) -> int:
            await env.clock.sleep(1)
            if error is not None:
                raise error
            return 7

        assert await world.on(env, work(None)) == 7
        with pytest.raises(ValueError, match="no"):
            await world.on(env, work(ValueError("no")))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await world.on(env, work(None))

    with World(1) as world:
        world.run(main(world))


def test_a_node_that_dies_of_itself_fails_the_run_with_its_reason() -> None:
    async def program(env: Any) -> None:
        await env.clock.sleep(1)
        raise AssertionError("an epoch went backwards")

    async def main(world: World) -> None:
        world.start(world.node("n1"), program)
        await asyncio.sleep(10)

    with World(1) as world, pytest.raises(NodeDied, match="an epoch went backwards") as caught:
        world.run(main(world))
    assert isinstance(caught.value.__cause__, AssertionError)


def test_a_callback_that_raises_kills_its_node() -> None:
    async def main(world: World) -> None:
        world.node("n1").clock.call_later(1, lambda: 1 // 0)  # type: ignore[arg-type, return-value]
        await asyncio.sleep(10)

    with World(1) as world, pytest.raises(NodeDied, match="ZeroDivisionError"):
        world.run(main(world))


def test_a_death_that_is_expected_is_noted_and_keeps_what_was_written() -> None:
    async def program(env: Any) -> None:
        env.disk.open("/data/log", create=True).append([b"written"])
        env.die(AssertionError("on purpose"))
        raise RuntimeError("code went on after its node died")

    async def main(world: World) -> None:
        world.start(world.node("n1"), program)
        await world.wait_down("n1")
        assert [name for name, _ in world.deaths] == ["n1"]
        assert world.restart("n1").disk.read_all("/data/log") == b"written"

    with World(1, deaths_allowed=True) as world:
        world.run(main(world))


def test_clocks_are_off_jump_and_drift_but_time_steps_are_sound() -> None:
    async def main(world: World) -> None:
        fast, slow = world.node("fast"), world.node("slow")
        assert fast.clock.now_ms() == WALL_START_MS
        world.machine("fast").wall.drift(1000)
        world.machine("slow").wall.jump(-5000)
        await asyncio.sleep(1000)
        assert fast.clock.now_ms() - WALL_START_MS == pytest.approx(1_001_000, abs=2)
        assert slow.clock.now_ms() - WALL_START_MS == pytest.approx(995_000, abs=2)
        assert fast.clock.steady() == slow.clock.steady() == pytest.approx(1000)
        world.machine("fast").wall.drift(0)
        before = fast.clock.now_ms()
        await asyncio.sleep(1)
        assert fast.clock.now_ms() - before == pytest.approx(1000, abs=2)
        world.crash("slow")
        assert world.restart("slow").clock.now_ms() - WALL_START_MS == pytest.approx(996_000, abs=2)

    with World(1) as world:
        world.run(main(world))


def test_logs_of_all_lives_of_a_node_are_kept_with_the_machine() -> None:
    async def main(world: World) -> None:
        world.node("n1").log.info("first", port=9092)
        world.kill("n1")
        world.restart("n1").log.warn("second")

    with World(1) as world:
        world.run(main(world))
        assert [event for _, event, _ in world.machine("n1").events] == ["first", "second"]


def test_a_failing_run_shows_its_seed_and_its_last_events() -> None:
    async def main(world: World) -> None:
        world.node("n1").disk.make_folders("/data/orders-0")
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong") as caught, World(4711) as world:
        world.run(main(world))
    assert "seed 4711" in caught.value.__notes__[0] and "orders-0" in caught.value.__notes__[0]


def test_a_healed_world_has_no_faults_left() -> None:
    async def main(world: World) -> None:
        env = world.node("n1")
        world.node("n2")
        faults = world.disk("n1").faults
        faults.fail("*", times=100)
        faults.sync_error_odds = 1.0
        world.net.cut("n1", "n2")
        world.crash_at_disk_op("n1", 1)
        world.pause("n1")
        world.heal()
        await world.on(env, env.clock.sleep(1))
        env.disk.replace("/data/x", b"x")
        assert world.net.reaches("n1", "n2")

    with World(1) as world:
        world.run(main(world))


def test_what_never_had_its_turn_is_no_news(recwarn: pytest.WarningsRecorder) -> None:
    """Else Python says that a coroutine "was never awaited", in the middle of a campaign."""
    with World(seed=1) as world:
        node = world.node("n1")

        async def scenario() -> None:
            world.loop.create_task(world.on(node, asyncio.sleep(1)))

        world.run(scenario())
    assert not recwarn.list
