"""A log that fails where no request of its own would tell: in a checkpoint, or in a write that seems refused for want of room."""

import errno

import pytest
from fencepost.cluster.base.errors import ErrorCode
from replica_helpers import ORDERS, Node, batch, error_of, play


def test_a_log_that_fails_in_a_checkpoint_goes_offline_so_that_another_replica_leads() -> None:
    """It stayed the leader, named to nobody, and refused every write until somebody started the node again."""

    async def scene(node: Node) -> None:
        await node.write(batch("a"))
        partition = node.partition()
        partition.log.roll(node.env.clock.now_ms())
        faults = node.env.machine.disk.faults
        faults.fail("sync_folder", path="*/orders-0")
        await node.manager.rounds.checkpoint()
        assert partition.log.failed is not None
        await node.env.clock.sleep(0.01)
        refused = partition.append_as_leader(batch("b"), required_acks=-1, now_ms=0)
        assert error_of(refused) is ErrorCode.kafka_storage_error
        assert ORDERS in node.manager.offline

    play(scene)


def test_a_log_that_fails_for_want_of_room_goes_offline_like_any_that_failed() -> None:
    """It was taken for one that waits for room, though nothing is ever written to it again."""

    async def scene(node: Node) -> None:
        await node.write(batch("a"))
        await node.write(batch("b"))
        partition = node.partition()
        partition.log.truncate_to(1)
        faults = node.env.machine.disk.faults
        faults.fail("sync", path="*.log", number=errno.ENOSPC)
        assert error_of(node.produce(batch("c"))) is ErrorCode.kafka_storage_error
        assert partition.log.failed is not None
        await node.env.clock.sleep(0.01)
        assert ORDERS in node.manager.offline

    play(scene)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EIO])
def test_a_log_whose_folder_can_not_be_made_goes_offline(number: int) -> None:
    """On a file system that went read-only the first write of a partition failed before anything of its log did, so it led on."""

    async def scene(node: Node) -> None:
        faults = node.env.machine.disk.faults
        faults.fail("create", path="*/orders-0", number=number, times=1_000)
        for _ in range(2):
            assert error_of(node.produce(batch("a"))) is ErrorCode.kafka_storage_error
        await node.env.clock.sleep(0.01)
        assert ORDERS in node.manager.offline

    play(scene)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_a_log_whose_folder_can_not_be_made_yet_is_written_later(number: int) -> None:
    async def scene(node: Node) -> None:
        node.env.machine.disk.faults.fail("create", path="*/orders-0", number=number)
        assert error_of(node.produce(batch("a"))) is ErrorCode.kafka_storage_error
        await node.write(batch("a"))
        assert await node.read_values() == [b"a"]

    play(scene)
