"""Several idempotent librdkafka producers write unique ascending numbers while the broker is ill-treated.

Each producer runs on a thread, sends to random partitions, and notes what librdkafka tells of each record.
A reader follows along, so that what it saw can be compared with what is there at the end. A record says who
sent it, its number, and fills the rest with bytes that follow from those two, so damage shows as well.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ..checkers.history import FINAL, Operation
from .log_end import log_end

PAYLOADS: Final = ("none", "lz4", "zstd", "snappy", "gzip")  # producer n compresses with the nth
FILL_BYTES_MAX: Final = 1_500
# librdkafka gives up a record only after this: no fault in a run lasts so long.
DELIVERY_TIMEOUT_MS: Final = 300_000
FOLLOWER: Final = "follower"
BATCH_RECORDS_MAX: Final = 40  # small batches, so that five of them are in flight
SHOWN: Final = 100  # bytes of a record that is none
# What librdkafka says only of records that it never handed to a broker, or that a broker refused.
CERTAIN_FAILURES: Final = frozenset(
    {
        KafkaError._PURGE_QUEUE,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.INVALID_RECORD,
    }
)


class NewEpochs:
    """Hears librdkafka say that it begins a new epoch: it sends again under it what may be written already.

    It does so when it is told OUT_OF_ORDER_SEQUENCE_NUMBER behind a batch that was sent back, and nothing else tells: an
    application never hears of it, and mostly nothing was written.
    """

    WORDS: Final = "epoch bump"

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def log(self, _level: int, text: str, *fields: object) -> None:
        """As confluent-kafka calls a logger."""
        said = text % fields
        if self.WORDS in said:
            self._note(f"librdkafka begins a new epoch: {said}")


class Damaged(AssertionError):
    """A record's bytes are not those that its sender wrote."""


