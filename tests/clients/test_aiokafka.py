"""aiokafka: asyncio's own client, with a wire implementation of its own."""

import asyncio

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import (
    CommitFailedError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    for_code,
)
from aiokafka_clients import Clients, on_a_loop, receive, until
from brokers import unsafe


@pytest.mark.parametrize(
    "acks", [pytest.param(0, marks=unsafe), pytest.param(1, marks=unsafe), "all"]
)
@on_a_loop
async def test_every_level_of_acks_writes_in_order(bootstrap, topic, acks) -> None:
    async with Clients(bootstrap) as clients:
        await clients.create(topic)
        producer = await clients.producer(acks=acks)
        sent = [await producer.send(topic, b"%d" % number) for number in range(200)]
        await producer.flush()
        if acks != 0:
            assert [(await each).offset for each in sent] == list(range(200))
        got = await receive(await clients.reader(topic), 200)
        assert [int(message.value) for message in got] == list(range(200))


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@on_a_loop
async def test_a_codec_passes_through_untouched(bootstrap, topic, codec) -> None:
    async with Clients(bootstrap) as clients:
        producer = await clients.producer(
            compression_type=codec, enable_idempotence=True, linger_ms=10
        )
        values = [b"words that repeat %d " % number * 30 for number in range(100)]
        headers = [("trace", b"\x01"), ("trace", b"\x02"), ("empty", b"")]
        options = {"key": b"k", "headers": headers, "timestamp_ms": 1_700_000_000_000}
        sent = [await producer.send(topic, value, **options) for value in values]
        await asyncio.gather(*sent)
        got = await receive(await clients.reader(topic), 100)
        assert [message.value for message in got] == values
        assert got[0].key == b"k"
        assert got[0].headers == tuple(headers)
        assert got[0].timestamp == 1_700_000_000_000


@on_a_loop
async def test_null_and_empty_stay_different(bootstrap, topic) -> None:
    async with Clients(bootstrap) as clients:
        producer = await clients.producer()
        pairs = [(None, b""), (b"", None), (b"k", None), (None, b"v")]
        for key, value in pairs:
            await producer.send_and_wait(topic, value, key=key)
        got = await receive(await clients.reader(topic), len(pairs))
        assert [(message.key, message.value) for message in got] == pairs


@on_a_loop
async def test_an_idempotent_producer_numbers_its_batches(bootstrap, topic) -> None:
    async with Clients(bootstrap) as clients:
        await clients.create(topic, partitions=2)
        producer = await clients.producer(enable_idempotence=True, max_batch_size=400)
        sent = [
            await producer.send(topic, b"%d" % number, partition=number % 2)
            for number in range(2000)
        ]
        await asyncio.gather(*sent)
        got = await receive(await clients.reader(topic, partitions=2), 2000)
        for partition in (0, 1):
            values = [int(m.value) for m in got if m.partition == partition]
            assert values == list(range(partition, 2000, 2))


@on_a_loop
async def test_a_record_over_the_limit_is_refused(bootstrap, topic) -> None:
    async with Clients(bootstrap) as clients:
        await clients.create(topic, max_message_bytes="50000")
        producer = await clients.producer()
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait(topic, bytes(60_000))
        assert (await producer.send_and_wait(topic, b"small")).offset == 0


@on_a_loop
async def test_seeks_and_times_find_their_offsets(bootstrap, topic) -> None:
    async with Clients(bootstrap) as clients:
        producer = await clients.producer()
        base = 1_700_000_000_000
        for number in range(10):
            await producer.send_and_wait(topic, b"%d" % number, timestamp_ms=base + number * 10)
        consumer, part = await clients.reader(topic), TopicPartition(topic, 0)
        for offset in (7, 2, 9):
            consumer.seek(part, offset)
            assert (await receive(consumer, 1))[0].offset == offset
        await consumer.seek_to_beginning(part)
        assert await consumer.position(part) == 0
        await consumer.seek_to_end(part)
        assert await consumer.position(part) == 10
        assert await consumer.beginning_offsets([part]) == {part: 0}
        assert await consumer.end_offsets([part]) == {part: 10}
        found = await consumer.offsets_for_times({part: base + 25})
        assert (found[part].offset, found[part].timestamp) == (3, base + 30)
        assert (await consumer.offsets_for_times({part: base + 91}))[part] is None


