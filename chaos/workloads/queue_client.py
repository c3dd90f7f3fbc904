"""One process of Jepsen's queue workload over librdkafka, which may be killed at any instant.

    python -m fencepost.chaos.workloads.queue_client --slot 3 --life 1 --bootstrap … --notes queue-3.1.jsonl

Sends of rising numbers and polls, alone or mixed in transactions of one to four steps; aborts on purpose before any step;
assigns or subscribes to keys that are in use; after everything that is not `ok` the consumer goes back to the first offset
that the operation polled. A process that is told that it is fenced comes back as another one: with another transactional id,
and another consumer. The notes are lines of `txn_history`; of a number the last line counts. Key k is partition k % 2
of topic t{k // 2}; a key that was written to often enough is left for the next one.

INVARIANT  what a transaction sends is written down before it begins, what it consumes before its positions are sent.
PREVENTS   a record that nobody sent, and a gap in what a group consumed, that a killed client had filled.
PROVED BY  tests/chaos/test_queue_client.py::test_what_a_transaction_consumes_is_written_down_before_its_positions_are_sent
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TextIO

from confluent_kafka import OFFSET_STORED, Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Place
from fencepost.clients.transactional.telling_producer import TellingProducer

from ..checkers.availability import NO_END, ON_PURPOSE
from ..checkers.txn_history import Sent, Txn
from .queue_topics import Topics, key_name, keys_beside
from .txn_keys import key_of, payload
from .txn_process import CLIENT, SENDS_MAX, SLOTS_MAX, ChangedMind, Transactor, place_of

GROUP: Final = "queue"  # of all that subscribe; who assigns has one for itself
STEPS_MAX: Final = 4
CHOOSE_ODDS: Final = 1 / 64  # to assign or subscribe anew, and to ask where keys end
UNSEEN_ODDS: Final = 1 / 3  # to choose what was sent and not polled, too
ABORT_ODDS: Final = 0.1  # before each step and before the commit
SLOW_ODDS: Final = 0.5  # of transactions that pause between their steps
SLOW_S: Final = 0.05
NEVER: Final = float("inf")
SEND_S: Final = 10.0
POLL_S: Final = 0.1
POLL_MAX: Final = 200
# librdkafka asks a coordinator that has moved where a group is, is told so, and never asks again (its issue 5586, in 2.16):
# what was assigned is not begun, on any broker, before it is assigned anew. A consumer of ours does that, and notes it.
BEGUN_S: Final = 5.0
AGAIN: Final = "again: it was not begun"
# What the broker has certainly refused, whatever came before; all else may have been written.
CERTAINLY_NOT: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)


class QueueClient(Transactor):
    """Lives as one process after another, each of which either assigns or subscribes."""

    def __init__(self, chosen: argparse.Namespace, notes: TextIO) -> None:
        super().__init__(chosen, notes)
        self.topics = Topics(chosen.bootstrap, chosen.copies)
        first = max(0, chosen.newest_key + 1 - chosen.keys)
        self.window = list(range(first, first + chosen.keys))
        self.writes: Counter[int] = Counter()
        self.unseen: dict[str, int] = {}  # sent and not polled by this process: key -> newest value
        self.subscribes = False
        self.steps: list[int | None] = []  # of the operation under way: None polls, a number sends
        self._mine: list[str] = []  # what the group has given
        self._committed: dict[str, int] = {}  # by transactions of this process
        self._moved: list[str] = []  # keys that came or went during the operation
        self._begins_s = NEVER  # when what is assigned and was never polled should have begun

    @property
    def group(self) -> str:
        return GROUP if self.subscribes else self.process

    def run(self) -> None:
        while not self.stopping:
            self.born()
            self.subscribes = self.rng.choice(self.chosen.via.split(",")) == "subscribe"
            self.producer = self._new_producer()
            if not self.chosen.transactions or self._init():
                self.live()
            now = time.monotonic()
            self.note(Txn("crash", "info", self.process, began_s=now, ended_s=now, why="its end"))

    def _new_producer(self) -> Producer:
        if self.chosen.transactions:
            # A fresh id each time: nobody fences what the one before has left open, it has to time out.
            self.chosen.transactional_id = self.chosen.keeps_id or self.process
            return super()._new_producer()
        settings = {"bootstrap.servers": self.chosen.bootstrap, "enable.idempotence": True}
        waits = {"linger.ms": 1, "retry.backoff.ms": 50, "delivery.timeout.ms": 30_000}
        return TellingProducer(CLIENT | settings | waits | {"error_cb": lambda _: None})

    def live(self) -> None:
        self.positions, self.unseen, self._mine, self._committed = {}, {}, [], {}
        consumer = self.consumer(self.group, begin="earliest")
        alive, chosen = True, False
        try:
            while alive and not self.stopping:
                if not chosen or self.rng.random() < CHOOSE_ODDS:
                    chosen = self._choose(consumer)
                if self.rng.random() < CHOOSE_ODDS:
                    self._ask_ends()
                self._begin_again(consumer, time.monotonic())
                alive = self._operate(consumer)
                self.pause()
        finally:
            self.close(consumer)

    # -- which keys --------------------------------------------------------------------------------

    def _are_there(self, keys: Sequence[int]) -> bool:
        for key in keys:
            if not self.topics.ensure(key):
                return False
            self.heart.beat()
        return True

    def _choose(self, consumer: Consumer) -> bool:
        keys = self.rng.sample(self.window, self.rng.randint(1, len(self.window)))
        if not self._are_there(keys):
            return False
        names = sorted(key_name(key) for key in keys)
        if self.unseen and self.rng.random() < UNSEEN_ODDS:
            names = sorted({*names, *self.unseen})
        now = time.monotonic()
        op = Txn("assign", "ok", self.process, began_s=now, ended_s=now)
        if self.subscribes:
            op.f = "subscribe"  # its keys stay its own until the group takes them
            op.rebalanced = keys_beside(keys)
            topics = sorted({place_of(name).topic for name in names})
            consumer.subscribe(
                topics, on_assign=self._given, on_revoke=self._taken, on_lost=self._taken
            )
        else:
            # What stays assigned goes on where it is; what is new starts where its group has committed.
            self.positions = {name: self.positions.get(name) for name in names}
            op.positions, op.begins = dict.fromkeys(names, 0), self._begins()
            self._assign(consumer)
        self.note(op)
        return True

    def _begin_again(self, consumer: Consumer, now: float) -> None:
        """Unless all that is assigned has been polled since, or its group gives it."""
        if self.subscribes or now < self._begins_s or None not in self.positions.values():
            return
        op = Txn("assign", "ok", self.process, began_s=now, ended_s=now, why=AGAIN)
        op.positions, op.begins = dict.fromkeys(self.positions, 0), self._begins()
        self._assign(consumer)
        self.note(op)

    def _begins(self) -> dict[str, int]:
        """Where it goes on; or where its group has committed; or else at the beginning."""
        return {
            key: self._committed.get(key, 0) if at is None else at
            for key, at in self.positions.items()
        }

    def _assign(self, consumer: Consumer) -> None:
        self._begins_s = time.monotonic() + BEGUN_S
        consumer.assign(
            [
                place_of(key, OFFSET_STORED if at is None else at)
                for key, at in self.positions.items()
            ]
        )

    def _given(self, _consumer: Consumer, given: list[Place]) -> None:
        """All begin where the group has committed."""
        self._mine = [key_of(each.topic, each.partition) for each in given]
        self.positions = dict.fromkeys(self._mine)
        self._moved += self._mine
        now = time.monotonic()
        self.note(Txn("assign", "ok", self.process, began_s=now, ended_s=now))

    def _taken(self, _consumer: Consumer, _taken: list[Place]) -> None:
        self._moved += self._mine
        self._mine, self.positions = [], {}

    def _next_key(self) -> int:
        """One of those in use; one that was written to often enough goes, and a new one comes."""
        at = self.rng.randrange(len(self.window))
        key = self.window[at]
        self.writes[key] += 1
        if self.writes[key] >= self.chosen.writes_max / self.chosen.clients:
            self.window[at] = max(self.window) + 1
        return key

    def _ask_ends(self) -> None:
        op = Txn("ends", "ok", self.process, began_s=time.monotonic())
        op.positions = self.topics.ends([key_name(key) for key in self.window])
        op.ended_s = time.monotonic()
        if op.positions:
            self.note(op)

    # -- one operation -----------------------------------------------------------------------------

    def _operate(self, consumer: Consumer) -> bool:
        count = self.rng.randint(1, STEPS_MAX) if self.chosen.transactions else 1
        keys = [self._next_key() if self.rng.random() < 0.5 else None for _ in range(count)]
        if not self._are_there([key for key in keys if key is not None]):
            return True  # nobody answers; nothing was sent
        number = self.next_number()
        op = Txn("txn", "info", self.process, number)
        self.steps = []
        for key in keys:
            if key is None:
                self.steps.append(None)
            else:
                self.steps.append(len(op.sends))
                op.sends.append(Sent(key_name(key), number * SENDS_MAX + len(op.sends)))
        self._moved.clear()
        if self.chosen.transactions:
            alive = self.transact(op, consumer)
        else:
            alive = self._without_transaction(op, consumer)
        if op.type == "ok":
            self._remember(op)
        elif alive:
            self._rewind(consumer, op)
        return alive

    def _remember(self, op: Txn) -> None:
        self._committed |= {place.partition("|")[2]: at for place, at in op.offsets.items()}
        self.unseen.update((sent.key, sent.value) for sent in op.sends)
        for polled in op.polls:
            if self.unseen.get(polled.key, polled.value + 1) <= polled.value:
                del self.unseen[polled.key]

    def _rewind(self, consumer: Consumer, op: Txn) -> None:
        """To the first that it polled of each key."""
        firsts: dict[str, int] = {}
        for polled in op.polls:
            firsts.setdefault(polled.key, polled.offset)
        if firsts:
            self.positions = {key: firsts.get(key, at) for key, at in self.positions.items()}
            self._assign(consumer)

    def poll(self, consumer: Consumer, op: Txn, most: int, seconds: float) -> None:
        super().poll(consumer, op, most, seconds)
        if self._moved:
            # Nobody knows which of these were polled before and which after: all begin again where the group
            # has committed, and what was polled so far is nobody's to work on. It was shown to us all the same.
            op.rebalanced = sorted({*op.rebalanced, *self._moved})
            self._moved.clear()
            op.shown += op.polls
            op.polls.clear()
            self.positions = dict.fromkeys(self._mine)
            self._assign(consumer)

    # -- with a transaction ------------------------------------------------------------------------

    def _work(self, op: Txn, consumer: Consumer | None) -> None:
        assert consumer is not None, "each process has one"
        self.producer.begin_transaction()
        slow = self.rng.random() < SLOW_ODDS
        before = dict(self.positions)
        for step in self.steps:
            self._maybe_abort()
            if step is None:
                self.poll(consumer, op, POLL_MAX, POLL_S)
            elif error := self._send(op, step):
                raise KafkaException(error)
            if slow:
                time.sleep(self.rng.random() * SLOW_S)
        for key, position in self.positions.items():
            # Of what the group gave meanwhile it was polled from where that had committed, be it to the same place again.
            is_moved = position != before.get(key) or key in op.rebalanced
            if position is not None and is_moved:
                op.offsets[f"{self.group}|{key}"] = position
        if op.polls:
            self.note(
                op
            )  # what it consumes is known, though this process may be killed before it says how that ended
        if op.offsets:
            self._send_offsets(op, consumer)
        self._maybe_abort()

    def _maybe_abort(self) -> None:
        if self.rng.random() < ABORT_ODDS:
            raise ChangedMind(ON_PURPOSE)

    def _send(self, op: Txn, at: int) -> KafkaError | None:
        """Wait for its acknowledgement; without one in time nobody knows."""
        sent = op.sends[at]
        op.sent_s.setdefault(sent.key, time.monotonic())
        place = place_of(sent.key)
        told: list[KafkaError | None] = []
        note = self._delivered(op, at)

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            note(error, message)
            told.append(error)

        data = payload(op.number, sent.value)
        self.producer.produce(place.topic, data, partition=place.partition, on_delivery=on_delivery)
        deadline = time.monotonic() + SEND_S
        while not told and time.monotonic() < deadline:
            self.producer.poll(0.05)
        self.heart.beat()
        return told[0] if told else KafkaError(KafkaError._TIMED_OUT, "no acknowledgement")

    # -- without one -------------------------------------------------------------------------------

    def _without_transaction(self, op: Txn, consumer: Consumer) -> bool:
        op.type, op.why, op.began_s = "info", NO_END, time.monotonic()
        op.f = "send" if op.sends else "read"
        if op.sends:
            self.note(op)
        alive = self._send_alone(op) if op.sends else self._poll_alone(op, consumer)
        op.ended_s = time.monotonic()
        self.note(op)
        return alive

    def _send_alone(self, op: Txn) -> bool:
        error = self._send(op, 0)
        if error is None:
            op.type, op.why = "ok", ""
            return True
        op.type = "fail" if error.code() in CERTAINLY_NOT else "info"
        op.why = f"send: {error}"
        return not error.fatal() and error.code() != KafkaError._FATAL

    def _poll_alone(self, op: Txn, consumer: Consumer) -> bool:
        op.type, op.why = "ok", ""
        self.poll(consumer, op, POLL_MAX, POLL_S)
        if self.subscribes and op.polls:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:  # its reads count all the same
                op.why = f"commit of positions: {error}"
        return True


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description="One process of the queue workload.")
    made.add_argument("--bootstrap", required=True)
    made.add_argument("--slot", type=int, required=True, help=f"below {SLOTS_MAX}; unique")
    made.add_argument("--life", type=int, required=True, help="how often this slot was filled")
    made.add_argument("--notes", type=Path, required=True)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--rate", type=float, default=10.0, help="operations a second")
    made.add_argument("--timeout-ms", type=int, default=6_000, help="of a transaction")
    made.add_argument("--via", default="assign,subscribe", help="either or both")
    made.add_argument("--copies", type=int, default=3, help="replicas of a topic")
    made.add_argument("--keys", type=int, default=8, help="in use at a time")
    made.add_argument("--newest-key", type=int, default=-1, help="that is known of already")
    made.add_argument("--writes-max", type=int, default=1024, help="to a key, by all clients")
    made.add_argument("--clients", type=int, default=5)
    made.add_argument("--no-transactions", dest="transactions", action="store_false")
    made.add_argument(
        "--transactional-id",
        dest="keeps_id",
        default="",
        help="always this one; else each a fresh one",
    )
    made.set_defaults(role="queue", transactional_id="", partitions=2)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parser().parse_args(arguments)
    with chosen.notes.open("a") as notes:
        client = QueueClient(chosen, notes)
        client.obey()
        client.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