def payload(process: int, value: int, size: int) -> bytes:
    head = b"%d:%d:" % (process, value)
    return head + (head * (size // len(head) + 1))[:size]


def parse(data: bytes) -> tuple[int, int]:
    """Who sent it and its number; Damaged when the rest is not what follows from them."""
    try:
        head, number, rest = data.split(b":", 2)
        process, value = int(head), int(number)
    except ValueError:
        raise Damaged(
            f"a record of {len(data)} bytes that nobody sends: {data[:SHOWN]!r}"
        ) from None
    if payload(process, value, len(rest)) != data:
        raise Damaged(f"a record of producer {process} with value {value} has other bytes")
    return process, value


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    bootstrap: str
    topic: str
    partitions: int = 3
    producers: int = 4
    records_per_second: int = 500  # of each producer
    seed: int = 0
    client: Mapping[str, Any] = field(default_factory=dict)  # librdkafka's settings, for all


class IdempotentStream:
    """Start it, ill-treat the broker, stop it, read everything; then `history` is complete.

    `excuse` says why a new epoch is not the broker's fault just now, or nothing; those are in `excused`.
    """

    def __init__(self, plan: Plan, *, excuse: Callable[[], str] = str) -> None:
        self.plan = plan
        self.excused: list[str] = []
        self._excuse = excuse
        self.history: list[Operation] = []  # appended to from all threads, which CPython allows
        self.acknowledged = 0  # so far; a measure of progress, not exact
        self.ends: dict[str, int] = {}  # key -> the highest offset that was acknowledged
        self._shown: dict[str, int] = {}  # and the highest that the follower was shown
        self._stopping = threading.Event()
        self._reading = threading.Event()
        self._outstanding: set[tuple[int, str, int]] = set()
        self._threads = [
            threading.Thread(target=self._produce, args=(number,), name=f"producer-{number}")
            for number in range(plan.producers)
        ]
        self._follower = threading.Thread(target=self._follow, name="follower")

    def start(self) -> None:
        for thread in (*self._threads, self._follower):
            thread.start()

    def stop(self) -> None:
        """No more records; returns when every one of them is acknowledged, failed or given up on."""
        self._stopping.set()
        try:
            for thread in self._threads:
                thread.join()
        finally:  # whoever does not wait for the end leaves no thread that has none
            self._reading.set()
        self._follower.join()
        for process, key, value in sorted(self._outstanding):
            op = Operation("send", "info", process, key, value, error="no answer until the end")
            self.history.append(op)

    @property
    def follows(self) -> bool:
        return self._follower.is_alive()

    def unshown(self, ends: Mapping[str, int]) -> list[str]:
        """Of which partitions the follower was not shown as much."""
        return sorted(key for key, end in ends.items() if self._shown.get(key, -1) < end)

    # -- producing --------------------------------------------------------------------------

    def _produce(self, process: int) -> None:
        plan = self.plan
        rng = random.Random(f"{plan.seed}-{process}")
        producer = Producer(self._producer_config(process), logger=self._listening(process))
        started, value = time.monotonic(), 0
        while not self._stopping.is_set():
            due = int((time.monotonic() - started) * plan.records_per_second)
            while value < due and len(producer) < 5_000:
                value += 1
                self._send(producer, process, value, rng)
            producer.poll(0.005)
        deadline = time.monotonic() + 60
        while len(producer) and time.monotonic() < deadline:
            producer.poll(0.1)

    def _producer_config(self, process: int) -> dict[str, Any]:
        def on_error(error: KafkaError) -> None:
            if error.code() == KafkaError._FATAL:
                self.history.append(Operation("die", "info", process, error=str(error)))

        return {
            "bootstrap.servers": self.plan.bootstrap,
            "client.id": f"producer-{process}",
            "enable.idempotence": True,
            "linger.ms": 2,
            "batch.num.messages": BATCH_RECORDS_MAX,
            "compression.type": PAYLOADS[process % len(PAYLOADS)],
            "message.timeout.ms": DELIVERY_TIMEOUT_MS,
            "retry.backoff.ms": 50,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 300,
            "log_level": 0,
            "debug": "eos",  # for `NewEpochs`
            "error_cb": on_error,
            **self.plan.client,
        }

    def _listening(self, process: int) -> NewEpochs:
        def note(said: str) -> None:
            if excuse := self._excuse():
                self.excused.append(f"client {process}: {said}. {excuse}")
            else:
                self.history.append(Operation("die", "info", process, error=said))

        return NewEpochs(note)

    def _send(self, producer: Producer, process: int, value: int, rng: random.Random) -> None:
        number = rng.randrange(self.plan.partitions)
        key = f"{self.plan.topic}-{number}"
        data = payload(process, value, rng.randrange(FILL_BYTES_MAX))
        self._outstanding.add((process, key, value))
        answered = partial(self._answered, process, key, value, time.monotonic())
        producer.produce(self.plan.topic, data, partition=number, on_delivery=answered)

    def _answered(
        self,
        process: int,
        key: str,
        value: int,
        began_s: float,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        self._outstanding.discard((process, key, value))
        op = Operation("send", "ok", process, key, value, began_s=began_s)
        op.ended_s = time.monotonic()
        if error is not None:
            op.type = "fail" if error.code() in CERTAIN_FAILURES else "info"
            op.error = str(error)
        else:
            self.acknowledged += 1
            # Negative where the broker no longer knew the duplicate's.
            op.offset = offset if (offset := message.offset()) is not None and offset >= 0 else None
            self.ends[key] = max(self.ends.get(key, -1), -1 if op.offset is None else op.offset)
        self.history.append(op)

    # -- reading ----------------------------------------------------------------------------

    def _follow(self) -> None:
        """Read along through all faults, from the beginning."""
        with_partitions = [
            TopicPartition(self.plan.topic, n, 0) for n in range(self.plan.partitions)
        ]
        consumer = self._consumer()
        consumer.assign(with_partitions)
        try:
            while not self._reading.is_set():
                for message in consumer.consume(1000, timeout=0.2):
                    self._saw(FOLLOWER, message)
        except (KafkaException, Damaged) as error:
            self.history.append(Operation("die", "info", FOLLOWER, error=str(error)))
        finally:
            consumer.close()

    def read_all(self, timeout_s: float = 60.0) -> None:
        """The pass after all faults ended: every record from the first to the last."""
        consumer = self._consumer()
        try:
            ends = {}
            for number in range(self.plan.partitions):
                part = TopicPartition(self.plan.topic, number, 0)
                ends[number] = log_end(consumer, part, timeout_s)
            self._read_to(consumer, ends, timeout_s)
        finally:
            consumer.close()

    def _read_to(self, consumer: Consumer, ends: dict[int, int], timeout_s: float) -> None:
        consumer.assign([TopicPartition(self.plan.topic, number, 0) for number in ends])
        behind = {number for number, end in ends.items() if end > 0}
        deadline = time.monotonic() + timeout_s
        while behind:
            if time.monotonic() > deadline:
                raise TimeoutError(f"partitions {sorted(behind)} could not be read to their ends")
            for message in consumer.consume(1000, timeout=0.2):
                self._saw(FINAL, message)
                number, offset = message.partition(), message.offset()
                if offset is not None and offset + 1 >= ends[number or 0]:
                    behind.discard(number or 0)

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.plan.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "check.crcs": True,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 300,
                "log_level": 0,
                "error_cb": lambda _: None,
                **self.plan.client,
            }
        )

    def _saw(self, reader: str, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.retriable() or error.code() == KafkaError._TRANSPORT:
                return
            raise KafkaException(error)
        writer, value = parse(message.value() or b"")
        key = f"{message.topic()}-{message.partition()}"
        op = Operation("read", "ok", reader, key, value, message.offset(), writer)
        if reader == FOLLOWER:
            self._shown[key] = max(self._shown.get(key, -1), message.offset() or 0)
        op.ended_s = time.monotonic()
        self.history.append(op)


Spoil = Callable[[list[Operation]], None]


def _final_reads(history: list[Operation]) -> list[int]:
    return [i for i, op in enumerate(history) if op.f == "read" and op.process == FINAL]


def drop_one(history: list[Operation]) -> None:
    """As if the broker had lost one record."""
    places = _final_reads(history)
    del history[places[len(places) // 2]]


def double_one(history: list[Operation]) -> None:
    """As if a retry had been written a second time, at the end."""
    op = history[_final_reads(history)[0]]
    last = max(o.offset or 0 for o in history if o.f == "read" and o.key == op.key)
    history.append(Operation("read", "ok", FINAL, op.key, op.value, last + 1, op.writer))


def swap_two(history: list[Operation]) -> None:
    """As if two batches of one producer had changed places."""
    seen: dict[tuple[str, int | str | None], int] = {}
    for i in _final_reads(history):
        op = history[i]
        j = seen.setdefault((op.key, op.writer), i)
        if j != i:
            history[i].value, history[j].value = history[j].value, history[i].value
            return


# What a run may be told to do to its own history, to see that the checkers see it.
SPOILS: Final[dict[str, Spoil]] = {"drop": drop_one, "double": double_one, "swap": swap_two}
