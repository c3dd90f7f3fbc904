"""Why a last stable offset stands still."""

from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.wire.records import control_batch
from fencepost.replication.partition import Appended
from fencepost.replication.standstill import (
    LATE_MS,
    Reason,
    Standstill,
    has_late_transaction,
    standstill,
)
from replica_helpers import ME, Node, batch, play

LONGEST_MS = 900_000


def why(node: Node, now_ms: int = 2_000) -> Standstill | None:
    return standstill(node.partition(), now_ms, timeout_ms_max=LONGEST_MS)


def marker(pid: int, *, coordinator_epoch: int = 0) -> bytearray:
    return control_batch(
        commit=True, producer_id=pid, producer_epoch=0, coordinator_epoch=coordinator_epoch,
        timestamp=5,
    )  # fmt: skip


async def end(node: Node, pid: int, coordinator_epoch: int = 0) -> None:
    done = node.partition().append_as_leader(
        marker(pid, coordinator_epoch=coordinator_epoch), required_acks=-1, now_ms=5, origin_client=False
    )  # fmt: skip
    assert isinstance(done, Appended)
    await node.partition().committed(done.last_offset)


def test_the_first_open_transaction_is_named_with_its_age() -> None:
    async def scene(node: Node) -> None:
        await node.write(batch("a"))
        assert why(node) is None
        await node.write(batch("b", pid=7, transactional=True, timestamp=1_000))
        await end(node, 7, coordinator_epoch=4)
        assert why(node) is None
        await node.write(batch("c", pid=7, sequence=1, transactional=True, timestamp=1_200))
        await node.write(batch("d", pid=8, transactional=True, timestamp=1_300))
        await node.write(batch("e", pid=7, sequence=2, transactional=True, timestamp=1_500))
        found = why(node)
        assert found == Standstill(
            Reason.OPEN, 3, 6, 3, 1_200, 7, 0, 4, last_write_ms=1_500, is_late=False
        )
        assert found is not None and found.age_ms(2_000) == 800
        await end(node, 7, coordinator_epoch=4)
        assert (again := why(node)) is not None and (again.producer_id, again.first_offset) == (
            8,
            4,
        )

    play(scene)


def test_a_transaction_is_late_when_it_is_longer_than_any_may_be() -> None:
    async def scene(node: Node) -> None:
        await node.write(batch("a", pid=7, transactional=True, timestamp=1_000))
        for now_ms, late in (
            (1_000 + LONGEST_MS + LATE_MS, False),
            (1_001 + LONGEST_MS + LATE_MS, True),
        ):
            found = why(node, now_ms)
            assert found is not None and found.is_late is late
            assert has_late_transaction(node.partition(), now_ms, LONGEST_MS) is late
        await end(node, 7)
        assert not has_late_transaction(node.partition(), 10**12, LONGEST_MS)

    play(scene)


def test_a_marker_that_is_not_committed_holds_readers_up_too() -> None:
    async def scene(node: Node) -> None:
        node.metadata.change(
            node.manager, "orders", isr=(ME, BrokerId(2)), replicas=(ME, BrokerId(2))
        )
        partition = node.partition()
        for each in (batch("a", pid=7, transactional=True, timestamp=1_000), marker(7)):
            done = partition.append_as_leader(each, required_acks=1, now_ms=5, origin_client=False)
            assert isinstance(done, Appended)
        await node.env.clock.sleep(0.1)
        partition.on_ack(2, 1, 1, 0, may_join=True)
        assert partition.high_watermark == 1
        assert why(node) == Standstill(Reason.ENDED, 0, 1, 0, 1_000)
        partition.on_ack(2, 2, 2, 0, may_join=True)
        assert why(node) is None

    play(scene)


def test_records_that_were_deleted_tell_no_age() -> None:
    async def scene(node: Node) -> None:
        await node.write(batch("a", "b", pid=7, transactional=True, timestamp=1_000))
        assert node.partition().delete_records(1) == 1
        found = why(node)
        assert found is not None
        assert (found.last_stable_offset, found.since_ms, found.age_ms(5_000)) == (1, -1, -1)

    play(scene)
