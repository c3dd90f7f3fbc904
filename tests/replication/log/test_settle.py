"""What stands beside the log, when a checkpoint fails or comes between."""

import errno

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.ids import TopicPartition
from fencepost.replication.log.handed_on import below, take
from log_helpers import START_MS, TOPIC_ID, Node, end_txn, produce, run


def test_aborted_transactions_whose_sync_failed_are_written_anew() -> None:
    """A second sync of the same bytes would succeed without having written anything (fsyncgate)."""

    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=1000)
        log = await node.start()
        produce(log, 3, transactional=True, producer_id=1, producer_epoch=0)
        end_txn(log, 1, commit=False)
        log.roll(START_MS)
        produce(log, 3)
        await node.sync()
        world.disk("n1").faults.fail("sync", path="*.txnindex")
        await node.store.checkpoint()
        assert log.settled_point == 0
        await node.store.checkpoint()
        assert log.settled_point == 7
        log = await node.restart("crash")
        assert [txn.first_offset for txn in log.aborted_between(0, 7)] == [0]

    for seed in range(10):
        run(scenario, seed)


def test_aborted_transactions_that_are_durable_stay_so_when_the_disk_is_full() -> None:
    """Below the checkpoint nobody would derive them again: after a kill their records were shown as committed."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        for producer_id, first in ((1, 0), (2, 4)):
            produce(log, 3, transactional=True, producer_id=producer_id, producer_epoch=0)
            end_txn(log, producer_id, commit=False)
            if not first:
                await node.settle()
        await node.sync()
        path = "*.txnindex"
        world.disk("n1").faults.fail("append", path=path, number=errno.ENOSPC, times=3)
        for _ in range(3):
            await node.store.checkpoint()
        assert log.settled_point == 4
        log = await node.restart("kill")
        assert [txn.first_offset for txn in log.aborted_between(0, 8)] == [0, 4]

    for seed in range(10):
        run(scenario, seed)


def test_a_checkpoint_that_fails_gives_back_no_segment_that_was_truncated_meanwhile() -> None:
    """Its aborted transactions were written under the name of the segment that has its place now."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 3)
        log.roll(START_MS)
        produce(log, 3, transactional=True, producer_id=1, producer_epoch=0)
        end_txn(log, 1, commit=False)  # in the segment that begins at 3
        await node.sync()
        world.disk("n1").faults.fail("sync", path="*.index")
        checkpoint = world.loop.create_task(node.store.checkpoint())
        await node.env.clock.sleep(0)
        log.truncate_to(2)
        produce(log)
        await checkpoint
        log.roll(START_MS)
        produce(log, 10, transactional=True, producer_id=1, producer_epoch=1)
        end_txn(log, 1, commit=True, epoch=1)
        await node.settle()
        await node.settle()
        assert log.settled_point == log.log_end_offset
        for _ in range(2):
            log = await node.restart("kill")
            assert log.aborted_between(0, 100) == []
            log.roll(START_MS)
            produce(log)
            await node.settle()

    for seed in range(10):
        run(scenario, seed)


def test_a_log_that_failed_while_all_of_it_was_dropped_does_not_end_the_checkpoint_of_all() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 3)
        await node.sync()
        world.disk("n1").faults.fail("rename", path="*.log")
        with pytest.raises(OSError, match="Input/output"):
            log.truncate_fully_and_start_at(7)
        assert log.failed is not None
        await node.store.checkpoint()

    run(scenario)


