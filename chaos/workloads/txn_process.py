"""What all processes of transactional work share: notes, a consumer, a producer that starts anew with the same id.

INVARIANT  a transaction is written down, with everything that it is going to send, before its first record is sent; what a
           broker serves and nobody can have sent is written down, too.
PREVENTS   a checker that takes a record for a phantom whose sender was killed before it could say what it had done; damage
           that nobody hears of, because who was served it died of it, or went on.
PROVED BY  tests/chaos/test_txn_worker.py::test_a_transaction_is_written_down_before_it_begins_and_when_it_has_ended,
           tests/chaos/test_txn_worker.py::test_damage_that_is_served_is_written_down_and_the_client_goes_on
"""

import argparse
import os
import random
import signal
import time
from collections.abc import Callable
from typing import Any, Final, TextIO

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from fencepost.clients.transactional.bounded import CallHangs, bounded
from fencepost.clients.transactional.telling_producer import TellingProducer

from ..checkers.availability import NO_END, ON_PURPOSE
from ..checkers.history import Kind
from ..checkers.txn_history import Polled, Txn, to_line
from .heartbeat import Heartbeat
from .txn_keys import key_of, payload

BANK, LIST = "bank", "list"
SLOTS_MAX: Final = 64  # workers of a run, twins among them: numbers are unique among them
SENDS_MAX: Final = 8  # of a transaction
PATIENCE_S: Final = 90.0  # with one transaction that librdkafka says may go on
CALL_S: Final = 10.0
# librdkafka's send_offsets_to_transaction may wait for a coordinator that is gone, with no end (clients' `bounded.py`).
HANGS_S: Final = 20.0
HANGS: Final = "hangs: "  # begins what is noted of its transaction
SLEEPS_AT_COMMIT: Final = signal.SIGUSR1
SESSION_MS: Final = 6_000
ABORT_ODDS: Final = 0.1
DAWDLE_ODDS: Final = 0.02
# A paused node answers nothing and closes nothing: a client learns of it by its own timeout alone.
CLIENT: Final[dict[str, Any]] = {
    "socket.timeout.ms": 4_000,
    "topic.metadata.refresh.interval.ms": 1_000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 300,
    "log_level": 0,
    "check.crcs": True,  # of what is consumed; librdkafka does not look unless it is told to
}
# What librdkafka says of a batch that it cannot take apart. It stays before it, and says so each time that it was served.
DAMAGE: Final = frozenset(
    {KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError._NOT_IMPLEMENTED}
)
SHOWN: Final = 100  # bytes of a record that is none


class ChangedMind(Exception):
    """The client aborts for reasons of its own."""


class Damaged(Exception):
    """What was served is nothing that these clients send; the sentence says what it is."""


def parse(data: bytes) -> tuple[int, int, int]:
    """Number, value, extra."""
    try:
        number, value, extra = map(int, data.split(b"/"))
    except ValueError:
        raise Damaged(
            f"a record of {len(data)} bytes that nobody sends: {data[:SHOWN]!r}"
        ) from None
    return number, value, extra


def place_of(key: str, offset: int = OFFSET_INVALID) -> TopicPartition:
    topic, _, partition = key.rpartition("-")
    return TopicPartition(topic, int(partition), offset)


def polled_of(message: Message) -> Polled:
    number, value, extra = parse(message.value() or b"")
    key = key_of(message.topic() or "", message.partition() or 0)
    return Polled(key, message.offset() or 0, value, number, extra)


class DamageSeen:
    """Of each place it is noted once by a process, however often that was served."""

    def __init__(self) -> None:
        self._places: set[tuple[str, int]] = set()

    def at(self, process: str, message: Message, what: object) -> list[Txn]:
        """What is to be noted."""
        key = key_of(message.topic() or "", message.partition() or 0)
        place = key, message.offset() or 0
        if place in self._places:
            return []
        self._places.add(place)
        now = time.monotonic()
        found = Txn("damaged", "info", process, began_s=now, ended_s=now, why=str(what))
        found.positions = dict([place])
        return [found]


