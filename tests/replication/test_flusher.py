"""Group commit: who is synced with whom, and when they hear of it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from fencepost.chaos.sim.node import SimEnv
from fencepost.chaos.sim.world import World
from fencepost.replication.flusher import LATER_MAX, Flushable, Flusher
from fencepost.replication.metrics import Counters


class Written:
    """A partition that notes what it hears."""

    def __init__(self, name: str, heard: list[str]) -> None:
        self.name = name
        self.heard = heard

    def on_synced(self) -> None:
        self.heard.append(self.name)

    def on_sync_failed(self, error: OSError) -> None:
        self.heard.append(f"{self.name} failed")


class Bench:
    def __init__(self, env: SimEnv) -> None:
        self.env = env
        self.counters = Counters()
        self.groups: list[str] = []
        self.heard: list[str] = []
        self.error: OSError | None = None
        self.flusher = Flusher(env.clock, self.sync, self.counters)
        self.task = env.tasks.spawn(self.flusher.run(), name="flusher")

    def written(self, name: str) -> Written:
        return Written(name, self.heard)

    async def sync(self, group: Sequence[Flushable]) -> None:
        self.groups.append("".join(each.name for each in group if isinstance(each, Written)))
        await asyncio.sleep(0.01)
        if self.error is not None:
            raise self.error


def run(scene: Callable[[Bench], Awaitable[None]]) -> None:
    with World(1) as world:
        env = world.node("a")

        async def main() -> None:
            bench = Bench(env)
            await scene(bench)
            bench.flusher.close()
            await bench.task

        world.run(world.on(env, main()))


def test_all_that_was_written_in_a_turn_is_synced_at_once() -> None:
    async def scene(bench: Bench) -> None:
        for name in "abc":
            bench.flusher.soon(bench.written(name))
        await asyncio.sleep(0.005)
        assert bench.heard == []
        await asyncio.sleep(0.01)
        assert (bench.groups, bench.heard) == (["abc"], ["a", "b", "c"])

    run(scene)


def test_what_is_written_during_a_sync_waits_for_the_next() -> None:
    async def scene(bench: Bench) -> None:
        one = bench.written("a")
        bench.flusher.soon(one)
        await asyncio.sleep(0.005)
        bench.flusher.soon(one)
        bench.flusher.soon(bench.written("b"))
        await asyncio.sleep(0.006)
        assert bench.heard == ["a"]
        await asyncio.sleep(0.01)
        assert (bench.groups, bench.heard) == (["a", "ab"], ["a", "a", "b"])
        assert (bench.counters.syncs, bench.counters.synced_partitions) == (2, 3)

    run(scene)


def test_a_failed_sync_is_told_to_all_who_were_in_it() -> None:
    async def scene(bench: Bench) -> None:
        bench.error = OSError(5, "broken")
        bench.flusher.soon(bench.written("a"))
        bench.flusher.soon(bench.written("b"))
        await asyncio.sleep(0.02)
        bench.error = None
        bench.flusher.soon(bench.written("c"))
        await asyncio.sleep(0.02)
        assert bench.heard == ["a failed", "b failed", "c"]

    run(scene)


def test_those_who_have_time_wait_on_one_timer() -> None:
    async def scene(bench: Bench) -> None:
        flusher = bench.flusher
        slow, fast = bench.written("s"), bench.written("f")
        flusher.later(slow, 60_000)
        flusher.later(fast, 1_000)
        flusher.later(fast, 1_000)
        await asyncio.sleep(0.9)
        assert bench.groups == []
        await asyncio.sleep(0.2)
        assert bench.heard == ["f"]
        await asyncio.sleep(60)
        assert bench.heard == ["f", "s"]

    run(scene)


def test_one_who_is_synced_earlier_is_not_synced_again_later() -> None:
    async def scene(bench: Bench) -> None:
        one = bench.written("a")
        bench.flusher.later(one, 1_000)
        bench.flusher.soon(one)
        await asyncio.sleep(5)
        assert bench.groups == ["a"]

    run(scene)


def test_only_so_many_have_time() -> None:
    """Each keeps its file open: ten thousand of them would take all descriptors."""

    async def scene(bench: Bench) -> None:
        for number in range(LATER_MAX + 2):
            bench.flusher.later(bench.written(f"{number} "), 60_000)
        await asyncio.sleep(1)
        assert bench.heard == ["0 ", "1 "]

    run(scene)


def test_one_that_was_closed_is_forgotten() -> None:
    async def scene(bench: Bench) -> None:
        one = bench.written("a")
        bench.flusher.later(one, 1_000)
        bench.flusher.soon(one)
        bench.flusher.forget(one)
        await asyncio.sleep(5)
        assert bench.groups == []

    run(scene)


def test_closing_syncs_what_waits() -> None:
    async def scene(bench: Bench) -> None:
        bench.flusher.soon(bench.written("a"))
        bench.flusher.close()
        await bench.task
        assert bench.heard == ["a"]

    run(scene)
