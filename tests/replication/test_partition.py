"""One partition behind its requests, on a simulated disk."""

import asyncio
import errno

import pytest
from fencepost.cluster.base.errors import DISK_FULL_ERRNOS, ErrorCode
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.wire.batch import parse_header
from fencepost.cluster.wire.records import control_batch, read_records
from fencepost.replication.partition import Appended, Partition, Read, Refusal
from fencepost.replication.waits import FetchWait
from replica_helpers import NONE, ORDERS, Node, batch, bytes_of, play

E = ErrorCode


def error_of(answer: object) -> ErrorCode:
    assert isinstance(answer, Refusal), answer
    return answer.error


async def acknowledged(partition: Partition, offset: int, acks: int) -> tuple[str, ErrorCode]:
    told: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    wait = partition.when_acknowledged(offset, acks, told.set_result)
    return ("at once", wait) if isinstance(wait, ErrorCode) else ("later", await told)


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


# -- when it counts ----------------------------------------------------------------------------------


def test_acks_all_is_answered_after_the_sync_and_not_before() -> None:
    async def scene(node: Node) -> None:
        partition = node.partition()
        node.produce(batch("a"))
        assert partition.high_watermark == 0
        assert await acknowledged(partition, 0, -1) == ("later", NONE)
        assert partition.log.recovery_point == 1

    play(scene)


def test_acks_one_waits_for_our_own_disk_where_the_policy_says_so() -> None:
    """flush.policy=ack promises that what is acknowledged survives a power cut; it has no footnote."""

    async def scene(node: Node) -> None:
        partition = node.partition()
        node.produce(batch("a"), acks=1)
        assert await acknowledged(partition, 0, 0) == ("at once", NONE)
        assert await acknowledged(partition, 0, 1) == ("later", NONE)
        assert partition.log.recovery_point == 1

    play(scene)


@pytest.mark.parametrize(("policy", "synced_after_s"), [("interval", 1), ("os", 60)])
def test_other_policies_answer_at_once_and_sync_later(policy: str, synced_after_s: int) -> None:
    async def scene(node: Node) -> None:
        partition = node.partition()
        node.produce(batch("a"))
        assert partition.high_watermark == 1
        for acks in (-1, 1):
            assert await acknowledged(partition, 0, acks) == ("at once", NONE)
        await node.env.clock.sleep(synced_after_s - 0.1)
        assert partition.log.recovery_point == 0
        await node.env.clock.sleep(0.2)
        assert partition.log.recovery_point == 1

    play(scene, configs={"orders": {"flush.policy": policy}})


def test_what_was_written_under_another_policy_is_synced_when_syncs_begin_to_count() -> None:
    """A leader waits for what its followers have synced, and theirs was to be synced within a minute."""

    async def scene(node: Node) -> None:
        partition = node.partition()
        node.produce(batch("a"))
        await asyncio.sleep(1)
        assert partition.log.recovery_point == 0
        node.metadata.configure(node.manager, "orders", flush_policy="ack")
        await asyncio.sleep(0.1)
        assert partition.log.recovery_point == partition.machine.durable_end == 1

    play(scene, configs={"orders": {"flush.policy": "os"}})


def test_so_many_records_are_synced_before_their_time() -> None:
    async def scene(node: Node) -> None:
        node.produce(batch("a", "b"))
        await node.env.clock.sleep(0.1)
        assert node.partition().log.recovery_point == 0
        node.produce(batch("c"))
        await node.env.clock.sleep(0.1)
        assert node.partition().log.recovery_point == 3

    play(scene, configs={"orders": {"flush.policy": "os", "flush.messages": "3"}})


def test_one_sync_serves_all_who_wrote_in_a_turn() -> None:
    async def scene(node: Node) -> None:
        for number in range(10):
            node.produce(batch(str(number)))
        assert await node.partition().committed(9) is NONE
        assert node.manager.counters.syncs == 1

    play(scene)


def test_waiting_for_a_commit_ends_with_the_leadership() -> None:
    async def scene(node: Node) -> None:
        partition = node.partition()
        node.env.machine.disk.faults.sync_s = (10, 10)
        node.produce(batch("a"))
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(partition.committed(0))
            await node.env.clock.sleep(0.1)
            two = (BrokerId(1), BrokerId(2))
            node.metadata.change(node.manager, "orders", leader=BrokerId(2), replicas=two, isr=two)
        assert waiting.result() is E.not_leader_or_follower
        assert error_of(node.produce(batch("b"))) is E.not_leader_or_follower

    play(scene)


