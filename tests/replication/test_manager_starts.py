"""What a broker's partitions are after a start: clean, killed, with a damaged log, on a full disk; and how they stop."""

import errno
from uuid import UUID

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.wire.records import control_batch
from fencepost.replication.partition import Appended, Refusal
from replica_helpers import (
    FOLDER,
    ME,
    ORDERS,
    PAYMENTS,
    Metadata,
    Node,
    Restarts,
    batch,
    play,
    said,
    surveyed,
    topic_of,
)

E = ErrorCode

# -- starts and stops --------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_knows_every_record_producer_and_watermark(clean: bool) -> None:
    with World(1) as world:
        start = Restarts(world, Metadata(topic_of("orders"), topic_of("payments")))
        sent = [bytes(batch(str(n), pid=7, sequence=n)) for n in range(8)]

        async def before(node: Node) -> None:
            for each in sent:
                await node.write(bytearray(each))
            node.partition().delete_records(1)
            await node.env.clock.sleep(1)

        async def after(node: Node) -> None:
            partition = node.partition()
            assert node.manager.store.was_clean is clean
            assert (partition.log_start_offset, partition.high_watermark) == (1, 8)
            # Every batch of the window is known, not just the last (which is all that Kafka keeps).
            for number in range(3, 8):
                again = node.produce(bytearray(sent[number]))
                assert isinstance(again, Appended) and again.duplicate
                assert again.first_offset == number
            assert await node.read_values() == [str(n).encode() for n in range(1, 8)]
            await node.write(batch("8", pid=7, sequence=8))

        start(before, stop=clean)
        start(after)


def test_what_was_deleted_stays_so_though_nothing_would_be_synced_for_long() -> None:
    """Under flush.policy=os the log start is told when what is before it is synced, and that is asked for."""
    with World(1) as world:
        start = Restarts(
            world, Metadata(topic_of("orders"), configs={"orders": {"flush.policy": "os"}})
        )

        async def before(node: Node) -> None:
            for n in range(4):
                await node.write(batch(str(n), pid=n, sequence=0))
            assert node.partition().log.recovery_point == 0
            node.partition().delete_records(3)
            await node.env.clock.sleep(0.5)

        async def after(node: Node) -> None:
            assert node.partition().log_start_offset == 3
            assert all(node.partition().log.producers.knows(n) for n in range(4))

        start(before, stop=False)
        start(after)


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_producers_that_can_not_be_read_after_a_start_cost_a_batch_at_most(
    number: int,
) -> None:
    """They are read for the first batch. One that may be read later (too many open files) costs that batch only, and a file that the
    disk can't read is made anew from the log."""
    with World(1) as world:
        start = Restarts(world, Metadata(topic_of("orders")))

        async def before(node: Node) -> None:
            for pid in range(300):  # more than a hint carries: they are in a file of their own
                await node.write(batch("a", pid=pid))

        async def after(node: Node) -> None:
            faults = node.env.machine.disk.faults
            faults.fail("*", path="*.producers", number=number)
            if number == errno.EMFILE:
                refused = node.produce(batch("b", pid=7, sequence=1))
                assert isinstance(refused, Refusal) and refused.error is E.kafka_storage_error
            again = node.produce(batch("a", pid=7))
            assert isinstance(again, Appended) and again.duplicate
            await node.write(batch("b", pid=7, sequence=1))
            assert not node.manager.offline

        start(before, stop=True)
        start(after)


def test_a_start_names_what_may_lack_something_until_the_cluster_knows_it() -> None:
    with World(1) as world:
        metadata = Metadata(topic_of("orders"), configs={"orders": {"flush.policy": "os"}})
        topic_id = metadata.image.topics["orders"].topic_id

        async def first(node: Node) -> list[tuple[UUID, int]] | None:
            await node.manager.start()
            lacking = node.manager.lacking()
            node.manager.lead()
            assert node.manager.lacking() == []
            await node.manager.store.checkpoint()
            await node.write(batch("a"))
            return lacking

        def started() -> list[tuple[UUID, int]] | None:
            env = world.node("a")
            return world.run(world.on(env, first(Node(env, metadata))))

        assert started() is None  # an empty disk: it may be another one than it had
        world.kill("a")
        assert started() == []  # the same boot: the page cache is still there
        world.crash("a")
        assert started() == [(topic_id, 0)]


