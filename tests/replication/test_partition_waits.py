"""Readers of one partition who wait: parked fetches, and those of committed records while a transaction is open."""

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.wire.records import control_batch
from fencepost.replication.partition import Appended, Read, Refusal
from fencepost.replication.waits import FetchWait
from replica_helpers import Node, batch, error_of, play

E = ErrorCode

# -- transactions ------------------------------------------------------------------------------------


def marker(pid: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0) -> bytearray:
    return control_batch(
        commit=commit, producer_id=pid, producer_epoch=epoch, coordinator_epoch=coordinator_epoch,
        timestamp=5,
    )  # fmt: skip


async def end(node: Node, pid: int, *, commit: bool, **epochs: int) -> Appended | Refusal:
    partition = node.partition()
    done = partition.append_as_leader(
        marker(pid, commit=commit, **epochs), required_acks=-1, now_ms=5, origin_client=False
    )
    if isinstance(done, Appended):
        await partition.committed(done.last_offset)
    return done


def test_read_committed_stops_at_an_open_transaction_and_names_aborted_ones() -> None:
    async def scene(node: Node) -> None:
        partition = node.partition()
        await node.write(batch("a", pid=1, transactional=True))
        await node.write(batch("b", pid=2, transactional=True))
        assert partition.last_stable_offset == 0
        assert await node.read_values(isolation=1) == []
        assert await node.read_values(isolation=0) == [b"a", b"b"]
        await end(node, 1, commit=False)
        assert partition.last_stable_offset == 1
        await end(node, 2, commit=True)
        assert partition.last_stable_offset == partition.high_watermark == 4
        read = partition.read(0, 1 << 20, isolation=1, min_one=True)
        assert isinstance(read, Read) and read.aborted == [(1, 0)]
        assert error_of(await end(node, 1, commit=True, coordinator_epoch=-5)) is (
            E.transaction_coordinator_fenced
        )

    play(scene)


# -- parked fetches ----------------------------------------------------------------------------------


def test_a_parked_fetch_is_woken_by_the_commit() -> None:
    async def scene(node: Node) -> None:
        partition = node.partition()
        with FetchWait(1) as wait:
            wait.watch(partition, 0, 1 << 20, 0, 0)
            node.produce(batch("a"))
            assert await wait.until(5)
            assert partition.high_watermark == 1

    play(scene)


def test_a_parked_reader_of_committed_records_is_woken_by_the_marker() -> None:
    """Not by records of a transaction that is open, nor by those of others behind it."""

    async def scene(node: Node) -> None:
        partition = node.partition()
        with FetchWait(1) as wait:
            wait.watch(partition, 0, 1 << 20, 1, 0)
            await node.write(batch("a", pid=1, transactional=True))
            await node.write(batch("b"))
            assert not await wait.until(1)
            await end(node, 1, commit=False)
            assert await wait.until(0)
            assert partition.last_stable_offset == 3

    play(scene)


def test_a_parked_reader_of_committed_records_is_woken_when_an_open_transaction_is_deleted() -> (
    None
):
    """DeleteRecords: the log begins behind what it waits for, and that is what it is told."""

    async def scene(node: Node) -> None:
        partition = node.partition()
        await node.write(batch("a", pid=1, transactional=True))
        await node.write(batch("b", pid=1, sequence=1, transactional=True))
        with FetchWait(1) as wait:
            wait.watch(partition, 0, 1 << 20, 1, 0)
            assert partition.delete_records(1) == 1
            assert await wait.until(0)

    play(scene)


def test_a_parked_fetch_waits_for_its_bytes() -> None:
    async def scene(node: Node) -> None:
        partition = node.partition()
        size = len(batch("a"))
        with FetchWait(3 * size) as wait:
            wait.watch(partition, 0, 1 << 20, 0, 0)
            await node.write(batch("a"))
            await node.write(batch("b"))
            assert not await wait.until(1)
            await node.write(batch("c"))
            assert await wait.until(0)

    play(scene)


@pytest.mark.parametrize("what", ["moved", "deleted", "new epoch", "records deleted"])
def test_a_parked_fetch_is_woken_by_what_changes_its_answer(what: str) -> None:
    async def scene(node: Node) -> None:
        for value in "ab":
            await node.write(batch(value))
        partition = node.partition()
        with FetchWait(1 << 20) as wait:
            wait.watch(partition, 1, 1 << 20, 0, 0)
            match what:
                case "moved":
                    two = (BrokerId(2),)
                    node.metadata.change(
                        node.manager, "orders", leader=BrokerId(2), replicas=two, isr=two
                    )
                case "deleted":
                    node.metadata.delete(node.manager, "orders")
                case "new epoch":
                    node.metadata.change(node.manager, "orders")
                case "records deleted":
                    partition.delete_records(-1)
            assert await wait.until(0)

    play(scene)


def test_a_cold_read_waits_off_the_loop() -> None:
    async def scene(node: Node) -> None:
        for value in "abcdef":
            await node.write(batch(value * 1000))
        node.env.machine.disk.faults.cold_odds = 0.5
        assert [value[:1] for value in await node.read_values()] == [
            b"a",
            b"b",
            b"c",
            b"d",
            b"e",
            b"f",
        ]

    play(scene)
