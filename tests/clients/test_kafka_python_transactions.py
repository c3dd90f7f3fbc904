"""kafka-python's transactions."""

from contextlib import ExitStack, closing

import pytest
from brokers import IN_CHAOS
from kafka_python_clients import (
    LEAVES_SOCKETS,
    KafkaProducer,
    OffsetAndMetadata,
    TopicPartition,
    consumer_of,
    reader_of,
    receive,
    sockets_left,  # noqa: F401 - a fixture
)
from librdkafka import create
from librdkafka_transactions import read_settled, values_of

from kafka.errors import InvalidProducerEpochError, ProducerFencedError  # isort: skip

pytestmark = [
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
    LEAVES_SOCKETS,
    pytest.mark.skipif(
        IN_CHAOS,
        reason="kafka-python 3.0.12 forgets what it has to ask of a coordinator that died (Sender._maybe_send_pending_request)",
    ),
]
FENCED = (ProducerFencedError, InvalidProducerEpochError)


@pytest.fixture
def producer_of(bootstrap):
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(
            closing(KafkaProducer(bootstrap_servers=bootstrap, **options))
        )


def transact(producer, work) -> None:
    producer.begin_transaction()
    work()
    producer.commit_transaction()


def test_what_was_aborted_is_passed_over_and_what_was_committed_read(
    bootstrap,
    producer_of,
    topic,
    fresh,
) -> None:
    create(bootstrap, topic, partitions=2)
    producer = producer_of(transactional_id=fresh("writer"))
    producer.init_transactions()

    def write(values: list[bytes]) -> None:
        for number, value in enumerate(values):
            producer.send(topic, value, partition=number % 2)

    wanted: dict[int, list[bytes]] = {0: [], 1: []}
    for number in range(10):
        producer.begin_transaction()
        write([b"never"] * 6)
        producer.flush()
        producer.abort_transaction()
        values = [b"%d:%d" % (number, index) for index in range(6)]
        transact(producer, lambda: write(values))  # noqa: B023
        for part in (0, 1):
            wanted[part] += values[part::2]
    with reader_of(bootstrap, topic, 2, isolation_level="read_committed") as consumer:
        got = receive(consumer, 60)
    for part in (0, 1):
        assert [record.value for record in got if record.partition == part] == wanted[part]
    assert values_of(read_settled(bootstrap, topic, 2)) == wanted


def test_a_reader_waits_at_an_open_transaction(bootstrap, producer_of, topic, fresh) -> None:
    create(bootstrap, topic)
    slow = producer_of(transactional_id=fresh("slow"))
    slow.init_transactions()
    slow.begin_transaction()
    slow.send(topic, b"slow")
    slow.flush()
    producer_of().send(topic, b"plain").get(10)
    with reader_of(bootstrap, topic, isolation_level="read_committed") as consumer:
        assert consumer.poll(timeout_ms=500) == {}
        slow.commit_transaction()
        assert [record.value for record in receive(consumer, 2)] == [b"slow", b"plain"]


def test_offsets_come_with_the_commit_and_not_with_an_abort(
    bootstrap,
    producer_of,
    topic,
    group,
    fresh,
) -> None:
    create(bootstrap, topic)
    part, writer = TopicPartition(topic, 0), producer_of()
    for number in range(8):
        writer.send(topic, b"%d" % number)
    writer.flush()
    producer = producer_of(transactional_id=fresh("writer"))
    producer.init_transactions()
    with consumer_of(bootstrap, topic, group=group, isolation_level="read_committed") as consumer:
        receive(consumer, 8)

        def send_offsets(offset: int) -> None:
            offsets = {part: OffsetAndMetadata(offset, "", -1)}
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())

        producer.begin_transaction()
        send_offsets(3)
        producer.abort_transaction()
        assert consumer.committed(part) is None
        transact(producer, lambda: send_offsets(7))
        assert consumer.committed(part) == 7


def test_a_second_producer_with_the_same_id_fences_the_first(
    bootstrap,
    producer_of,
    topic,
    fresh,
) -> None:
    create(bootstrap, topic)
    name = fresh("writer")
    zombie, heir = (producer_of(transactional_id=name) for _ in range(2))
    zombie.init_transactions()
    zombie.begin_transaction()
    zombie.send(topic, b"from the dead")
    zombie.flush()
    heir.init_transactions()
    transact(heir, lambda: heir.send(topic, b"heir"))
    with pytest.raises(FENCED):
        zombie.commit_transaction()
    assert values_of(read_settled(bootstrap, topic)) == {0: [b"heir"]}