def test_what_one_log_hands_to_a_checkpoint_is_not_lost_where_another_one_can_not_begin() -> None:
    """Its leader epochs were never written, and the next checkpoint said that all was settled."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        other = node.store.open(TopicPartition("payments", 0), TOPIC_ID, node.config)
        produce(other)
        other.roll(START_MS)
        produce(other, leader_epoch=1)
        produce(log)
        await node.store.sync([other, log])
        log.bytes_since_snapshot = 1 << 62
        faults = world.disk("n1").faults
        for kind in ("create", "remove"):
            faults.fail(kind, path="*/orders-0/*.producers")
        assert list(node.store.shared.unsettled) == [other, log]
        await node.store.checkpoint()
        assert not other.epochs_unsaved and not other.rolled
        assert node.env.disk.exists(f"{other.folder}/leader-epoch-checkpoint")
        assert (other.settled_point, log.settled_point) == (2, 0)
        await node.store.checkpoint()
        assert log.settled_point == 1

    run(scenario)


def test_a_log_that_began_anew_and_knows_who_wrote_before_has_failed() -> None:
    """It went on: whoever was known of the other history was answered by that, and what he sent then never written."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, producer_id=1, producer_epoch=0, base_sequence=0)
        log.roll(START_MS)
        produce(log)
        await node.settle()
        world.disk("n1").faults.fail("remove", path="*.producers")
        with pytest.raises(OSError, match="Input/output"):
            log.truncate_fully_and_start_at(7)
        assert log.failed is not None
        log = await node.restart("kill")
        assert (log.log_end_offset, log.producers.knows(1)) == (7, False)

    run(scenario)


def test_a_log_that_began_anew_has_no_leader_epochs_of_the_history_before() -> None:
    """Its file was read again by a start behind which nothing had been synced yet but where the log begins."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 3, leader_epoch=5, producer_id=1, producer_epoch=0, base_sequence=0)
        await node.settle()
        assert node.env.disk.exists(f"{log.folder}/leader-epoch-checkpoint")
        handed = below(log.producers.copied(), 7)
        log.truncate_fully_and_start_at(7)
        take(log, handed)
        log = await node.restart("crash")
        assert (log.log_start_offset, log.log_end_offset) == (7, 7)
        assert log.producers.knows(1)
        assert (log.epochs.latest, log.latest_epoch) == (-1, -1)

    run(scenario)


def test_a_folder_whose_sync_failed_in_a_checkpoint_is_not_believed_by_the_next() -> None:
    """The name of a file of aborted transactions may be lost for good: a second sync that succeeds proves nothing, and a start
    that takes the recovery point for settled would show what was aborted."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 60)  # two segments: indexes of the first are to be made durable
        await node.sync()
        world.disk("n1").faults.fail("sync_folder", path=node.path("").rstrip("/"))
        await node.store.checkpoint()
        settled = log.settled_point
        assert settled < log.recovery_point
        await node.store.checkpoint()
        assert log.settled_point == settled
        assert log.failed is not None
        with pytest.raises(OSError, match="had a write or a sync fail"):
            produce(log)

    run(scenario)


def test_a_folder_whose_sync_failed_with_a_groups_is_not_believed_by_a_checkpoint() -> None:
    """The same by the other way: what is made in the folder between two syncs has its name from either."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 60)
        await node.sync()
        await node.store.checkpoint()
        produce(log, 5)
        await node.sync()  # durable, and not settled yet
        settled = log.settled_point
        assert settled < log.recovery_point
        produce(log, 60)  # into a file that is new in the folder
        world.disk("n1").faults.fail("sync_folder", path=node.path("").rstrip("/"))
        with pytest.raises(OSError, match="Input/output error"):
            await node.sync()
        for _ in range(2):
            await node.store.checkpoint()
            assert log.settled_point == settled

    run(scenario)


def test_a_folder_that_could_not_be_opened_is_synced_by_the_next_checkpoint() -> None:
    """With no descriptor left nothing was synced, and nothing has failed."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 60)
        await node.sync()
        folder = node.path("").rstrip("/")
        world.disk("n1").faults.fail("sync_folder", path=folder, number=errno.EMFILE)
        await node.store.checkpoint()
        assert (log.failed, log.settled_point) == (None, 0)
        await node.store.checkpoint()
        assert log.settled_point == log.recovery_point == 60

    run(scenario)
