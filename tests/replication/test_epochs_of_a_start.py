"""The list of epochs is cut at a log start that is not durable yet; a crash brings the log back, and not what tells where logs part."""

import errno
from asyncio import sleep

import pytest
from fencepost.cluster.base.ids import BrokerId
from replica_cluster import Cluster, log_bytes, play, values_of
from replica_helpers import batch

B = BrokerId


@pytest.mark.parametrize("how", ["kill", "crash"])
def test_a_log_start_that_a_crash_takes_back_does_not_take_the_epochs(how: str) -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="1")
        await cluster[1].write(batch("a"))  # 0
        await sleep(1.0)
        cluster.world.net.cut("node-1", "node-2")
        cluster.world.net.cut("node-1", "node-3")
        cluster.deaf.add(1)
        for n in range(5):
            cluster[1].append(batch(f"never {n}"))  # 1..5, nobody is told
        await sleep(1.0)
        cluster.kill(1)
        cluster.deaf.discard(1)
        cluster.elect(2, isr=(B(2), B(3)))
        cluster.world.net.heal_all()
        for n in range(10):
            await cluster[2].write(batch(f"w{n}"))  # 1..10, acknowledged
        await sleep(2.0)
        acknowledged = [b"a", *(b"w%d" % n for n in range(10))]
        # The process goes between the two: the epochs are on the disk, the log start is not.
        cluster.kill(3)
        faults = cluster.world.disk("node-2").faults
        faults.fail("append", path="*partition-offsets*", number=errno.ENOSPC, times=100)
        faults.fail("create", path="*partition-offsets*", number=errno.ENOSPC, times=100)
        leader = cluster[2].partition()
        cluster[2].do(leader.delete_records, 8)  # nobody is told that it is done
        await sleep(0.4)
        getattr(cluster, how)(2)
        faults.planned.clear()
        cluster.elect(2, isr=(B(2),))
        await cluster.restart(2)
        await sleep(1.0)
        leader = cluster[2].partition()
        assert leader.log_start_offset == 0 and values_of(leader) == acknowledged
        await cluster.restart(1)
        await cluster.until(lambda: 1 in cluster.state().isr)
        await sleep(1.0)
        other = cluster[1].partition()
        assert values_of(other) == values_of(leader)
        assert log_bytes(other) == log_bytes(leader)

    play(scene)


def test_without_a_fault_of_the_disk_only_an_end_of_power() -> None:
    """The same, by nothing but the moment of the kill."""

    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="1")
        await cluster[1].write(batch("a"))  # 0
        await sleep(1.0)
        cluster.world.net.cut("node-1", "node-2")
        cluster.world.net.cut("node-1", "node-3")
        cluster.deaf.add(1)
        for n in range(5):
            cluster[1].append(batch(f"never {n}"))  # 1..5
        await sleep(1.0)
        cluster.kill(1)
        cluster.deaf.discard(1)
        cluster.elect(2, isr=(B(2), B(3)))
        cluster.world.net.heal_all()
        for n in range(10):
            await cluster[2].write(batch(f"w{n}"))  # 1..10
        await sleep(2.0)
        cluster.kill(3)
        leader = cluster[2].partition()
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
        cluster.crash(2)
        cluster.elect(2, isr=(B(2),))
        await cluster.restart(2)
        await sleep(1.0)
        leader = cluster[2].partition()
        assert leader.log_start_offset == 0
        await cluster.restart(1)
        await cluster.until(lambda: 1 in cluster.state().isr)
        await sleep(1.0)
        cluster.elect(1)
        await sleep(1.0)
        assert values_of(cluster[1].partition())[:11] == [b"a", *(b"w%d" % n for n in range(10))]

    play(scene)