def test_what_the_first_start_after_an_end_of_power_could_not_open_is_doubted_by_the_next() -> None:
    """1. The power goes. 2. There are too many open files for this log, and the process is killed before it registers.
    3. On the same boot it opens the log: it said that it lacks nothing, and stayed in the ISR.
    """
    with World(1) as world:
        metadata = Metadata(topic_of("orders"), configs={"orders": {"flush.policy": "os"}})
        topic_id = metadata.image.topics["orders"].topic_id

        def started() -> Node:
            env = world.node("a")
            node = Node(env, metadata)
            world.run(world.on(env, node.manager.start()))
            return node

        node = started()

        async def acknowledge() -> None:
            node.manager.lead()
            await node.manager.store.checkpoint()
            await node.write(batch("a"))

        world.run(world.on(node.env, acknowledge()))
        world.crash("a")
        world.restart("a").machine.disk.faults.fail("*", path="*/orders-0*", number=errno.EMFILE)
        assert ORDERS in started().manager.offline
        world.kill("a")
        world.restart("a")
        assert started().manager.lacking() == [(topic_id, 0)]


def test_a_damaged_log_is_offline_and_the_others_serve() -> None:
    with World(1) as world:
        start = Restarts(world, Metadata(topic_of("orders"), topic_of("payments")))

        async def before(node: Node) -> None:
            for value in "abcdef":
                await node.write(batch(value * 100))
                await node.write(batch(value), PAYMENTS)
            await node.env.clock.sleep(1)

        async def after(node: Node) -> None:
            assert node.manager.partition(ORDERS) is E.kafka_storage_error
            assert "orders-0" in node.manager.offline[ORDERS]
            assert await node.read_values(PAYMENTS) == [value.encode() for value in "abcdef"]
            assert len(node.manager.offline) == surveyed(node.manager).replicas == 1

        start(before, stop=False)
        path = f"{FOLDER}/orders-0/{0:020d}.log"
        world.disk("a").flip_bits(path, 20)
        start(after, stop=False)


def test_a_marker_for_a_log_that_is_damaged_is_refused() -> None:
    """What was aborted before is derived from the log, which can't be read."""
    with World(1) as world:
        start = Restarts(world, Metadata(topic_of("orders")))

        def mark(node: Node) -> Appended | Refusal:
            marker = control_batch(
                commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=5
            )
            return node.partition().append_as_leader(
                marker, required_acks=-1, now_ms=5, origin_client=False
            )

        async def before(node: Node) -> None:
            await node.write(batch("a", pid=7, transactional=True))
            assert isinstance(mark(node), Appended)
            await node.write(batch("b", pid=7, sequence=1, transactional=True))

        async def after(node: Node) -> None:
            partition = node.partition()
            node.env.machine.disk.flip_bits(partition.log.active.path, 500)
            refused = mark(node)
            assert isinstance(refused, Refusal) and refused.error is E.kafka_storage_error
            assert partition.closed is None
            two = (ME, BrokerId(2))
            node.metadata.change(node.manager, "orders", replicas=two, isr=two)
            refused = mark(node)
            assert isinstance(refused, Refusal) and refused.error is E.kafka_storage_error
            assert ORDERS in node.manager.offline and partition.closed is E.kafka_storage_error

        start(before)
        world.disk("a").flip_bits(f"{FOLDER}/orders-0/{0:020d}.txnindex", 20)
        start(after, stop=False)


def test_folders_that_nobody_knows_are_named_and_left() -> None:
    with World(1) as world:
        metadata = Metadata(topic_of("orders"))
        start = Restarts(world, metadata)

        async def before(node: Node) -> None:
            await node.write(batch("a"))

        async def after(node: Node) -> None:
            assert node.manager.partitions == {}
            assert node.env.disk.exists(f"{FOLDER}/orders-0")
            [fields] = said(node, "stray_folders")
            assert fields["partitions"] == ["orders-0"]

        start(before)
        metadata.image.topics.clear()
        start(after)


