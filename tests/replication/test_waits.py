"""Who waits is woken by what it waits for, in order, and by nothing else."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode
from fencepost.replication.waits import CLEAN_AT, FetchWait, OffsetWaits

NONE = ErrorCode.none


def run(work: Coroutine[Any, Any, None]) -> None:
    with World(1) as world:
        world.run(work)


class Shelf:
    """A partition that holds a number of bytes."""

    def __init__(self, size: int | None = 0) -> None:
        self.size = size
        self.waits: list[FetchWait] = []

    def readable_bytes(self, offset: int, max_bytes: int, isolation: int) -> int | None:
        return None if self.size is None else min(self.size - offset, max_bytes)

    def when_readable(self, wait: FetchWait) -> None:
        self.waits.append(wait)

    def forget(self, wait: FetchWait) -> None:
        self.waits.remove(wait)

    def becomes(self, size: int | None) -> None:
        self.size = size
        for wait in list(self.waits):
            wait.on_change(self)


def test_waits_end_in_the_order_of_their_offsets() -> None:
    async def main() -> None:
        waits = OffsetWaits()
        done: list[int] = []

        async def one(offset: int) -> None:
            assert await waits.wait(offset) is NONE
            done.append(offset)

        async with asyncio.TaskGroup() as group:
            for offset in (30, 10, 20):
                group.create_task(one(offset))
            await asyncio.sleep(0)
            waits.release(20, NONE)  # 20 itself is not below 20
            await asyncio.sleep(0.1)
            assert done == [10]
            waits.release(31, NONE)
        assert done == [10, 20, 30]

    run(main())


def test_a_lost_leadership_ends_all_waits_with_its_error() -> None:
    async def main() -> None:
        waits = OffsetWaits()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(waits.wait(offset)) for offset in (1, 2, 3)]
            await asyncio.sleep(0)
            waits.release_all(ErrorCode.not_leader_or_follower)
        assert {task.result() for task in tasks} == {ErrorCode.not_leader_or_follower}
        assert len(waits) == 0

    run(main())


def test_waits_that_were_given_up_do_not_pile_up() -> None:
    """Nothing is committed for an hour, and every client comes again each half minute."""

    async def main() -> None:
        waits = OffsetWaits()
        for _ in range(CLEAN_AT * 10):
            try:
                async with asyncio.timeout(1):
                    await waits.wait(5)
            except TimeoutError:
                pass
        assert len(waits) <= CLEAN_AT * 2

    run(main())


def test_a_parked_fetch_sleeps_through_everything_but_its_bytes() -> None:
    async def main() -> None:
        one, two = Shelf(10), Shelf(0)
        with FetchWait(100) as wait:
            wait.watch(one, 0, 60, 0, 10)
            wait.watch(two, 0, 1000, 0, 0)
            one.becomes(500)  # but this fetch takes 60 of it at most
            assert not await wait.until(1)
            two.becomes(39)
            assert not await wait.until(1)
            two.becomes(40)
            assert await wait.until(1)
        assert one.waits == two.waits == []

    run(main())


def test_a_fetch_is_woken_at_once_by_an_error() -> None:
    async def main() -> None:
        shelf = Shelf(0)
        with FetchWait(1_000_000) as wait:
            wait.watch(shelf, 0, 10, 0, 0)
            shelf.becomes(None)
            assert await wait.until(1)

    run(main())


def test_a_fetch_that_waits_in_vain_takes_just_its_time() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with FetchWait(1) as wait:
            wait.watch(Shelf(), 0, 10, 0, 0)
            assert not await wait.until(0.5)
        assert 0.5 <= loop.time() < 0.6

    run(main())


def test_less_on_one_partition_counts_against_more_on_another() -> None:
    """Truncation or a log start that moved may take away what was counted before."""

    async def main() -> None:
        one, two = Shelf(0), Shelf(0)
        with FetchWait(100) as wait:
            wait.watch(one, 0, 1000, 0, 0)
            wait.watch(two, 0, 1000, 0, 0)
            one.becomes(60)
            one.becomes(20)
            two.becomes(60)
            assert not await wait.until(0.1)
            two.becomes(80)
            assert await wait.until(0.1)

    run(main())