class Worker:
    """What all roles share: the notes, a consumer, numbers that rise with time, one life after another."""

    def __init__(self, chosen: argparse.Namespace, notes: TextIO) -> None:
        self.chosen = chosen
        self.rng = random.Random(f"{chosen.seed}-{chosen.slot}-{chosen.life}")
        self.stopping = False
        self.is_to_sleep = False  # at its next commit
        self.positions: dict[str, int | None] = {}  # assigned, and where the next poll begins
        self._notes = notes
        self._number = 0
        self._lives = 0
        self._damage = DamageSeen()
        self.heart = Heartbeat()
        self.process = ""

    def stop(self, *_: object) -> None:
        self.stopping = True

    def sleep_at_commit(self, *_: object) -> None:
        self.is_to_sleep = True

    def obey(self) -> None:
        """SIGTERM ends it behind the operation that is under way; after SIGUSR1 it stops itself before a commit. It ends
        itself when librdkafka does not come back."""
        self.heart.watch()
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(SLEEPS_AT_COMMIT, self.sleep_at_commit)

    def note(self, op: Txn) -> None:
        self._notes.write(f"{to_line(op)}\n")
        self._notes.flush()
        self.heart.beat()

    def next_number(self) -> int:
        """Unique in a run, and rising with the time, for all processes of this machine."""
        now = time.monotonic_ns() // 1000 * SLOTS_MAX + self.chosen.slot
        self._number = max(now, self._number + SLOTS_MAX)
        return self._number

    def born(self) -> None:
        self._lives += 1
        self.process = f"{self.chosen.role}-{self.chosen.slot}.{self.chosen.life}.{self._lives}"

    def keys_of(self, topic: str) -> list[str]:
        return [key_of(topic, number) for number in range(self.chosen.partitions)]

    def pause(self) -> None:
        time.sleep(self.rng.random() * 2 / self.chosen.rate)

    def consumer(self, group: str = "", *, begin: str = "error") -> Consumer:
        return Consumer(
            CLIENT
            | {
                "bootstrap.servers": self.chosen.bootstrap,
                "group.id": group or self.process,
                "session.timeout.ms": SESSION_MS,
                "enable.auto.commit": False,
                "auto.offset.reset": begin,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 100,
                "error_cb": lambda _: None,
            }
        )

    def close(self, consumer: Consumer) -> None:
        """It waits for a rebalance that is under way; once it was seen to wait for ever."""
        consumer.close()
        self.heart.beat()

    def poll(self, consumer: Consumer, op: Txn, most: int, seconds: float) -> None:
        # With a rebalance in it, this, too, was seen to wait for ever.
        messages = consumer.consume(most, timeout=seconds)
        self.heart.beat()
        for message in messages:
            error = message.error()
            if error is not None:
                # Of a message's error librdkafka does not say what may help: but for a fatal one it goes on by itself.
                if error.code() in DAMAGE:
                    self._note_damage(message, error)
                if error.fatal():
                    raise KafkaException(error)
                continue
            try:
                polled = polled_of(message)
            except Damaged as damaged:
                self._note_damage(message, damaged)
                continue
            op.polls.append(polled)
            self.positions[polled.key] = polled.offset + 1

    def _note_damage(self, message: Message, what: object) -> None:
        for op in self._damage.at(self.process, message, what):
            self.note(op)


