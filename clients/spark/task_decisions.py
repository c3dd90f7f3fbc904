"""`transactions=task`: for brokers without transaction groups, such as Kafka. Each task commits for itself.

INVARIANT  a task's rows of a batch are committed together with the record that says so, once.
PREVENTS   a task that is run again after it committed, and writes its rows twice.
PROVED BY  tests/spark/test_spark_task_decisions.py::test_a_task_that_committed_is_not_written_again

The record is in a compacted topic: one key for each task of a query, its value the highest batch that it committed.
 1. An attempt begins with its task's one transactional id: earlier attempts are fenced, their transactions over.
 2. Then it reads the record, up to what was there when it began. A batch that was committed is left out.
 3. It writes its rows, then the record, and commits.
What is not promised: the batch as a whole. Readers see a task's rows before those of another, and for longer when the
query fails in between. And a task must get the same rows when it is run again.

A key's partition does not follow from how many there are now, or attempts that see another number would not find it. A
topic that has more than it is made with here was made by somebody, or given more since, and may have records of
builds that went by what they saw: all of it is read. One that has just this number may have had fewer: a key is looked for where
it would have been then, too. One that has fewer is refused: who says so may be a broker that was cut off before it was given more.

A key of a save() without a number is asked for by the attempts of that save() alone. Whoever reads it a week later, and
commits, leaves a tombstone for it: the topic does not grow with the writes. Not sooner, and not when the save() ends: an
attempt that was thought dead may begin after that, and must find what was committed.

A leader of Kafka's that was cut off and deposed tells the end that it knew, before the record of 3. So an attempt writes a tombstone
for nobody first, and reads up to there: what was acknowledged just now is behind all that was committed, and no deposed leader has it.
"""

import json
import logging
import re
import time
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple
from zlib import crc32

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ..transactional.asking_again import retrying_for
from ..transactional.inputs import CHECKED, UNREADABLE
from ..transactional.kept_topics import ensure_topic, losing_policy
from .task_owners import TaskOwners

PARTITIONS: Final = 8
# Compacted soon: an attempt reads a partition of it from the beginning.
CONFIG: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": "1048576",
    "segment.ms": "600000",
}
CREATE_S: Final = 30.0
READ_S: Final = 120.0  # other tasks' records are open only while they commit
CALL_S: Final = 10.0
NEW_CLIENT_S: Final = 0.5
NOT_YET: Final = -1
END_KEY: Final = b"the end"  # of a record that nobody reads
# `place_in_batch`: the group of a save() without a number.
USED_ONCE: Final = re.compile(
    rb"spark-batch-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}::job\.p\d+"
)
KEPT_S: Final = 7 * 86_400.0
TOMBSTONES_MAX: Final = 1_000  # that one attempt writes


PROMISED: Final = (
    "transactions=task: a row of a batch that Spark finished is there once, if a task that is run again has the same rows; "
    "readers see a batch task by task, and not as a whole, and of one that fails they see what tasks had committed"
)

log = logging.getLogger("fencepost.clients")


@cache
def say_what_is_promised(topic: str | None, group: str | None) -> None:
    """By the driver, which plans each batch of a stream anew: once for each Python that it keeps for that. A warning, as nobody
    is shown less there."""
    log.warning("%s: %s", topic or group or "a sink", PROMISED)


class NotKept(RuntimeError):
    """The topic loses records one day: why, and what to do."""


class TooFewPartitions(RuntimeError):
    """The topic was made by somebody, or the broker that was asked does not know what it was given since."""


class UnreadableDecision(RuntimeError):
    """What a task committed may be there, and can't be read: where, why, and what to do."""


class Last(NamedTuple):
    """What a task committed last, and the marks of its rows; older builds noted none."""

    batch: int
    rows: str = ""


