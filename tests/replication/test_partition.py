"""One partition behind its requests, on a simulated disk: what is written to it, and what is read."""

import asyncio

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.batch import parse_header
from fencepost.cluster.wire.records import read_records
from fencepost.replication.partition import Appended, Read, Refusal
from replica_helpers import NONE, Node, batch, bytes_of, error_of, play

E = ErrorCode

# -- writing -----------------------------------------------------------------------------------------


def test_batches_get_the_next_offsets() -> None:
    async def scene(node: Node) -> None:
        assert node.produce(batch("a", "b")) == Appended(0, 1, -1, 0)
        assert node.produce(batch("c")) == Appended(2, 2, -1, 0)
        assert node.partition().log_end_offset == 3

    play(scene)


def test_the_records_of_a_batch_are_written_as_they_came() -> None:
    """But for the base offset and the leader epoch, which lie before the checksum's range."""

    async def scene(node: Node) -> None:
        node.produce(batch("first"))
        for compression in range(5):
            sent = bytes(batch("x" * 100, compression=compression, pid=compression))
            first = await node.write(bytearray(sent))
            read = node.partition().read(first, 1 << 20, isolation=0, min_one=True)
            assert isinstance(read, Read)
            kept = bytes_of(read)
            assert kept[8:12] + kept[16:] == sent[8:12] + sent[16:]
            header = parse_header(kept)
            assert (header.base_offset, header.leader_epoch) == (first, 1)

    play(scene)


def test_a_retry_is_answered_with_its_first_offset_and_written_once() -> None:
    async def scene(node: Node) -> None:
        node.produce(batch("other"))
        sent = bytes(batch("a", "b", pid=7, timestamp=77))
        assert node.produce(bytearray(sent)) == Appended(1, 2, -1, 0)
        assert node.produce(bytearray(sent)) == Appended(1, 2, 77, 0, duplicate=True)
        assert node.partition().log_end_offset == 3
        assert node.manager.counters.duplicates == 1

    play(scene)


def test_a_retry_too_waits_for_its_first_write_to_be_committed() -> None:
    async def scene(node: Node) -> None:
        partition = node.partition()
        sent = bytes(batch("a", pid=7))
        node.produce(bytearray(sent))
        again = node.produce(bytearray(sent))
        assert isinstance(again, Appended) and again.duplicate
        assert partition.high_watermark <= again.last_offset
        assert await partition.committed(again.last_offset) is NONE
        assert partition.high_watermark == 1

    play(scene)


def test_what_kafka_refuses_is_refused() -> None:
    async def scene(node: Node) -> None:
        wrong_crc = batch("a")
        wrong_crc[-1] ^= 1
        assert error_of(node.produce(wrong_crc)) is E.corrupt_message
        assert error_of(node.produce(b"")) is E.invalid_record
        assert error_of(node.produce(batch("x" * 1_100_000))) is E.message_too_large
        assert error_of(node.produce(batch("a") + batch("b"))) is E.invalid_record
        node.produce(batch("a", pid=7, epoch=1))
        assert error_of(node.produce(batch("a", pid=7, epoch=0))) is E.invalid_producer_epoch
        late = batch("a", pid=7, epoch=1, sequence=5)
        assert error_of(node.produce(late)) is E.out_of_order_sequence_number
        assert node.partition().log_end_offset == 1
        assert node.manager.counters.refused == {
            E.corrupt_message: 1, E.invalid_record: 2, E.message_too_large: 1,
            E.invalid_producer_epoch: 1, E.out_of_order_sequence_number: 1,
        }  # fmt: skip

    play(scene)


def test_a_compacted_topic_names_the_records_without_a_key() -> None:
    async def scene(node: Node) -> None:
        refused = node.produce(batch("a"))
        assert error_of(refused) is E.invalid_record
        assert isinstance(refused, Refusal) and refused.record_errors[0][0] == 0
        assert isinstance(node.produce(batch("a", key=b"k")), Appended)

    play(scene, configs={"orders": {"cleanup.policy": "compact"}})


def test_log_append_time_is_the_brokers() -> None:
    async def scene(node: Node) -> None:
        now = node.env.clock.now_ms()
        done = node.produce(batch("a", timestamp=5))
        assert isinstance(done, Appended) and done.append_time_ms == now
        await node.partition().committed(0)
        read = node.partition().read(0, 1 << 20, isolation=0, min_one=True)
        assert isinstance(read, Read)
        assert read_records(bytes_of(read))[0].timestamp == now
        node.partition().list_offset(now, 0)

    play(scene, configs={"orders": {"message.timestamp.type": "LogAppendTime"}})


def test_a_topic_may_say_how_its_batches_are_packed() -> None:
    async def scene(node: Node) -> None:
        await node.write(batch("x" * 500, compression=0, pid=3))
        read = node.partition().read(0, 1 << 20, isolation=0, min_one=True)
        assert isinstance(read, Read)
        header = parse_header(bytes_of(read))
        assert (header.compression, header.producer_id) == (4, 3)
        assert await node.read_values() == [b"x" * 500]

    play(scene, configs={"orders": {"compression.type": "zstd"}})


def test_a_buffer_that_may_not_be_written_is_copied() -> None:
    async def scene(node: Node) -> None:
        sent = bytes(batch("a"))
        node.produce(batch("b"))
        assert node.produce(sent) == Appended(1, 1, -1, 0)
        assert parse_header(sent).base_offset == 0

    play(scene)


