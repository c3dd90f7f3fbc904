"""One partition whose disk is full or fails: what is refused, what is served, who is told."""

import errno

import pytest
from fencepost.cluster.base.errors import DISK_FULL_ERRNOS, ErrorCode
from replica_helpers import ORDERS, Node, batch, error_of, play

E = ErrorCode


@pytest.mark.parametrize("number", sorted(DISK_FULL_ERRNOS))
def test_a_full_disk_refuses_writes_serves_reads_and_recovers_by_itself(number: int) -> None:
    async def scene(node: Node) -> None:
        await node.write(batch("a", pid=7))
        faults = node.env.machine.disk.faults
        faults.fail("append", path="*.log", number=number, times=2)
        for _ in range(2):
            refused = node.produce(batch("b", pid=7, sequence=1))
            assert error_of(refused) is E.kafka_storage_error
        assert node.manager.is_disk_full
        assert await node.read_values() == [b"a"]
        await node.write(batch("b", pid=7, sequence=1))
        assert not node.manager.is_disk_full
        assert await node.read_values() == [b"a", b"b"]

    play(scene)


def test_a_batch_refused_for_want_of_space_is_not_overtaken() -> None:
    """A new producer with two batches in flight, and space comes back in between."""

    async def scene(node: Node) -> None:
        node.env.machine.disk.faults.fail("append", path="*.log", number=errno.ENOSPC)
        assert error_of(node.produce(batch("a", pid=7))) is E.kafka_storage_error
        second = batch("b", pid=7, sequence=1)
        assert error_of(node.produce(bytearray(second))) is E.kafka_storage_error
        await node.write(batch("a", pid=7))
        await node.write(second)
        assert await node.read_values() == [b"a", b"b"]

    play(scene)


def test_a_failed_write_ends_writing_and_not_reading() -> None:
    async def scene(node: Node) -> None:
        await node.write(batch("a"))
        node.env.machine.disk.faults.fail("append", path="*.log")
        for _ in range(2):
            assert error_of(node.produce(batch("b"))) is E.kafka_storage_error
        assert await node.read_values() == [b"a"]
        assert "orders-0" in str(node.manager.offline)

    play(scene)


def test_a_failed_sync_takes_the_partition_offline_and_tells_who_waits() -> None:
    """After a failed fsync nobody knows what the disk has (fsyncgate): a second one would succeed and lie."""

    async def scene(node: Node) -> None:
        partition = node.partition()
        node.env.machine.disk.faults.fail("sync", path="*.log")
        node.produce(batch("a"))
        assert await partition.committed(0) is E.kafka_storage_error
        assert node.manager.partition(ORDERS) is E.kafka_storage_error
        assert error_of(partition.append_as_leader(batch("b"), required_acks=-1, now_ms=0)) is (
            E.kafka_storage_error
        )
        assert len(node.manager.offline) == 1

    play(scene)