def test_a_stop_syncs_what_was_written_and_takes_no_more() -> None:
    with World(1) as world:
        start = Restarts(world, Metadata(topic_of("orders")))

        async def before(node: Node) -> None:
            node.produce(batch("a"))
            partition = node.partition()
            await node.manager.stop()
            assert partition.log.recovery_point == 1
            refused = partition.append_as_leader(batch("b"), required_acks=1, now_ms=0)
            assert refused.error is E.not_leader_or_follower

        async def after(node: Node) -> None:
            assert await node.read_values() == [b"a"]

        start(before, stop=False)
        start(after)


def test_a_crash_between_the_image_and_the_folder_leaves_nothing_of_a_deleted_topic_readable() -> (
    None
):
    with World(1) as world:
        metadata = Metadata(topic_of("orders"))
        start = Restarts(world, metadata)

        async def before(node: Node) -> None:
            await node.write(batch("a"))
            node.env.machine.disk.faults.fail("rename", path="*orders-0*", number=errno.EIO)
            metadata.delete(node.manager, "orders")

        async def after(node: Node) -> None:
            assert node.manager.partition(ORDERS) is E.unknown_topic_or_partition

        start(before, stop=False)
        start(after)


def test_a_damaged_replica_that_is_moved_away_and_back_is_a_new_one() -> None:
    """Its folder stayed, and was found damaged again: nothing but another disk could mend it."""
    with World(1) as world:
        metadata = Metadata(topic_of("orders"))
        start = Restarts(world, metadata)

        async def before(node: Node) -> None:
            await node.write(batch("a"))
            await node.manager.store.checkpoint()

        async def after(node: Node) -> None:
            manager, here = node.manager, metadata.image.topics["orders"].partitions[0].replicas
            assert "holds no log" in manager.offline[ORDERS]
            there = (BrokerId(2), BrokerId(3))
            metadata.change(manager, "orders", replicas=there, isr=there, leader=there[0])
            assert not manager.offline
            metadata.change(manager, "orders", replicas=(*there, *here))
            assert node.partition().log_end_offset == 0

        start(before, stop=False)
        world.node("a").disk.remove(f"{FOLDER}/orders-0/00000000000000000000.log")
        start(after)


def test_a_stop_in_the_middle_of_a_checkpoint_lets_it_end() -> None:
    """The log has handed its work to the checkpoint: cut off there, nobody would do it."""

    async def scene(node: Node) -> None:
        await node.write(batch("a"))
        node.env.machine.disk.faults.run_s = (5, 5)
        await node.env.clock.sleep(0.3)
        path = f"{FOLDER}/orders-0/leader-epoch-checkpoint"
        await node.manager.stop()
        assert node.env.disk.exists(path)

    play(scene)


# -- a full disk -------------------------------------------------------------------------------------


def test_a_node_starts_on_a_full_disk_and_serves_what_it_can() -> None:
    """It died, and had to be given room by hand before anybody could read from it, or delete something."""

    async def before(node: Node) -> None:
        await node.write(batch("a"))

    async def full(node: Node) -> None:
        assert node.manager.is_disk_full
        assert await node.read_values() == [b"a"]
        disk.capacity = None
        await node.env.clock.sleep(5)
        assert not node.manager.is_disk_full
        await node.write(batch("c"))
        await node.env.clock.sleep(1)

    async def after(node: Node) -> None:
        assert node.manager.store.same_boot  # the checkpoint that failed was tried again
        assert await node.read_values() == [b"a", b"c"]

    with World(5) as world:
        restarts = Restarts(world, Metadata(topic_of("orders")))
        restarts(before, stop=False)
        world.crash("a")
        disk = world.disk("a").files
        disk.capacity = disk.used
        world.restart("a")
        restarts(full, stop=False)
        restarts(after)
