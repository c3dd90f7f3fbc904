"""Transactions with librdkafka: ended, begun anew where it says so, and read to their very end."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from brokers import IN_CHAOS, WAIT_S
from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec
from librdkafka import admin_of, consumer_of, producer_of, until

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
LEVELS = {
    COMMITTED: IsolationLevel.READ_COMMITTED,
    UNCOMMITTED: IsolationLevel.READ_UNCOMMITTED,
}
TRIES = 8  # of a call that may be made again, and of a transaction that had to be aborted


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def transactional(bootstrap: str, transactional_id: str, **options: Any) -> Producer:
    producer = producer_of(bootstrap, transactional_id=transactional_id, **options)
    patiently(lambda: producer.init_transactions(WAIT_S))
    return producer


def patiently(call: Callable[[], None]) -> None:
    """While leaders die, again what librdkafka says may be called again."""
    for left in reversed(range(TRIES)):
        try:
            return call()
        except KafkaException as error:
            if not (IN_CHAOS and left and error.args[0].retriable()):
                raise
    raise AssertionError("the last try returns or raises")


def commit(producer: Producer) -> None:
    patiently(lambda: producer.commit_transaction(WAIT_S))


def abort(producer: Producer) -> None:
    patiently(lambda: producer.abort_transaction(WAIT_S))


def transact(producer: Producer, work: Callable[[], None], *, again: bool = IN_CHAOS) -> None:
    """One transaction, committed; while leaders die, as many aborted ones before it as that takes."""
    for left in reversed(range(TRIES)):
        producer.begin_transaction()
        try:
            work()
            return commit(producer)
        except KafkaException as error:
            if not (again and left and error.args[0].txn_requires_abort()):
                raise
            abort(producer)
    raise AssertionError("the last try returns or raises")


def write(producer: Producer, topic: str, values: Sequence[bytes], partitions: int = 1) -> None:
    """In turn to each partition. What became of them the end of the transaction tells."""
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
        producer.poll(0)


def ends_of(bootstrap: str, topic: str, partitions: int, isolation: str) -> dict[int, int]:
    """Last stable offsets, or high watermarks."""
    wanted = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}
    # An older one asks with the leader epoch that it once heard of, whatever it is told (FENCED_LEADER_EPOCH).
    quiet = {"bootstrap.servers": bootstrap, "log_level": 0}
    admin = AdminClient(quiet) if IN_CHAOS else admin_of(bootstrap)
    futures = admin.list_offsets(wanted, isolation_level=LEVELS[isolation])
    ends = {part.partition: future.result(WAIT_S).offset for part, future in futures.items()}
    if OFFSET_INVALID in ends.values():  # and no error, where a leader does not answer
        raise KafkaException(
            KafkaError(KafkaError._TIMED_OUT, f"a leader of {topic} does not answer")
        )
    return ends


def wait_settled(bootstrap: str, topic: str, partitions: int = 1) -> dict[int, int]:
    """Until no transaction is open in any partition: their ends."""
    ends: dict[int, int] = {}

    def settled() -> bool:
        try:
            ends.update(ends_of(bootstrap, topic, partitions, UNCOMMITTED))
            return ends_of(bootstrap, topic, partitions, COMMITTED) == ends
        except KafkaException:
            if not IN_CHAOS:
                raise
            return False

    until(settled, what=f"no transaction is open in {topic}")
    return ends


def read_to(
    bootstrap: str, topic: str, ends: Mapping[int, int], isolation: str = COMMITTED
) -> list[Message]:
    """All records below the ends; what stands at them may be markers or aborted, so the reader says when it is there."""
    got: list[Message] = []
    left = {partition for partition, end in ends.items() if end > 0}

    def to_the_end() -> bool:
        for message in consumer.consume(1_000, timeout=0.1):
            error = message.error()
            if error is None:
                got.append(message)
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            elif message.offset() >= ends[message.partition()]:
                left.discard(message.partition())
        return not left

    with consumer_of(bootstrap, isolation_level=isolation, enable_partition_eof=True) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        until(to_the_end, what=f"{topic} is read to its ends {ends}")
    return got


def read_settled(
    bootstrap: str, topic: str, partitions: int = 1, isolation: str = COMMITTED
) -> list[Message]:
    """Everything that is there once no transaction is open."""
    return read_to(bootstrap, topic, wait_settled(bootstrap, topic, partitions), isolation)


def values_of(messages: Sequence[Message]) -> dict[int, list[bytes]]:
    """By partition, in order."""
    found: dict[int, list[bytes]] = {}
    for message in messages:
        found.setdefault(message.partition(), []).append(message.value())
    return found