class DecisionRecords:
    """Of one task; asked by one attempt after it has begun. `formerly` is what older builds called the task."""

    def __init__(
        self,
        bootstrap: str,
        client: Mapping[str, str],
        topic: str,
        key: str,
        *,
        formerly: str | None = None,
        owners: TaskOwners | None = None,
    ) -> None:
        self._client = {"bootstrap.servers": bootstrap, **client}
        self._topic = topic
        self._key = key.encode()
        self._keys = sorted({self._key, (formerly or key).encode()})
        self._partition = self._owners_partition = NOT_YET
        self._owners = owners
        self._useless: set[tuple[int, bytes]] = set()  # in which partition, and whose

    def last(self) -> Last:
        """The highest batch that this task has committed; NOT_YET when there is none."""
        count = self._ready()
        self._partition = crc32(self._key) % PARTITIONS
        keys = list(self._keys)
        if self._owners is not None:
            self._owners_partition = crc32(self._owners.beginning) % PARTITIONS
            keys.append(self._owners.beginning)
        fewer = range(1, PARTITIONS + 1)
        wanted = sorted({crc32(key) % each for key in keys for each in fewer})
        places = [
            TopicPartition(self._topic, each, 0)
            for each in (wanted if count == PARTITIONS else range(count))
        ]
        settings = {
            **CHECKED,
            **self._client,
            "group.id": "fencepost-spark",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
        at_least = self._acknowledged({self._partition, self._owners_partition} - {NOT_YET})
        ends = self._ends(places, settings, at_least)
        consumer = Consumer({**settings, "isolation.level": "read_committed"})
        try:
            consumer.assign(places)
            return max(self._found(consumer, ends), key=_batch, default=Last(NOT_YET))
        finally:
            consumer.close()

    def _found(self, consumer: Consumer, ends: Mapping[int, int]) -> Iterator[Last]:
        """Up to `ends`, which an open transaction of another task may keep us from for a moment."""
        deadline = time.monotonic() + READ_S
        left = {partition for partition in ends if ends[partition] > 0}
        stable: dict[int, int] = {}  # where what is committed ended, before where we want to be
        trouble: KafkaError | None = None
        while left:
            for message in consumer.consume(500, 0.1):
                error = message.error()
                if error is None:
                    self._look_at(message)
                    if message.key() in self._keys and message.value() is not None:
                        told = json.loads(message.value())
                        yield Last(told["batch"], str(told.get("rows", "")))
                    next_offset = message.offset() + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    next_offset = stable[message.partition()] = message.offset()
                elif error.code() in UNREADABLE:
                    next_offset = self._unless_ours(message, ends[message.partition()])
                else:
                    trouble = error
                    continue
                if next_offset >= ends[message.partition()]:
                    left.discard(message.partition())
            if left and time.monotonic() > deadline:
                which = min(left)
                raise TimeoutError(
                    f"{self._topic}-{which} can't be read up to {ends[which]} in {READ_S:g} s: "
                    f"{_in_the_way(stable.get(which), trouble)}"
                )

    def _unless_ours(self, message: Message, end: int) -> int:
        """Where damage is that lies behind all that is looked for."""
        error, offset = message.error(), message.offset()
        if offset is not None and offset >= end:
            return int(offset)
        what_to_do = (
            "Raise kafka.receive.message.max.bytes and kafka.fetch.message.max.bytes"
            if error.code() == KafkaError.MSG_SIZE_TOO_LARGE
            else "The brokers' logs say what is damaged, and how it is mended. Another decisionTopic knows nothing of what is "
            "committed: a batch that was not finished is then written twice"
        )
        where = "" if offset is None else f" from offset {offset} on"
        raise UnreadableDecision(
            f"{self._topic}-{message.partition()}: what is there{where} can't be read: {error.name()}: {error.str()}. Whether this "
            f"task has committed is not known, and nothing of it was written. {what_to_do}"
        )

    def _look_at(self, message: Message) -> None:
        """Whether it says who has the group, or is of a write that nobody asks for any more."""
        key, (_, at_ms) = message.key(), message.timestamp()
        if self._owners is not None:
            self._owners.look_at(key, message.value())
        if key is None or key in self._keys or not USED_ONCE.fullmatch(key):
            return
        which = (message.partition(), key)
        is_old = 0 < at_ms < (time.time() - KEPT_S) * 1000
        is_useless = is_old and message.value() is not None
        (self._useless.add if is_useless else self._useless.discard)(which)

    def records(self, batch: int, rows: str = "") -> list[dict[str, Any]]:
        """What to produce, in the transaction of the rows: this task's word, and tombstones for what nobody needs."""
        told = {"batch": batch, **({"rows": rows} if rows else {})}
        own = self._record(self._partition, self._key, json.dumps(told).encode())
        claims = [] if self._owners is None else self._owners.claims()
        owners = [self._record(self._owners_partition, *each) for each in claims]
        useless = sorted(self._useless)[:TOMBSTONES_MAX]
        return [own, *owners, *(self._record(partition, key, None) for partition, key in useless)]

    def _record(self, partition: int, key: bytes, value: bytes | None) -> dict[str, Any]:
        return {"topic": self._topic, "partition": partition, "key": key, "value": value}

    def _acknowledged(self, partitions: Collection[int]) -> dict[int, int]:
        """How far each goes at least."""
        producer = Producer({**self._client, "acks": "all"})

        def write() -> dict[int, int]:
            told: list[tuple[KafkaError | None, Message]] = []
            for each in sorted(partitions):
                where = {"partition": each, "on_delivery": lambda *done: told.append(done)}
                producer.produce(self._topic, key=END_KEY, value=None, **where)
            producer.flush(CREATE_S)
            for error, _ in told:
                if error is not None:
                    raise KafkaException(error)
            return {message.partition(): message.offset() + 1 for _, message in told}

        found: dict[int, int] = retrying_for(
            CREATE_S, write, also=(KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._MSG_TIMED_OUT)
        )
        if set(found) != set(partitions):
            raise TimeoutError(
                f"{self._topic}: no record was acknowledged in {CREATE_S:g} s: are the leaders of the partitions "
                f"{sorted(partitions)} there, and enough replicas in sync?"
            )
        return found

    def _ends(
        self, places: list[TopicPartition], settings: Mapping[str, Any], at_least: Mapping[int, int]
    ) -> dict[int, int]:
        """What was there when we began. A new client asks another broker whom it takes for the leader."""
        deadline = time.monotonic() + CREATE_S
        while True:
            ends = self._ends_once(places, settings)
            short = min((each for each in at_least if ends[each] < at_least[each]), default=None)
            if short is None:
                return ends
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{self._topic}-{short} ends at {ends[short]}, say those that were asked for {CREATE_S:g} s, and what is before "
                    f"{at_least[short]} was acknowledged: is a broker cut off from its cluster? Spark tries the task again"
                )
            time.sleep(NEW_CLIENT_S)

    def _ends_once(
        self, places: list[TopicPartition], settings: Mapping[str, Any]
    ) -> dict[int, int]:
        """A topic that was just made has no leader for a moment."""
        consumer = Consumer({**settings, "isolation.level": "read_uncommitted"})

        def end(place: TopicPartition) -> int:
            _, found = retrying_for(
                CREATE_S,
                lambda: consumer.get_watermark_offsets(place, CALL_S),
                also=(KafkaError.UNKNOWN_TOPIC_OR_PART,),
            )
            return int(found)

        try:
            return {place.partition: end(place) for place in places}
        finally:
            consumer.close()

    def _ready(self) -> int:
        """How many partitions the topic has. It is there, and keeps what is in it."""
        count = ensure_topic(self._client, self._topic, PARTITIONS, config=CONFIG)
        if count < PARTITIONS:
            raise TooFewPartitions(
                f"the topic {self._topic} has {count} partitions, says the broker that was asked, and records of what was written "
                f"are kept in {PARTITIONS}. Give it that many, or name another topic with decisionTopic; if it has them, see whether "
                "a broker is cut off from its cluster. Nothing of this task was written"
            )
        policy = losing_policy(self._client, self._topic)
        if policy is not None:
            raise NotKept(
                f"the topic {self._topic} has cleanup.policy={policy}: the records of what was written would be deleted one "
                "day, and their batches written again. Set it to compact, or name another topic with decisionTopic. Nothing "
                "of this task was written"
            )
        return count


def _in_the_way(stable: int | None, trouble: KafkaError | None) -> str:
    """An open transaction, if its leader has said where what is committed ends; else it has said nothing."""
    if stable is not None:
        return f"an open transaction is in the way, at {stable}. It ends with its transaction.timeout.ms"
    said = (
        "" if trouble is None else f" (the last that was heard: {trouble.name()}: {trouble.str()})"
    )
    return f"its leader does not answer{said}. Are all nodes there? Spark tries the task again"


def _batch(last: Last) -> int:
    return last.batch