@on_a_loop
async def test_an_offset_out_of_range_is_told(bootstrap, topic) -> None:
    async with Clients(bootstrap) as clients:
        await (await clients.producer()).send_and_wait(topic, b"x")
        consumer = await clients.reader(topic, auto_offset_reset="none")
        consumer.seek(TopicPartition(topic, 0), 99)
        with pytest.raises(OffsetOutOfRangeError):
            await receive(consumer, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "assignor",
    [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor],
    ids=lambda kind: kind.name,
)
@on_a_loop
async def test_members_share_partitions_as_they_come_and_go(
    bootstrap, topic, group, assignor
) -> None:
    options = {"group": group, "partition_assignment_strategy": (assignor,)}
    async with Clients(bootstrap) as clients:
        await clients.create(topic, partitions=4)
        first = await clients.consumer(topic, **options)
        second = await clients.consumer(topic, **options)

        async def have(first_has: int, second_has: int | None = None) -> bool:
            shared = second_has is None or len(second.assignment()) == second_has
            return shared and len(first.assignment()) == first_has

        await until(lambda: have(2, 2), "two members have two partitions each")
        assert not first.assignment() & second.assignment()
        await second.stop()
        await until(lambda: have(4), "one member has all four")


@on_a_loop
async def test_a_group_goes_on_where_it_committed(bootstrap, topic, group) -> None:
    part = TopicPartition(topic, 0)
    async with Clients(bootstrap) as clients:
        producer = await clients.producer()
        for number in range(10):
            await producer.send_and_wait(topic, b"%d" % number)
        first = await clients.consumer(topic, group=group)
        await receive(first, 6)
        await first.commit()
        assert await first.committed(part) == 6
        await first.commit({part: (4, "metadata")})
        await first.stop()
        second = await clients.consumer(topic, group=group)
        assert (await receive(second, 1))[0].offset == 4


@on_a_loop
async def test_a_stranger_can_not_commit_for_a_group_with_members(bootstrap, topic, group) -> None:
    async with Clients(bootstrap) as clients:
        await (await clients.producer()).send_and_wait(topic, b"x")
        member = await clients.consumer(topic, group=group)
        await receive(member, 1)
        stranger = await clients.consumer(group=group)
        stranger.assign([TopicPartition(topic, 0)])
        with pytest.raises(CommitFailedError):
            await stranger.commit({TopicPartition(topic, 0): 1})


@on_a_loop
async def test_topics_and_settings_are_administered(bootstrap, topic) -> None:
    async with Clients(bootstrap) as clients:
        admin = await clients.admin()
        await clients.create(topic, partitions=2, retention_ms="60000")
        assert topic in await admin.list_topics()
        [described] = await admin.describe_topics([topic])
        assert len(described["partitions"]) == 2
        again = await admin.create_topics([NewTopic(topic, 1, 1)])
        assert for_code(again.topic_errors[0][1]) is TopicAlreadyExistsError
        await admin.create_partitions({topic: NewPartitions(3)})

        async def grown() -> bool:
            [described] = await admin.describe_topics([topic])
            return len(described["partitions"]) == 3

        await until(grown, "there are three partitions")
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        [answer] = await admin.describe_configs([resource])
        shown = {entry[0]: entry[1] for entry in answer.resources[0][4]}
        assert shown["retention.ms"] == "60000"
        assert shown["cleanup.policy"] == "delete"
        change = ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.bytes": "2000000"})
        await admin.alter_configs([change])

        async def altered() -> bool:
            [answer] = await admin.describe_configs([resource])
            shown = {entry[0]: entry[1] for entry in answer.resources[0][4]}
            # The old call sets all: what it does not name falls back to its default.
            return (shown["segment.bytes"], shown["retention.ms"]) == ("2000000", "604800000")

        await until(altered, "the settings are in force")
        await admin.delete_topics([topic])

        async def gone() -> bool:
            return topic not in await admin.list_topics()

        await until(gone, "the topic is gone")


@on_a_loop
async def test_groups_offsets_and_records_are_administered(bootstrap, topic, group) -> None:
    part = TopicPartition(topic, 0)
    async with Clients(bootstrap) as clients:
        admin, producer = await clients.admin(), await clients.producer()
        for _ in range(5):
            await producer.send_and_wait(topic, b"x")
        member = await clients.consumer(topic, group=group)
        await receive(member, 5)
        await member.commit()
        assert (group, "consumer") in await admin.list_consumer_groups()
        [answer] = await admin.describe_consumer_groups([group])
        described = answer.groups[0]
        assert described[1:4] == (group, "Stable", "consumer")
        offsets = await admin.list_consumer_group_offsets(group)
        assert offsets[part].offset == 5
        assert await admin.delete_records({part: RecordsToDelete(3)}) == {part: 3}
        assert await member.beginning_offsets([part]) == {part: 3}
        assert (await admin.describe_cluster())["brokers"][0]["host"] == "127.0.0.1"