class Transactor(Worker):
    """A worker with a producer. After what ends it for good it starts anew with the same id."""

    producer: Producer

    def run(self) -> None:
        while not self.stopping:
            self.born()
            self.producer = self._new_producer()
            if self._init():
                self.live()

    def live(self) -> None:
        raise AssertionError("each role has its own")

    def _new_producer(self) -> Producer:
        return TellingProducer(
            CLIENT
            | {
                "bootstrap.servers": self.chosen.bootstrap,
                "transactional.id": self.chosen.transactional_id,
                "transaction.timeout.ms": self.chosen.timeout_ms,
                "linger.ms": 1,
                "retry.backoff.ms": 50,
                "error_cb": lambda _: None,
            }
        )

    def _init(self) -> bool:
        return self._call(lambda: self.producer.init_transactions(CALL_S)) is None

    def _call(self, call: Callable[[], None]) -> KafkaError | None:
        """Again as long as librdkafka says so; the error that says otherwise."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self.heart.beat()
            try:
                call()
                return None
            except KafkaException as failed:
                error: KafkaError = failed.args[0]
                if not error.retriable() or time.monotonic() > deadline:
                    return error

    def transact(self, op: Txn, consumer: Consumer | None = None) -> bool:
        """Whether this producer may go on. `op` says in the end what is known of the transaction."""
        op.type, op.why, op.began_s = "info", NO_END, time.monotonic()
        self.note(op)
        op.type, op.why, alive = self._tried(op, consumer)
        op.ended_s = time.monotonic()
        self.note(op)
        return alive

    def _tried(self, op: Txn, consumer: Consumer | None) -> tuple[Kind, str, bool]:
        try:
            self._work(op, consumer)
            self._maybe_sleep(op)
        except CallHangs as hangs:
            return "fail", f"{HANGS}{hangs}", False  # its successor fences it
        except (KafkaException, ChangedMind) as failed:
            return "fail", str(failed), self._abort()
        error = self._call(lambda: self.producer.commit_transaction(CALL_S))
        if error is None:
            return "ok", "", True
        # Only an abort that was done proves that no commit was.
        aborted = error.txn_requires_abort() and self._abort()
        return "fail" if aborted else "info", f"commit: {error}", aborted

    def _maybe_sleep(self, op: Txn) -> None:
        """Its records are at the brokers and its commit is not: the whole process stands still until SIGCONT."""
        if not self.is_to_sleep or not op.sends or self.stopping:
            return
        self.is_to_sleep = False
        self.producer.flush(CALL_S)
        os.kill(os.getpid(), signal.SIGSTOP)

    def _work(self, op: Txn, consumer: Consumer | None) -> None:
        self.producer.begin_transaction()
        for at, sent in enumerate(op.sends):
            place = place_of(sent.key)
            data = payload(op.number, sent.value, sent.extra)
            told = self._delivered(op, at)
            self.producer.produce(place.topic, data, partition=place.partition, on_delivery=told)
        if consumer is not None and op.offsets:
            self._send_offsets(op, consumer)
        if self.rng.random() < DAWDLE_ODDS:
            self.producer.flush(CALL_S)
            op.slept_s = self.rng.random() * 2 * self.chosen.timeout_ms / 1000
            self.note(op)
            time.sleep(op.slept_s)
            self.heart.beat()
        if self.rng.random() < ABORT_ODDS:
            if self.rng.random() < 0.5:
                self.producer.flush(CALL_S)
            raise ChangedMind(ON_PURPOSE)

    def _delivered(self, op: Txn, at: int) -> Callable[[KafkaError | None, Message], None]:
        def note(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is None and offset is not None and offset >= 0:
                op.sends[at] = op.sends[at]._replace(offset=offset)

        return note

    def _send_offsets(self, op: Txn, consumer: Consumer) -> None:
        offsets = []
        for place, position in op.offsets.items():
            topic, _, partition = place.partition("|")[2].rpartition("-")
            offsets.append(TopicPartition(topic, int(partition), position, str(op.number)))
        metadata = consumer.consumer_group_metadata()
        producer = self.producer  # whatever this worker has by the time when the call ends

        def send() -> None:
            producer.send_offsets_to_transaction(offsets, metadata, CALL_S)

        error = self._call(lambda: bounded(send, HANGS_S, "send_offsets_to_transaction"))
        if error is not None:
            raise KafkaException(error)

    def _abort(self) -> bool:
        return self._call(lambda: self.producer.abort_transaction(CALL_S)) is None
