"""Compaction of a log that counts what is not synced: flush.policy `os` and `interval`."""

import asyncio

import pytest
from fencepost.chaos.sim.node import SimEnv
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.ports import Chunk, FileSlice
from replica_helpers import Metadata, Node, batch, topic_of


def read(piece: Chunk) -> bytes:
    assert isinstance(piece, FileSlice)
    return piece.file.read(piece.position, piece.length)


OS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "flush.policy": "os",
    "internal.segment.bytes": "200",
}


@pytest.mark.parametrize("seed", range(6))
def test_a_key_does_not_lose_its_synced_value_to_one_that_the_power_takes(seed: int) -> None:
    """1. A key's value is synced   2. it gets another one, in a segment that is sealed and not synced for a minute   3. a round takes
    the first one out for it   4. the power goes, and with it the second: the key had no value at all. Of a group's positions that is
    one that is set back to nothing, though one was there for days.
    """
    with World(seed) as world:
        metadata = Metadata(topic_of("orders"), configs={"orders": OS})

        async def lives(env: SimEnv) -> None:
            node = await Node(env, metadata).start()
            now_ms = env.clock.now_ms()
            for value in ("one", "other"):
                await node.write(batch(value, key=value.encode(), timestamp=now_ms))
            node.partition().log.roll(now_ms)
            await asyncio.sleep(100)
            log = node.partition().log
            assert log.settled_point == 2
            await node.write(batch("two", key=b"one", timestamp=now_ms))
            log.roll(now_ms)
            await node.write(batch("more", key=b"more", timestamp=now_ms))
            await node.manager.rounds.compact()

        async def is_back(env: SimEnv) -> None:
            node = await Node(env, metadata).start()
            found = node.partition().log.read(0, 10_000, limit=99, min_one=True)
            assert found is not None
            data = b"".join(map(read, found.slices))
            assert b"one" in data, f"the key is gone; the log ends at {found.next_offset}"

        env = world.node("a")
        world.run(world.on(env, lives(env)))
        world.crash("a", torn=False)
        env = world.restart("a")
        world.run(world.on(env, is_back(env)))
