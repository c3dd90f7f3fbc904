"""The loop: virtual time, and what it says when nothing can go on."""

import asyncio
import time

import pytest
from fencepost.chaos.sim.loop import Deadlock, Livelock, TimeIsUp
from fencepost.chaos.sim.world import World


def test_hours_pass_in_no_time() -> None:
    async def main() -> float:
        for _ in range(1000):
            await asyncio.sleep(10)
        return asyncio.get_running_loop().time()

    start = time.perf_counter()
    with World(1) as world:
        assert world.run(main()) == pytest.approx(10_000)
    assert time.perf_counter() - start < 2


def test_a_deadlock_names_every_task_and_where_it_waits() -> None:
    async def for_a_reply() -> None:
        await asyncio.Event().wait()

    async def main(world: World) -> None:
        env = world.node("n1")
        env.tasks.spawn(for_a_reply(), name="replicator of orders-0")
        await asyncio.get_running_loop().create_future()

    with World(1) as world, pytest.raises(Deadlock) as caught:
        world.run(main(world))
    report = str(caught.value)
    assert "n1: replicator of orders-0 waits in" in report
    assert "test_sim_loop.py" in report and "for_a_reply" in report
    assert "the test: test waits in" in report


def test_a_run_that_never_ends_is_ended_by_its_limit() -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(1)

    with World(1, time_limit_s=100) as world, pytest.raises(TimeIsUp, match="past 100 s"):
        world.run(main())


def test_a_loop_in_which_no_time_passes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.chaos.sim.loop.ROUNDS_AT_ONE_TIME_MAX", 1000)

    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    with World(1) as world, pytest.raises(Livelock):
        world.run(main())


def test_timers_of_one_time_run_in_the_order_they_were_set() -> None:
    async def main() -> list[int]:
        order: list[int] = []
        loop = asyncio.get_running_loop()
        for number in range(50):
            loop.call_at(1.0, order.append, number)
        await asyncio.sleep(2)
        return order

    with World(1) as world:
        assert world.run(main()) == list(range(50))


def test_the_primitives_of_asyncio_work_on_virtual_time() -> None:
    async def main() -> list[str]:
        said: list[str] = []
        queue: asyncio.Queue[int] = asyncio.Queue(2)
        event = asyncio.Event()

        async def produce() -> None:
            for number in range(5):
                await queue.put(number)
                await asyncio.sleep(1)
            event.set()

        async def consume() -> None:
            for _ in range(5):
                number = await queue.get()
                said.append(f"{number} at {asyncio.get_running_loop().time():.0f}")
            await event.wait()

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            group.create_task(consume())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100):
                await asyncio.Event().wait()
        said.append(f"timeout at {asyncio.get_running_loop().time():.0f}")
        async with asyncio.Lock():
            await asyncio.wait_for(asyncio.sleep(1), 2)
        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(1000))
                group.create_task(fails())
        return said

    async def fails() -> None:
        await asyncio.sleep(1)
        raise ValueError

    with World(1) as world:
        assert world.run(main()) == [
            *(f"{number} at {number}" for number in range(5)),
            "timeout at 105",
        ]


def test_threads_and_sockets_are_refused() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"Disk\.run"):
            await asyncio.to_thread(print)
        with pytest.raises(RuntimeError, match=r"Env\.net"):
            await asyncio.open_connection("localhost", 1)

    with World(1) as world:
        world.run(main())


def test_generators_left_open_are_closed_by_the_loop() -> None:
    closed: list[str] = []

    async def numbers() -> object:
        try:
            while True:
                yield 1
        finally:
            closed.append("yes")

    async def main() -> None:
        async for _ in numbers():
            break
        await asyncio.sleep(1)

    with World(1) as world:
        world.run(main())
    assert closed == ["yes"]
