"""Steady clocks that go too fast or too slow."""

import asyncio
import math

from fencepost.chaos.sim.world import World


def test_a_clock_that_goes_too_fast_sleeps_too_short_and_never_goes_back() -> None:
    async def scenario(world: World) -> None:
        fast, right = world.node("fast"), world.node("right")
        await asyncio.sleep(3.0)
        before = fast.clock.steady()
        assert before == right.clock.steady() == 3.0
        world.machine("fast").steady.drift(10_000)  # a hundredth
        assert fast.clock.steady() == before
        await world.on(fast, fast.clock.sleep(1.01))
        assert abs(world.loop.time() - 4.0) < 1e-9
        assert abs(fast.clock.steady() - 4.01) < 1e-9
        assert right.clock.steady() == world.loop.time()
        world.machine("fast").steady.drift(-10_000)
        fired = []
        fast.clock.call_later(0.99, lambda: fired.append(world.loop.time()))
        await asyncio.sleep(1.1)
        assert abs(fired[0] - 5.0) < 1e-9

    with World(1) as world:
        world.run(scenario(world))


def test_who_waits_for_a_hair_has_waited() -> None:
    """A real clock has gone on by the time that anybody looks at it again."""

    async def scenario(world: World) -> None:
        clock = world.node("n").clock
        await asyncio.sleep(0.1)
        world.suspend("n")  # so that its own clock shows less, and that more finely
        await asyncio.sleep(5.0)
        world.resume("n")
        until = math.nextafter(clock.steady(), math.inf)
        over = asyncio.Event()

        def look() -> None:
            if clock.steady() < until:
                clock.call_later(until - clock.steady(), look)
            else:
                over.set()

        look()
        await over.wait()
        until = math.nextafter(clock.steady(), math.inf)
        while clock.steady() < until:
            await clock.sleep(until - clock.steady())
        assert clock.steady() < 0.1 + 1e-8

    with World(1) as world:
        world.run(scenario(world))


def test_a_clock_keeps_its_speed_when_its_node_is_started_again() -> None:
    async def scenario(world: World) -> None:
        world.node("n")
        world.machine("n").steady.drift(1_000)
        await asyncio.sleep(10.0)
        world.kill("n")
        assert abs(world.restart("n").clock.steady() - 10.01) < 1e-9

    with World(1) as world:
        world.run(scenario(world))


def test_the_clock_of_a_suspended_machine_stands_still_and_goes_on_from_there() -> None:
    async def scenario(world: World) -> None:
        one, other = world.node("one"), world.node("other")
        await asyncio.sleep(3.0)
        world.machine("one").steady.drift(10_000)
        world.suspend("one")
        await asyncio.sleep(7.0)
        assert one.clock.steady() == 3.0
        assert other.clock.steady() == 10.0
        assert one.clock.now_ms() == other.clock.now_ms()
        world.suspend("one")  # it is already
        world.machine("one").steady.drift(0)
        assert world.has_slept("one", 0.5) and not world.has_slept("other", 0.5)
        world.resume("one")
        await asyncio.sleep(1.0)
        assert one.clock.steady() == 4.0
        assert one.clock.elapsed() == other.clock.elapsed() == 11.0
        assert not world.has_slept("one", 0.5)

    with World(1) as world:
        world.run(scenario(world))


def test_a_suspended_machine_hears_nothing_and_is_on_when_its_node_was_killed_meanwhile() -> None:
    async def scenario(world: World) -> None:
        world.node("one")
        world.suspend("one")
        assert not world.net.reaches("other", "one")
        world.kill("one")
        assert world.net.reaches("other", "one")
        steady = world.machine("one").steady
        assert steady.now() == 0.0
        await asyncio.sleep(2.0)
        assert steady.now() == 2.0

    with World(1) as world:
        world.run(scenario(world))