# -- reading -----------------------------------------------------------------------------------------


def test_nothing_is_read_before_it_is_committed() -> None:
    async def scene(node: Node) -> None:
        partition = node.partition()
        node.produce(batch("a"))
        read = partition.read(0, 1 << 20, isolation=0, min_one=True)
        assert isinstance(read, Read) and (read.size, read.high_watermark) == (0, 0)
        await partition.committed(0)
        read = partition.read(0, 1 << 20, isolation=0, min_one=True)
        assert isinstance(read, Read) and read.size > 0

    play(scene)


def test_offsets_outside_the_log_are_out_of_range() -> None:
    async def scene(node: Node) -> None:
        for value in "abc":
            await node.write(batch(value))
        partition = node.partition()
        assert partition.delete_records(2) == 2
        for offset, expected in ((1, E.offset_out_of_range), (4, E.offset_out_of_range)):
            assert error_of(partition.read(offset, 100, isolation=0, min_one=True)) is expected
        for offset in (2, 3):
            assert isinstance(partition.read(offset, 100, isolation=0, min_one=True), Read)

    play(scene)


def test_epochs_of_the_reader_are_checked() -> None:
    async def scene(node: Node) -> None:
        await node.write(batch("a", "b"))
        node.metadata.change(node.manager, "orders")  # epoch 2, nothing written in it
        partition = node.partition()

        def read(offset: int = 2, **epochs: int) -> Read | Refusal:
            return partition.read(offset, 100, isolation=0, min_one=True, **epochs)

        assert error_of(read(current_leader_epoch=1)) is E.fenced_leader_epoch
        assert error_of(read(current_leader_epoch=3)) is E.unknown_leader_epoch
        assert isinstance(read(current_leader_epoch=2, last_fetched_epoch=1), Read)
        # A reader that has more of epoch 1 than there ever was has read a history that is gone.
        partition.machine.log_end = 2
        await node.write(batch("c"))
        diverging = read(3, last_fetched_epoch=1)
        assert isinstance(diverging, Read) and diverging.diverging == (1, 2)
        assert error_of(read(3, last_fetched_epoch=7)) is E.offset_out_of_range

    play(scene)


def test_an_epoch_counts_before_it_has_written_anything() -> None:
    async def scene(node: Node) -> None:
        await node.write(batch("a", "b"))
        node.metadata.change(node.manager, "orders")
        partition = node.partition()
        assert [partition.end_offset_for(epoch) for epoch in (0, 1, 2, 3)] == [
            (0, 0), (1, 2), (2, 2), (-1, -1),
        ]  # fmt: skip
        assert partition.list_offset(-1, 0) == (2, -1, 2)

    play(scene)


def test_offsets_by_time() -> None:
    async def scene(node: Node) -> None:
        partition = node.partition()
        assert partition.list_offset(-1, 0) == (0, -1, 1)
        assert partition.list_offset(-2, 0) == (0, -1, -1)
        assert partition.list_offset(-3, 0) == (-1, -1, -1)
        for timestamp in (100, 300, 200):
            await node.write(batch("v", timestamp=timestamp))
        assert partition.list_offset(-1, 0) == (3, -1, 1)
        assert partition.list_offset(-2, 0) == (0, -1, 1)
        assert partition.list_offset(-3, 0) == (1, 300, 1)
        assert partition.list_offset(150, 0) == (1, 300, 1)
        assert partition.list_offset(301, 0) == (-1, -1, -1)
        node.produce(batch("v", timestamp=400))  # not committed
        assert partition.list_offset(-3, 0) in {(1, 300, 1), (-1, -1, -1)}
        assert partition.list_offset(400, 0) == (-1, -1, -1)

    play(scene)


def test_what_is_packed_is_looked_into_on_a_thread_and_for_one_term_only() -> None:
    """4 KB of zstd may hold 16 million records. What was found under another leader may not be there any more."""

    async def scene(node: Node) -> None:
        partition = node.partition()
        await node.write(batch("a", timestamp=300, compression=4))
        assert await partition.list_offset_waiting(200, 0) == (0, 300, 1)
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(partition.list_offset_waiting(200, 0))
            await asyncio.sleep(0)
            assert not asked.done()
            node.metadata.change(node.manager, "orders")
        assert asked.result() is E.not_leader_or_follower
        assert await partition.list_offset_waiting(200, 0) == (0, 300, 1)

    play(scene)


def test_records_are_deleted_up_to_what_is_committed() -> None:
    async def scene(node: Node) -> None:
        partition = node.partition()
        for value in "abc":
            await node.write(batch(value))
        node.produce(batch("d"))
        assert partition.delete_records(4) is E.offset_out_of_range
        assert partition.delete_records(-2) is E.offset_out_of_range
        assert partition.delete_records(1) == 1
        assert partition.delete_records(-1) == 3
        assert partition.delete_records(2) == 3  # never back
        assert partition.log_start_offset == 3

    play(scene)


def test_a_topic_that_only_compacts_keeps_its_records() -> None:
    async def scene(node: Node) -> None:
        assert node.partition().delete_records(0) is E.policy_violation

    play(scene, configs={"orders": {"cleanup.policy": "compact"}})
