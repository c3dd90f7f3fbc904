"""A partition as a follower: what it takes, and what it refuses."""

import asyncio
import dataclasses
import errno

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.wire.batch import BatchRefused, splice
from fencepost.replication.divergence_machine import Cut
from fencepost.replication.partition import Partition
from replica_helpers import ME, Node, batch, play, topic_of

OTHER = BrokerId(2)
EPOCH = 3


def led_elsewhere(node: Node) -> Partition:
    node.metadata.change(
        node.manager, "orders", leader=OTHER, isr=(ME, OTHER), replicas=(ME, OTHER),
        leader_epoch=EPOCH,
    )  # fmt: skip
    return node.partition()


def sent(offset: int, *values: str, epoch: int = EPOCH, **more: int) -> bytearray:
    """A batch as its leader has it."""
    data = batch(*values, **more)
    splice(data, 0, offset, epoch)
    return data


def test_a_follower_has_the_leaders_offsets_and_epochs() -> None:
    async def scene(node: Node) -> None:
        partition = led_elsewhere(node)
        partition.append_as_follower(sent(0, "a", "b", epoch=1), EPOCH)
        partition.append_as_follower(sent(2, "c") + sent(3, "d"), EPOCH)
        assert partition.log_end_offset == 4
        assert (partition.log.epochs.epochs, partition.log.epochs.starts) == ([1, 3], [0, 2])

    play(scene)


def test_a_follower_takes_nothing_of_another_epoch() -> None:
    """Frames of a leader that was deposed, or of its file after it was truncated and written by its successor."""

    async def scene(node: Node) -> None:
        partition = led_elsewhere(node)
        assert not partition.follows(EPOCH - 1)
        assert partition.follows(EPOCH)
        partition.append_as_follower(sent(0, "a"), EPOCH)
        for wrong in (sent(1, "b", epoch=EPOCH + 1), sent(1, "b", epoch=EPOCH - 1)):
            with pytest.raises(BatchRefused, match="leader epoch"):
                partition.append_as_follower(wrong, EPOCH)
        node.metadata.change(node.manager, "orders", leader=ME)
        assert not partition.follows(EPOCH)
        assert not partition.follows(EPOCH + 1)
        assert partition.log_end_offset == 1

    play(scene)


@pytest.mark.parametrize("what", ["torn", "flipped", "overlapping", "backwards", "nothing"])
def test_what_a_leader_can_not_have_sent_is_refused_and_leaves_nothing(what: str) -> None:
    async def scene(node: Node) -> None:
        partition = led_elsewhere(node)
        partition.append_as_follower(sent(0, "a"), EPOCH)
        good = sent(1, "b")
        wrong = {
            "torn": good + sent(2, "c")[:-1],
            "flipped": good[:-1] + bytes([good[-1] ^ 1]),
            "overlapping": sent(0, "b"),
            "backwards": sent(5, "b") + sent(4, "c"),
            "nothing": bytearray(),
        }[what]
        with pytest.raises(BatchRefused):
            partition.append_as_follower(wrong, EPOCH)
        assert partition.log_end_offset == 1
        partition.append_as_follower(good, EPOCH)

    play(scene)


def test_a_compacted_leader_leaves_gaps() -> None:
    async def scene(node: Node) -> None:
        partition = led_elsewhere(node)
        partition.append_as_follower(sent(0, "a"), EPOCH)
        partition.append_as_follower(sent(7, "b"), EPOCH)
        assert partition.log_end_offset == 8

    play(scene)


def test_a_cut_takes_producers_transactions_and_epochs_back() -> None:
    async def scene(node: Node) -> None:
        partition = led_elsewhere(node)
        partition.append_as_follower(sent(0, "a", epoch=1, pid=7, sequence=0), EPOCH)
        partition.append_as_follower(sent(1, "b", epoch=2, pid=7, sequence=1), EPOCH)
        partition.append_as_follower(sent(2, "c", pid=8, sequence=0, transactional=True), EPOCH)
        partition.follow_leader(1, 0)
        assert partition.log.first_unstable_offset == 2
        partition.cut(Cut(1))
        assert (partition.log_end_offset, partition.high_watermark) == (1, 1)
        assert partition.log.first_unstable_offset is None
        assert partition.log.epochs.epochs == [1]
        known = partition.producers.state_of(7)
        assert known is not None and known.batches[-1].last_sequence == 0
        assert partition.producers.state_of(8) is None

    play(scene)


async def in_two_files(node: Node) -> Partition:
    """Ten records, the last four of which are in another segment; all synced."""
    partition = led_elsewhere(node)
    for number in range(10):
        if number == 6:
            partition.log.roll(0)
        partition.append_as_follower(sent(number, "v", pid=7, sequence=number), EPOCH)
    await node.env.clock.sleep(1)
    return partition


