"""aiokafka's transactions."""

import asyncio

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, ProducerFenced
from aiokafka_clients import Clients, on_a_loop, receive, until
from brokers import IN_CHAOS, calm
from librdkafka_transactions import read_settled, values_of

TRIES = 8


async def transact(producer: AIOKafkaProducer, work) -> None:
    """One transaction, committed; while leaders die, as many aborted ones before it as that takes."""
    for left in reversed(range(TRIES)):
        try:
            async with producer.transaction():
                await work()
        except (ProducerFenced, asyncio.CancelledError):
            raise
        except KafkaError:
            if not (IN_CHAOS and left):
                raise
        else:
            return


async def read_stable(bootstrap: str, topic: str, partitions: int = 1) -> dict[int, list[bytes]]:
    """By librdkafka, which knows where the end is."""
    got = await asyncio.to_thread(read_settled, bootstrap, topic, partitions)
    return values_of(got)


@on_a_loop
async def test_what_was_aborted_is_passed_over_and_what_was_committed_read(
    bootstrap, topic, fresh
) -> None:
    async with Clients(bootstrap) as clients:
        await clients.create(topic, partitions=2)
        producer = await clients.producer(transactional_id=fresh("writer"))

        async def write(values: list[bytes]) -> None:
            for number, value in enumerate(values):
                await producer.send(topic, value, partition=number % 2)

        wanted: dict[int, list[bytes]] = {0: [], 1: []}
        for number in range(10):
            await producer.begin_transaction()
            await write([b"never"] * 6)
            await producer.flush()
            await producer.abort_transaction()
            values = [b"%d:%d" % (number, index) for index in range(6)]
            await transact(producer, lambda: write(values))  # noqa: B023
            for part in (0, 1):
                wanted[part] += values[part::2]
        reader = await clients.reader(topic, 2, isolation_level="read_committed")
        got = await receive(reader, 60)
        for part in (0, 1):
            assert [m.value for m in got if m.partition == part] == wanted[part]
        assert await read_stable(bootstrap, topic, 2) == wanted


@calm
@on_a_loop
async def test_a_reader_waits_at_an_open_transaction_and_is_woken_by_its_end(
    bootstrap, topic, fresh
) -> None:
    async with Clients(bootstrap) as clients:
        await clients.create(topic)
        slow = await clients.producer(transactional_id=fresh("slow"))
        await slow.begin_transaction()
        await slow.send_and_wait(topic, b"slow")
        await (await clients.producer()).send_and_wait(topic, b"plain")
        reader = await clients.reader(topic, isolation_level="read_committed")
        waiting = asyncio.create_task(receive(reader, 2))
        assert not (await asyncio.wait([waiting], timeout=0.5))[0], "read before it was committed"
        await slow.commit_transaction()
        assert [message.value for message in await waiting] == [b"slow", b"plain"]


@on_a_loop
async def test_offsets_come_with_the_commit_and_not_with_an_abort(
    bootstrap, topic, group, fresh
) -> None:
    part = TopicPartition(topic, 0)
    async with Clients(bootstrap) as clients:
        await clients.create(topic)
        producer = await clients.producer(transactional_id=fresh("writer"))
        consumer = await clients.consumer(group=group)
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({part: 3}, group)
        await producer.abort_transaction()
        assert await consumer.committed(part) is None
        await transact(producer, lambda: producer.send_offsets_to_transaction({part: 7}, group))

        async def committed() -> bool:  # it does not ask for stable offsets, as newer clients do
            return await consumer.committed(part) == 7

        await until(committed, "the offset is committed")


@on_a_loop
async def test_a_second_producer_with_the_same_id_fences_the_first(bootstrap, topic, fresh) -> None:
    name = fresh("writer")
    async with Clients(bootstrap) as clients:
        await clients.create(topic)
        zombie = await clients.producer(transactional_id=name)
        await zombie.begin_transaction()
        await zombie.send_and_wait(topic, b"from the dead")
        heir = await clients.producer(transactional_id=name)
        await transact(heir, lambda: heir.send(topic, b"heir"))
        with pytest.raises(ProducerFenced):
            await zombie.commit_transaction()
    assert await read_stable(bootstrap, topic) == {0: [b"heir"]}
