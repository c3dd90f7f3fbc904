"""A truncation that an end of power half undoes."""

from asyncio import sleep

import pytest
from fencepost.cluster.base.ids import BrokerId
from replica_cluster import Cluster, play, values_of
from replica_helpers import batch


@pytest.mark.parametrize("seed", [7, 42, 43])
def test_what_was_cut_does_not_come_back_between_what_was_acknowledged(seed: int) -> None:
    """1. Node 1 has x4, which nobody committed, and is cut back to 4. 2. It copies a4 into that file, rolls, and copies a5 into the
    next one. 3. The power goes while it syncs: the first file comes back as it was before the cut, the second as it is. Its
    last epoch and its end looked right, so it was in sync, led, and had x4 where a4 was acknowledged.
    """

    async def scene(cluster: Cluster) -> None:
        cluster.create(replicas=(1, 2), min_insync_replicas="1")
        acknowledged = [b"a%d" % number for number in range(4)]
        for value in acknowledged:
            await cluster[1].write(batch(value))
        await sleep(1)
        cluster.kill(2)
        cluster[1].append(batch("x4"))
        await sleep(1)
        cluster.kill(1)
        await cluster.restart(2)
        cluster.elect(2, isr=(BrokerId(2),))

        async def write(number: int) -> None:
            await cluster[2].write(batch(f"a{number}"))
            acknowledged.append(b"a%d" % number)

        await write(4)
        faults = cluster.world.restart("node-1").machine.disk.faults
        await cluster.restart(1)
        faults.sync_s = (1.0, 1.0)
        one = cluster[1].partition()
        await cluster.until(lambda: one.log.latest_epoch == 1 and one.log_end_offset == 5)
        cluster[1].do(one.log.roll, 0)
        await write(5)
        await cluster.until(lambda: one.log_end_offset == 6)
        cluster.crash(1)
        for number in range(6, 15):
            await write(number)
        faults.sync_s = (0.0002, 0.003)
        await cluster.restart(1)
        await cluster.until(lambda: 1 in cluster.state().isr)
        cluster.kill(2)
        cluster.elect(1, isr=(BrokerId(1),))
        await sleep(1)
        leader = cluster[1].partition()
        assert values_of(leader, leader.high_watermark) == acknowledged

    play(scene, seed=seed)
