"""Deletions that nobody waits for, one behind the other: who does wait is answered."""

import asyncio
from asyncio import sleep
from typing import Any

import pytest
from fencepost.chaos.sim.world import World
from replica_helpers import Metadata, Restarts, batch, topic_of


@pytest.mark.parametrize("policy", ["ack", "interval", "os"])
def test_a_deletion_is_answered_while_others_come(policy: str) -> None:
    with World(1) as world:
        metadata = Metadata(topic_of("orders"), configs={"orders": {"flush.policy": policy}})
        start = Restarts(world, metadata)

        async def first(node: Any) -> None:
            partition = node.partition()
            for _ in range(3000):
                node.produce(batch("x"))
            await node.write(batch("x"))
            assert partition.delete_records(1) == 1
            world.disk("a").faults.slow_sync_odds = 1.0
            world.disk("a").faults.slow_sync_s = (0.05, 0.1)
            first_one = asyncio.ensure_future(partition.deleted(1))
            for n in range(2, 3000):
                await sleep(0.01)
                partition.delete_records(n)
                if first_one.done():
                    return
            assert first_one.done()

        start(first, stop=False)
