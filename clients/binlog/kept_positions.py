"""Positions in a compacted topic: written in the same transaction as the records that they stand for.

    positions = KeptPositions({"bootstrap.servers": …}, "fencepost-binlog-positions")
    positions.prepare()
    producer.init_transactions()              # first: what the last incarnation left open is decided then
    text = positions.read(producer, "shop")   # None when there is none
    …
    producer.begin_transaction()
    producer.produce(…)                       # the records
    positions.write(producer, "shop", text)   # and how far they go
    producer.commit_transaction()

INVARIANT  what is read is the last position that was committed, however many others write to the topic (`reading.py`).
PREVENTS   a source that goes on from an older position than its own, and writes twice.
PROVED BY  tests/binlog/test_binlog_positions.py::test_a_position_behind_an_open_transaction_is_waited_for

All is in partition 0, whatever the key. Else:

1. A topic has one partition, and a position in it. Two partitions are added.
2. The next position goes where its key belongs now, into partition 2. Compaction keeps the old one in partition 0 for ever.
3. Who reads all partitions has two positions under one key, and no order between them.

Who goes on from a position has said first how far the topic goes (`acknowledged_end`). Else, with Kafka:

1. A leader is cut off behind the position 1, and deposed. The position 2 is committed at the new one.
2. The source is started again, and the client that it reads with is told of the old leader. What ends there is position 1.
3. It writes what lies between the two once more.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ..transactional.identity import retrying
from ..transactional.kept_topics import ensure_topic, losing_policy
from .reading import NotReadable, read_to_end

COMPACT: Final = {"cleanup.policy": "compact"}
PARTITION: Final = 0  # of all that is kept by key
END_KEY: Final = b"the end"  # of a record that nobody reads: no source can be called so
NO_OFFSET: Final = -1
CALL_S: Final = 5.0
ACKNOWLEDGED_S: Final = 60.0
ABORT_S: Final = 60.0


class Kept(NamedTuple):
    position: str
    offset: int  # a later one has a higher


def refuse_losing(client: Mapping[str, str], topic: str, option: str) -> None:
    """NotReadable for a topic that forgets what is kept in it."""
    policy = losing_policy(client, topic)
    if policy is not None:
        raise NotReadable(
            f"the topic {topic} has cleanup.policy={policy}: what it keeps would be deleted one day. Set it to compact, "
            f"or name another topic ({option})"
        )


class KeptPositions:
    def __init__(self, client: Mapping[str, str], topic: str) -> None:
        self._client = dict(client)
        self.topic = topic

    def prepare(self, replication: int = -1) -> None:
        """The topic is there, has one partition, and is compacted."""
        partitions = ensure_topic(
            self._client, self.topic, 1, replication=replication, config=COMPACT
        )
        if partitions > 1:
            raise NotReadable(
                f"the topic {self.topic} has {partitions} partitions, and a topic of positions must have 1: of two positions under "
                "one name, in two partitions, nothing says which is the later. Create a compacted topic with 1 partition, copy the "
                "last record of each name there, and name that topic instead (--position-topic)"
            )
        refuse_losing(self._client, self.topic, "--position-topic")

    def read(self, producer: Producer, name: str) -> str | None:
        """By whoever goes on from there: a producer between `init_transactions` and its first transaction."""
        found = self.find(name, acknowledged_end(producer, self.topic))
        return None if found is None else found.position

    def find(self, name: str, at_least: int) -> Kept | None:
        """With where it is: two that say the same are told apart. `at_least` is how far the topic is known to go; 0 for who only
        looks, and may be told an older one."""
        found = _latest(self._client, self.topic, at_least).get(name.encode())
        return (
            None if found is None else Kept(found.value().decode(errors="replace"), found.offset())
        )

    def write(self, producer: Producer, name: str, position: str) -> None:
        producer.produce(
            self.topic, key=name.encode(), value=position.encode(), partition=PARTITION
        )


def acknowledged_end(producer: Producer, topic: str) -> int:
    """How far partition 0 goes at least: up to a record that was acknowledged just now, and is aborted. A leader that was deposed,
    and has not heard of it, acknowledges none, and has less."""
    told: list[tuple[KafkaError | None, int]] = []
    producer.begin_transaction()
    producer.produce(
        topic,
        key=END_KEY,
        value=b"",
        partition=PARTITION,
        on_delivery=lambda error, message: told.append((error, message.offset())),
    )
    producer.flush(ACKNOWLEDGED_S)
    error, offset = told[0] if told else (None, NO_OFFSET)
    if error is not None:
        raise KafkaException(error)
    if offset < 0:
        raise TimeoutError(f"nobody has acknowledged a record of {topic} in {ACKNOWLEDGED_S:g} s")
    retrying(lambda: producer.abort_transaction(CALL_S), ABORT_S)
    return offset + 1


def latest_by_key(client: Mapping[str, str], topic: str, at_least: int) -> dict[bytes, bytes]:
    """All keys of partition 0 with the last value that was committed; none for a key that was deleted."""
    found = _latest(client, topic, at_least)
    return {key: found[key].value() for key in found}


def _latest(client: Mapping[str, str], topic: str, at_least: int) -> dict[bytes, Message]:
    found: dict[bytes, Message] = {}
    for message in read_to_end(client, topic, PARTITION, at_least):
        if message.value() is None:
            found.pop(message.key(), None)
        else:
            found[message.key()] = message
    return found
