"""What a broker's partitions acknowledge when `flush.policy` changes, or a sync fails."""

import errno

from fencepost.cluster.base.errors import ErrorCode
from fencepost.replication.log.checkpoint import Kind
from fencepost.replication.partition import Appended
from replica_helpers import ORDERS, Node, batch, play


def test_that_syncs_count_no_more_is_on_the_disk_before_what_was_not_synced_is_committed() -> None:
    """1. A write waits for its sync. 2. `flush.policy` becomes `os`: it is committed. 3. An end of power took it before it
    was written down that such a log may lack something, and the node came back into the ISR.
    """

    async def scene(node: Node) -> None:
        known: list[bool] = []
        offsets = node.manager.store.offsets
        node.manager.lead()  # the cluster knows that the disk was empty
        await node.manager.store.checkpoint()
        assert offsets.get(Kind.DOUBT, ORDERS) is None

        def told(_outcome: ErrorCode) -> None:
            is_doubted = offsets.get(Kind.DOUBT, ORDERS) is not None
            known.append(is_doubted and offsets.is_durable(Kind.DOUBT, ORDERS))

        done = node.produce(batch("a"))
        assert isinstance(done, Appended)
        node.partition().when_acknowledged(done.last_offset, -1, told)
        node.metadata.configure(node.manager, "orders", flush_policy="os")
        assert known == [True]

    play(scene)


def test_a_log_that_fails_in_its_first_sync_under_ack_may_lack_what_it_acknowledged_before() -> (
    None
):
    """By `flush.policy=os`, and nothing of it was synced: it stayed eligible to lead."""

    async def scene(node: Node) -> None:
        node.manager.lead()
        await node.write(batch("a"))
        assert node.partition().log.recovery_point == 0
        node.env.machine.disk.faults.fail("sync", path="*.log")
        node.metadata.configure(node.manager, "orders")
        await node.env.clock.sleep(1)
        assert [may_lack for _, _, may_lack in node.manager.failures(untold=False)] == [True]

    play(scene, configs={"orders": {"flush.policy": "os"}})


def test_a_log_that_was_always_synced_first_lacks_nothing_when_a_sync_fails() -> None:
    async def scene(node: Node) -> None:
        node.manager.lead()
        node.env.machine.disk.faults.fail("sync", path="*.log")
        assert isinstance(node.produce(batch("a")), Appended)
        await node.env.clock.sleep(1)
        assert [may_lack for _, _, may_lack in node.manager.failures(untold=False)] == [False]

    play(scene)


def test_what_could_not_be_synced_for_want_of_descriptors_is_acknowledged_when_there_are_some() -> (
    None
):
    """Without another write to it."""

    async def scene(node: Node) -> None:
        node.manager.lead()
        wrong = node.env.machine.disk.faults
        wrong.fail("sync_folder", number=errno.EMFILE, times=1_000_000)
        assert isinstance(node.produce(batch("a")), Appended)
        await node.env.clock.sleep(2)
        assert (node.partition().high_watermark, node.partition().closed) == (0, None)
        wrong.planned.clear()
        await node.env.clock.sleep(1)
        assert node.partition().high_watermark == 1

    play(scene)
