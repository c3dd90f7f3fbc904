"""Appends for which the disk has no room: nothing is left behind of them, or the log has failed."""

import errno

import pytest
from fencepost.chaos.sim.world import World
from log_helpers import START_MS, Node, append, batch_at, end_txn, produce, read_all, run


def test_an_append_that_finds_the_disk_full_leaves_nothing_behind() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=1000)
        log = await node.start()
        produce(log, 3, producer_id=1, producer_epoch=0, base_sequence=-1)
        await node.settle()
        data, state = read_all(log), log.producers.states()
        files = world.disk("n1").files
        files.capacity = files.used + 50
        for size in (20, 3000):  # the second needs a new segment
            with pytest.raises(OSError, match="No space") as caught:
                produce(log, size=size, producer_id=2, producer_epoch=0, base_sequence=0)
            assert caught.value.errno == errno.ENOSPC
            assert (read_all(log), log.log_end_offset) == (data, 3)
            assert log.producers.states() == state
        files.capacity = None
        produce(log, 2, size=300)  # writing resumes by itself
        await node.sync()
        log = await node.restart("crash")
        assert log.log_end_offset == 5
        assert read_all(log).startswith(data)

    run(scenario)


def test_a_log_whose_half_batch_can_not_be_cut_off_again_has_failed() -> None:
    """Its file takes no more, and nobody may read on in it either: that is no disk with too little room."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 3)
        await node.settle()
        faults = world.disk("n1").faults
        faults.fail("append", path="*.log", number=errno.ENOSPC)
        faults.fail("truncate", path="*.log", number=errno.EIO)
        with pytest.raises(OSError, match="Input/output") as caught:
            produce(log)
        assert (caught.value.errno, log.failed) == (errno.EIO, caught.value)
        log = await node.restart("kill")
        assert log.log_end_offset == 3
        produce(log)

    run(scenario)


def test_many_batches_at_once_are_written_all_or_none() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=400)
        log = await node.start()
        produce(log, 1)
        files = world.disk("n1").files
        files.capacity = files.used + 800
        many = b"".join(batch_at(offset) for offset in range(1, 16))
        with pytest.raises(OSError, match="No space"):
            append(log, many)
        assert log.log_end_offset == 1 and log.failed is None
        files.capacity = None
        append(log, many)
        assert log.log_end_offset == 16
        assert read_all(log) == batch_at(0) + many
        assert max(segment.size for segment in log.segments) <= 400

    run(scenario)


@pytest.mark.parametrize("settled", [True, False])
def test_nothing_is_left_of_many_batches_where_the_checkpoint_has_no_room_either(
    settled: bool,
) -> None:
    """Taking them back has to lower the recovery point first: where that was refused the first of them stayed."""

    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=400)
        log = await node.start()
        produce(log, 1)
        if settled:
            await node.settle()
        files = world.disk("n1").files
        many = b"".join(batch_at(offset) for offset in range(1, 16))
        for room in range(0, 900, 20):
            files.capacity = files.used + room
            with pytest.raises(OSError, match="No space"):
                append(log, many)
            assert log.log_end_offset == 1 and log.failed is None
            files.capacity = None
            if settled:
                produce(log, 1)
                log.truncate_to(1)
                await node.settle()
        append(log, many)
        assert read_all(log) == batch_at(0) + many

    run(scenario)


def test_batches_that_can_not_be_taken_back_end_the_log() -> None:
    """It holds what whoever sent it was told that it does not."""

    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=400)
        log = await node.start()
        produce(log, 1)
        await node.settle()
        files = world.disk("n1").files
        files.capacity = files.used + 800
        world.disk("n1").faults.fail("rename", path="*.log")  # out of the log
        with pytest.raises(OSError, match="No space"):
            append(log, b"".join(batch_at(offset) for offset in range(1, 16)))
        assert log.failed is not None

    run(scenario)


def test_a_disk_too_full_for_what_stands_beside_the_log_costs_time_only() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=1000)
        log = await node.start()
        produce(log, 8, transactional=True, producer_id=1, producer_epoch=0)
        end_txn(log, 1, commit=False)
        faults = world.disk("n1").faults
        for kind in ("index", "timeindex", "txnindex", "producers", "leader-epoch*"):
            faults.fail("append", path=f"*.{kind}", number=errno.ENOSPC, times=3)
            faults.fail("append", path=f"*{kind}.tmp", number=errno.ENOSPC, times=3)
        produce(log, 8)
        log.roll(START_MS)
        produce(log, 2)
        before = read_all(log)
        await node.settle()
        assert log.recovery_point == 19 and log.settled_point == 0
        for _ in range(8):
            await node.settle()
        assert log.settled_point == 19
        log = await node.restart("crash")
        assert read_all(log) == before
        assert [txn.first_offset for txn in log.aborted_between(0, 19)] == [0]

    run(scenario)