@pytest.mark.parametrize("how", ["kill", "crash"])
def test_nor_where_the_end_is_torn(how: str) -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="1")
        await cluster[1].write(batch("a"))  # 0
        await sleep(1.0)
        cluster.world.net.cut("node-1", "node-2")
        cluster.world.net.cut("node-1", "node-3")
        cluster.deaf.add(1)
        for n in range(5):
            cluster[1].append(batch(f"never {n}"))  # 1..5, nobody is told
        await sleep(1.0)
        cluster.kill(1)
        cluster.deaf.discard(1)
        cluster.elect(2, isr=(B(2), B(3)))
        cluster.world.net.heal_all()
        for n in range(10):
            await cluster[2].write(batch(f"w{n}"))  # 1..10, acknowledged
        await sleep(2.0)
        acknowledged = [b"a", *(b"w%d" % n for n in range(10))]
        cluster.kill(3)
        faults = cluster.world.disk("node-2").faults
        faults.fail("append", path="*partition-offsets*", number=errno.ENOSPC, times=100)
        faults.fail("create", path="*partition-offsets*", number=errno.ENOSPC, times=100)
        leader = cluster[2].partition()
        cluster[2].do(leader.delete_records, 8)
        await sleep(0.4)
        # it goes in the middle of an append
        file = cluster[2].env.disk.open(leader.log.active.path)
        torn = bytearray(file.read(0, 40))
        torn[:8] = leader.log.log_end_offset.to_bytes(8, "big")
        file.append((bytes(torn),))
        if how == "crash":
            file.sync()
        file.close()
        getattr(cluster, how)(2)
        faults.planned.clear()
        cluster.elect(2, isr=(B(2),))
        await cluster.restart(2)
        await sleep(1.0)
        leader = cluster[2].partition()
        assert leader.log_start_offset == 0 and values_of(leader) == acknowledged
        await cluster.restart(1)
        await cluster.until(lambda: 1 in cluster.state().isr)
        await sleep(1.0)
        other = cluster[1].partition()
        assert values_of(other) == values_of(leader)
        assert log_bytes(other) == log_bytes(leader)

    play(scene)


def test_nor_where_the_second_batch_is_torn() -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.create(min_insync_replicas="1")
        await cluster[1].write(batch("a"))  # 0
        await sleep(1.0)
        cluster.world.net.cut("node-1", "node-2")
        cluster.world.net.cut("node-1", "node-3")
        cluster.deaf.add(1)
        for n in range(15):
            cluster[1].append(batch(f"never {n}"))  # 1..15, nobody is told
        await sleep(1.0)
        cluster.kill(1)
        cluster.deaf.discard(1)
        cluster.elect(2, isr=(B(2), B(3)))
        cluster.world.net.heal_all()
        for n in range(10):
            await cluster[2].write(batch(f"w{n}"))  # 1..10, acknowledged
        await sleep(2.0)
        cluster.kill(3)
        leader = cluster[2].partition()
        cluster[2].do(leader.delete_records, 10)
        await sleep(1.0)
        assert leader.log.is_start_durable
        faults = cluster.world.disk("node-2").faults
        faults.fail("append", path="*partition-offsets*", number=errno.ENOSPC, times=100)
        faults.fail("create", path="*partition-offsets*", number=errno.ENOSPC, times=100)
        cluster[2].do(leader.delete_records, 11)  # nobody is told that it is done
        await sleep(0.4)
        # it goes in the middle of an append
        file = cluster[2].env.disk.open(leader.log.active.path)
        torn = bytearray(file.read(0, 40))
        torn[:8] = leader.log.log_end_offset.to_bytes(8, "big")
        file.append((bytes(torn),))
        file.close()
        cluster.kill(2)
        faults.planned.clear()
        cluster.elect(2, isr=(B(2),))
        await cluster.restart(2)
        await sleep(1.0)
        leader = cluster[2].partition()
        assert leader.log_start_offset == 10
        assert values_of(leader) == [b"w9"]
        await cluster.restart(1)
        await cluster.until(lambda: 1 in cluster.state().isr)
        await sleep(1.0)
        other = cluster[1].partition()
        assert values_of(other)[:1] == [b"w9"]

    play(scene)
