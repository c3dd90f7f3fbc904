"""What a clean stop may claim of a log whose disk failed for what stands beside it."""

import errno

import pytest
from fencepost.chaos.sim.world import World
from log_helpers import Node, append, end_txn, marker_at, produce, read_all, run

TRANSACTION = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}


def test_an_aborted_transaction_that_could_not_be_written_down_stays_aborted() -> None:
    """The stop's own checkpoint fails for the index; the next start must look for itself."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, count=2, producer_id=7, **TRANSACTION)
        end_txn(log, 7, commit=False)
        before = log.aborted_between(0, 3)
        assert [txn.first_offset for txn in before] == [0]
        world.disk("n1").faults.fail("create", path="*.txnindex", number=errno.ENOSPC)
        for how in ("clean", "clean", "crash"):
            log = await node.restart(how)
            assert log.aborted_between(0, 3) == before

    run(scenario)


def test_leader_epochs_that_could_not_be_written_down_are_found_again() -> None:
    """A start from a hint knows them; the kill after it leaves the file of before."""

    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=400)
        log = await node.start()
        produce(log, 2, leader_epoch=0)
        await node.settle()
        for leader_epoch in (1, 2, 3):
            produce(log, 4, leader_epoch=leader_epoch)
        path = "*leader-epoch-checkpoint.tmp"
        world.disk("n1").faults.fail("create", path=path, number=errno.ENOSPC)
        log = await node.restart("clean")
        produce(log, 4, leader_epoch=3)
        await node.settle()
        log = await node.restart("kill")
        assert (log.epochs.epochs, log.epochs.starts) == ([0, 1, 2, 3], [0, 2, 6, 10])

    run(scenario)


def test_a_log_that_was_never_written_is_opened_from_its_hint() -> None:
    """Its leader epoch waits for a folder to be written into; ten thousand of them must not be looked for."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        log.assign_epoch(4, 0)
        log = await node.restart("clean")
        assert (log.epochs.epochs, log.latest_epoch) == ([4], 4)

    run(scenario)


def test_an_abort_whose_index_can_not_be_read_is_not_written() -> None:
    """Else the marker is in the log and its append said that it was not: the coordinator writes it again."""

    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=600)
        log = await node.start()
        produce(log, count=2, producer_id=7, **TRANSACTION)
        end_txn(log, 7, commit=False)
        produce(log, count=2, producer_id=8, **TRANSACTION)
        log = await node.restart("clean")
        data, end, open_from = (
            read_all(log),
            log.log_end_offset,
            log.producers.first_unstable_offset,
        )
        marker = marker_at(end, 8, commit=False)
        world.disk("n1").faults.fail("read", path="*.txnindex", number=errno.EMFILE)
        with pytest.raises(OSError, match="Too many open files"):
            append(log, marker)
        assert (log.log_end_offset, log.first_unstable_offset) == (end, open_from)
        assert read_all(log) == data and log.failed is None
        append(log, marker)
        for _ in range(2):
            assert [txn.first_offset for txn in log.aborted_between(0, end + 1)] == [0, 3]
            await node.settle()
            log = await node.restart("kill")

    run(scenario)
