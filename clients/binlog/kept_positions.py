"""Positions in a compacted topic: written in the same transaction as the records that they stand for.

    positions = KeptPositions({"bootstrap.servers": …}, "fencepost-binlog-positions")
    positions.prepare()
    producer.init_transactions()              # first: what the last incarnation left open is decided then
    text = positions.read("shop")             # None when there is none
    …
    producer.begin_transaction()
    producer.produce(…)                       # the records
    positions.write(producer, "shop", text)   # and how far they go
    producer.commit_transaction()

INVARIANT  what is read is the last position that was committed, however many others write to the topic.
PREVENTS   a source that finds its position behind another one's open transaction, takes an older one, and writes twice.
PROVED BY  tests/binlog/test_binlog_positions.py::test_a_position_behind_an_open_transaction_is_waited_for
"""

import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

ASK_S: Final = 20.0
READ_S: Final = 90.0  # for the open transactions of others to end
SETTLES_S: Final = 20.0  # until a new topic is known everywhere
COMPACT: Final = {"cleanup.policy": "compact"}
# Of producers and consumers alone: the others take them as unknown settings.
OF_PRODUCERS: Final = (
    "compression.",
    "linger.ms",
    "batch.",
    "message.",
    "queue.buffering.",
    "acks",
)


class NotReadable(Exception):
    """The end of a topic can't be reached: which one, why, and what to do."""


class KeptPositions:
    def __init__(self, client: Mapping[str, str], topic: str) -> None:
        self._client = dict(client)
        self.topic = topic

    def prepare(self, replication: int = -1) -> None:
        """The topic is there, and compacted."""
        ensure_topic(self._client, self.topic, 1, replication, COMPACT)
        check_compacted(self._client, self.topic)

    def read(self, name: str) -> str | None:
        found = latest_by_key(self._client, self.topic).get(name.encode())
        return None if found is None else found.decode()

    def write(self, producer: Producer, name: str, position: str) -> None:
        producer.produce(self.topic, key=name.encode(), value=position.encode())


def readers(client: Mapping[str, str]) -> dict[str, str]:
    return {name: client[name] for name in client if not name.startswith(OF_PRODUCERS)}


def ensure_topic(
    client: Mapping[str, str],
    topic: str,
    partitions: int,
    replication: int,
    config: Mapping[str, str] | None = None,
) -> int:
    """How many partitions it has."""
    admin = AdminClient(readers(client))
    known = _partitions(admin, topic)
    if known:
        return known
    wanted = NewTopic(topic, partitions, replication, config=dict(config or {}))
    try:
        admin.create_topics([wanted])[topic].result(ASK_S)
    except KafkaException as trouble:
        if trouble.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    deadline = time.monotonic() + SETTLES_S
    while not (known := _partitions(admin, topic)):
        if time.monotonic() > deadline:
            raise NotReadable(
                f"the topic {topic} was created and is not there after {SETTLES_S:g} s"
            )
        time.sleep(0.05)
    return known


def _partitions(admin: AdminClient, topic: str) -> int:
    """0 while it is not there."""
    found = admin.list_topics(timeout=ASK_S).topics.get(topic)  # all: asking for one may create it
    return 0 if found is None or found.error is not None else len(found.partitions)


def check_compacted(client: Mapping[str, str], topic: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient(readers(client))
    policy = admin.describe_configs([resource])[resource].result(ASK_S)["cleanup.policy"].value
    if "compact" not in policy or "delete" in policy:
        raise NotReadable(
            f"the topic {topic} has cleanup.policy={policy}: what it keeps would be deleted one day. Set it to compact, or "
            "name another topic"
        )


def latest_by_key(client: Mapping[str, str], topic: str) -> dict[bytes, bytes]:
    """All keys of a topic with the last value that was committed; none for a key that was deleted."""
    plain = {**readers(client), "group.id": "fencepost-binlog-reads", "enable.auto.commit": "false"}
    any_end = Consumer({**plain, "isolation.level": "read_uncommitted"})
    consumer = Consumer(
        {**plain, "isolation.level": "read_committed", "enable.partition.eof": "true"}
    )
    try:
        known = any_end.list_topics(topic, ASK_S).topics[topic]
        if known.error is not None:
            raise KafkaException(known.error)
        ends = {}
        starts = []
        for number in sorted(known.partitions):
            # Of everything that is written, not of what is decided: our own may lie behind another's open transaction.
            low, high = any_end.get_watermark_offsets(TopicPartition(topic, number), ASK_S)
            starts.append(TopicPartition(topic, number, low))
            if high > low:
                ends[number] = high
        consumer.assign(starts)
        return _read_to(consumer, topic, ends)
    finally:
        consumer.close()
        any_end.close()


def _read_to(consumer: Consumer, topic: str, ends: dict[int, int]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    deadline = time.monotonic() + READ_S
    while ends:
        if time.monotonic() > deadline:
            raise NotReadable(
                f"{topic}-{min(ends)}: a transaction before offset {ends[min(ends)]} has been open for {READ_S:g} s. "
                f"`fencepost txn find-hanging` names it"
            )
        for message in consumer.consume(1_000, 0.1):
            _take(message, found, ends)
    return found


def _take(message: Any, found: dict[bytes, bytes], ends: dict[int, int]) -> None:
    error, partition = message.error(), message.partition()
    at_end = ends.get(partition)
    if error is None:
        if message.value() is None:
            found.pop(message.key(), None)
        else:
            found[message.key()] = message.value()
        if at_end is not None and message.offset() >= at_end - 1:
            del ends[partition]
    elif error.code() == KafkaError._PARTITION_EOF:
        if at_end is not None and message.offset() >= at_end:
            del ends[partition]
    elif error.fatal():
        raise KafkaException(error)