def test_a_cut_that_fails_half_way_takes_its_partition_offline() -> None:
    """The file had been cut, what is told of it had not: the leader would count what is not there."""

    async def scene(node: Node) -> None:
        partition = await in_two_files(node)
        node.env.disk.machine.faults.fail("truncate", path="*.log")
        with pytest.raises(OSError, match="Input/output"):
            partition.cut(Cut(7))
        assert partition.closed is ErrorCode.kafka_storage_error
        assert not partition.follows(EPOCH)
        assert "truncation" in node.manager.offline[partition.topic_partition]

    play(scene)


@pytest.mark.parametrize("cut", [Cut(7), Cut(20, anew=True)])
def test_a_cut_for_which_nothing_can_be_opened_is_made_later(cut: Cut) -> None:
    """It was found out half-way, and the partition was offline until its node was started again."""

    async def scene(node: Node) -> None:
        partition = await in_two_files(node)
        faults = node.env.disk.machine.faults
        if cut.anew:
            partition.log.shared.pool.close(partition.log.active)
            faults.fail("open", path="*.log", number=errno.EMFILE, times=2)
        else:
            faults.fail("read", path="*.producers", number=errno.EMFILE)
        with pytest.raises(OSError, match="open files"):
            partition.cut(cut)
        assert partition.log.failed is None and partition.follows(EPOCH)
        assert partition.log_end_offset == 10
        faults.heal()
        partition.cut(cut)
        assert partition.log_end_offset == cut.offset

    play(scene)


def test_what_a_cut_leaves_is_synced_though_the_sync_under_way_was_of_the_log_before_it() -> None:
    """Its leader waits for it, and writes nothing as long as that is a coordinator that is being loaded."""

    async def scene(node: Node) -> None:
        partition = led_elsewhere(node)
        node.env.machine.disk.faults.sync_s = (1, 1)
        partition.append_as_follower(sent(0, "a", "b") + sent(2, "c"), EPOCH)
        await asyncio.sleep(0.5)
        partition.cut(Cut(2))
        await asyncio.sleep(5)
        assert partition.machine.durable_end == partition.log_end_offset == 2

    play(scene)


def test_a_follower_shows_no_more_than_its_leader_has_committed() -> None:
    async def scene(node: Node) -> None:
        partition = led_elsewhere(node)
        partition.append_as_follower(sent(0, "a", "b"), EPOCH)
        partition.follow_leader(10, 0)
        assert partition.high_watermark == 2
        partition.append_as_follower(sent(2, "c"), EPOCH)
        assert partition.high_watermark == 2
        partition.follow_leader(3, 1)
        assert (partition.high_watermark, partition.log_start_offset) == (3, 1)

    play(scene, topic_of("orders"))


def test_a_log_that_was_emptied_begins_where_it_is_told() -> None:
    async def scene(node: Node) -> None:
        partition = led_elsewhere(node)
        partition.append_as_follower(sent(0, "a"), EPOCH)
        partition.cut(Cut(50, anew=True))
        assert partition.log_start_offset == partition.log_end_offset == 50
        assert partition.high_watermark == 50
        partition.append_as_follower(sent(50, "b"), EPOCH)
        # And where that is inside a batch, it begins where the batch does.
        partition.cut(Cut(101, anew=True))
        partition.append_as_follower(sent(100, "c", "d", "e"), EPOCH)
        partition.follow_leader(103, 101)
        assert (partition.log_start_offset, partition.log_end_offset) == (101, 103)

    play(scene)


def test_a_cut_is_told_as_an_error_if_what_was_committed_goes_with_it() -> None:
    """A new replica that was told where to begin, and then a little further back, has lost nothing."""

    async def scene(node: Node) -> None:
        partition = led_elsewhere(node)
        partition.cut(Cut(32, anew=True))
        partition.cut(Cut(31, anew=True))
        partition.append_as_follower(sent(31, "a") + sent(32, "b"), EPOCH)
        partition.follow_leader(32, 31)
        partition.cut(Cut(32))
        partition.cut(Cut(31))
        levels = [level for level, event, _ in node.env.log.events if event == "truncated"]
        assert levels == ["info", "info", "info", "error"]

    play(scene)


def test_what_is_left_of_batches_that_found_no_room_is_synced() -> None:
    """What was taken back made the sync under way say nothing of what came before, and nobody asked for the next."""

    async def scene(node: Node) -> None:
        partition = led_elsewhere(node)
        log, faults = partition.log, node.env.machine.disk.faults
        log.config = dataclasses.replace(log.config, segment_bytes=1000)
        frames = [sent(at, "v" * 300) for at in range(9)]
        faults.sync_s = (1, 1)
        partition.append_as_follower(frames[0], EPOCH)
        await asyncio.sleep(0.5)
        faults.fail("create", path="*.log", number=errno.ENOSPC)
        with pytest.raises(OSError, match="No space"):
            partition.append_as_follower(bytearray().join(frames[1:]), EPOCH)
        assert log.log_end_offset == 1
        await asyncio.sleep(5)
        assert partition.machine.durable_end == 1

    play(scene)
