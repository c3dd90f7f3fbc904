"""The list of epochs is cut at a log start that is not durable yet; a crash brings the log back, and not what tells where logs part."""

import errno
from asyncio import sleep

import pytest
from fencepost.cluster.base.ids import BrokerId
from fencepost.replication.partition import Partition
from parted import leave_behind
from replica_cluster import Cluster, log_bytes, play, values_of
from replica_helpers import batch

ACKNOWLEDGED = [b"a", *(b"w%d" % n for n in range(10))]


async def acknowledged_on_two_alone(cluster: Cluster, left_behind: int = 5) -> Partition:
    """Node 1 has `left_behind` records of its own, where node 2 has those that were acknowledged; node 3 is down."""
    await leave_behind(cluster, batch("a"), (batch(f"never {n}") for n in range(left_behind)))
    for n in range(10):
        await cluster[2].write(batch(f"w{n}"))  # 1..10
    await sleep(2.0)
    cluster.kill(3)
    return cluster[2].partition()


def no_room_for_offsets(cluster: Cluster) -> None:
    """The process goes between the two: the epochs are on the disk, the log start is not."""
    faults = cluster.world.disk("node-2").faults
    faults.fail("append", path="*partition-offsets*", number=errno.ENOSPC, times=100)
    faults.fail("create", path="*partition-offsets*", number=errno.ENOSPC, times=100)


def half_a_batch(cluster: Cluster, leader: Partition, *, synced: bool) -> None:
    """It goes in the middle of an append."""
    file = cluster[2].env.disk.open(leader.log.active.path)
    torn = bytearray(file.read(0, 40))
    torn[:8] = leader.log.log_end_offset.to_bytes(8, "big")
    file.append((bytes(torn),))
    if synced:
        file.sync()
    file.close()


async def leader_comes_back(cluster: Cluster, how: str) -> Partition:
    getattr(cluster, how)(2)
    cluster.world.disk("node-2").faults.planned.clear()
    cluster.elect(2, isr=(BrokerId(2),))
    await cluster.restart(2)
    await sleep(1.0)
    return cluster[2].partition()


async def former_leader_joins(cluster: Cluster) -> Partition:
    await cluster.restart(1)
    await cluster.until(lambda: 1 in cluster.state().isr)
    await sleep(1.0)
    return cluster[1].partition()


@pytest.mark.parametrize("how", ["kill", "crash"])
@pytest.mark.parametrize("is_torn", [False, True])
def test_a_log_start_that_a_crash_takes_back_does_not_take_the_epochs(
    how: str, is_torn: bool
) -> None:
    async def scene(cluster: Cluster) -> None:
        leader = await acknowledged_on_two_alone(cluster)
        no_room_for_offsets(cluster)
        cluster[2].do(leader.delete_records, 8)  # nobody is told that it is done
        await sleep(0.4)
        if is_torn:
            half_a_batch(cluster, leader, synced=how == "crash")
        leader = await leader_comes_back(cluster, how)
        assert leader.log_start_offset == 0 and values_of(leader) == ACKNOWLEDGED
        other = await former_leader_joins(cluster)
        assert values_of(other) == values_of(leader)
        assert log_bytes(other) == log_bytes(leader)

    play(scene)


def test_without_a_fault_of_the_disk_only_an_end_of_power() -> None:
    """The same, by nothing but the moment of the kill."""

    async def scene(cluster: Cluster) -> None:
        leader = await acknowledged_on_two_alone(cluster)
        disk = cluster[2].env.disk
        path = f"{leader.log.folder}/leader-epoch-checkpoint"
        before = disk.read_all(path)
        cluster[2].do(leader.delete_records, 8)
        for _ in range(100000):
            if disk.read_all(path) != before:
                break
            await sleep(0.0001)
        else:
            raise AssertionError("not seen")
        leader = await leader_comes_back(cluster, "crash")
        assert leader.log_start_offset == 0
        await former_leader_joins(cluster)
        cluster.elect(1)
        await sleep(1.0)
        assert values_of(cluster[1].partition())[:11] == ACKNOWLEDGED

    play(scene)


def test_nor_where_the_second_batch_is_torn() -> None:
    async def scene(cluster: Cluster) -> None:
        leader = await acknowledged_on_two_alone(cluster, left_behind=15)
        cluster[2].do(leader.delete_records, 10)
        await sleep(1.0)
        assert leader.log.is_start_durable
        no_room_for_offsets(cluster)
        cluster[2].do(leader.delete_records, 11)  # nobody is told that it is done
        await sleep(0.4)
        half_a_batch(cluster, leader, synced=False)
        leader = await leader_comes_back(cluster, "kill")
        assert leader.log_start_offset == 10
        assert values_of(leader) == [b"w9"]
        other = await former_leader_joins(cluster)
        assert values_of(other)[:1] == [b"w9"]

    play(scene)