def test_who_waits_where_a_partition_moves_away_is_sent_after_it() -> None:
    """Kafka says UNKNOWN_TOPIC_OR_PARTITION only of what is nowhere: a client names no other leader to itself on that."""

    async def scene(node: Node) -> None:
        partition = node.partition()
        node.env.machine.disk.faults.sync_s = (10, 10)
        node.produce(batch("a"))
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(partition.committed(0))
            await node.env.clock.sleep(0.1)
            two = (BrokerId(2),)
            node.metadata.change(node.manager, "orders", leader=BrokerId(2), replicas=two, isr=two)
        assert waiting.result() is E.not_leader_or_follower

    play(scene)


# -- a disk that fails -------------------------------------------------------------------------------


@pytest.mark.parametrize("number", sorted(DISK_FULL_ERRNOS))
def test_a_full_disk_refuses_writes_serves_reads_and_recovers_by_itself(number: int) -> None:
    async def scene(node: Node) -> None:
        await node.write(batch("a", pid=7))
        faults = node.env.machine.disk.faults
        faults.fail("append", path="*.log", number=number, times=2)
        for _ in range(2):
            refused = node.produce(batch("b", pid=7, sequence=1))
            assert error_of(refused) is E.kafka_storage_error
        assert node.manager.is_disk_full
        assert await node.read_values() == [b"a"]
        await node.write(batch("b", pid=7, sequence=1))
        assert not node.manager.is_disk_full
        assert await node.read_values() == [b"a", b"b"]

    play(scene)


def test_a_batch_refused_for_want_of_space_is_not_overtaken() -> None:
    """A new producer with two batches in flight, and space comes back in between."""

    async def scene(node: Node) -> None:
        node.env.machine.disk.faults.fail("append", path="*.log", number=errno.ENOSPC)
        assert error_of(node.produce(batch("a", pid=7))) is E.kafka_storage_error
        second = batch("b", pid=7, sequence=1)
        assert error_of(node.produce(bytearray(second))) is E.kafka_storage_error
        await node.write(batch("a", pid=7))
        await node.write(second)
        assert await node.read_values() == [b"a", b"b"]

    play(scene)


def test_a_failed_write_ends_writing_and_not_reading() -> None:
    async def scene(node: Node) -> None:
        await node.write(batch("a"))
        node.env.machine.disk.faults.fail("append", path="*.log")
        for _ in range(2):
            assert error_of(node.produce(batch("b"))) is E.kafka_storage_error
        assert await node.read_values() == [b"a"]
        assert "orders-0" in str(node.manager.offline)

    play(scene)


def test_a_failed_sync_takes_the_partition_offline_and_tells_who_waits() -> None:
    """After a failed fsync nobody knows what the disk has (fsyncgate): a second one would succeed and lie."""

    async def scene(node: Node) -> None:
        partition = node.partition()
        node.env.machine.disk.faults.fail("sync", path="*.log")
        node.produce(batch("a"))
        assert await partition.committed(0) is E.kafka_storage_error
        assert node.manager.partition(ORDERS) is E.kafka_storage_error
        assert error_of(partition.append_as_leader(batch("b"), required_acks=-1, now_ms=0)) is (
            E.kafka_storage_error
        )
        assert len(node.manager.offline) == 1

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


def test_who_waits_for_a_sync_is_answered_when_syncs_count_no_more() -> None:
    async def scene(node: Node) -> None:
        partition = node.partition()
        node.env.machine.disk.faults.sync_s = (0.2, 0.2)
        node.produce(batch("a"), acks=1)
        await asyncio.sleep(0.1)  # a sync is under way, and does not cover what comes now
        done = node.produce(batch("b"), acks=1)
        assert isinstance(done, Appended)
        waiting = asyncio.ensure_future(acknowledged(partition, done.last_offset, 1))
        await asyncio.sleep(0)
        node.metadata.configure(node.manager, "orders", flush_policy="os")
        async with asyncio.timeout(5):
            assert (await waiting)[1] is NONE

    play(scene)
