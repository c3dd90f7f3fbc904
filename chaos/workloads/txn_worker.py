"""One process of transactional work over librdkafka, which may be killed or stopped at any instant.

    python -m fencepost.chaos.workloads.txn_worker --role teller --slot 3 --life 1 --bootstrap … --notes teller-3.1.jsonl

A teller moves money between accounts, an appender sends rising numbers to lists and polls them, with its positions in the
transaction, a subscriber does the same as a member of one group of them all, and an auditor reads all accounts. The notes
are lines of `txn_history`; of a number the last line counts.
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ..checkers.txn_history import Sent, Txn
from .txn_append import SHARED_GROUP
from .txn_keys import key_of
from .txn_process import BANK, LIST, SENDS_MAX, SLOTS_MAX, Transactor, Worker, place_of

ASSIGN_ODDS: Final = 0.03
END_S: Final = 2.0
TELL_S: Final = 1.0  # at most from one note of an auditor's to the next


class Teller(Transactor):
    def live(self) -> None:
        accounts = self.keys_of(BANK)
        alive = True
        while alive and not self.stopping:
            amount = self.rng.randint(1, 100)
            cents = self.rng.randint(0, amount)
            parts = (amount - cents, cents) if self.rng.random() < 0.3 else (amount,)
            source, target = self.rng.choice(accounts), self.rng.choice(accounts)
            sides = [(source, -amount), *((target, part) for part in parts)]
            number = self.next_number()
            op = Txn("txn", "info", self.process, number)
            op.sends = [
                Sent(key, number * SENDS_MAX + at, None, money)
                for at, (key, money) in enumerate(sides)
            ]
            alive = self.transact(op)
            self.pause()


class Appender(Transactor):
    @property
    def group(self) -> str:
        return self.process

    def live(self) -> None:
        consumer = self.consumer()
        self.positions = {}
        alive = True
        try:
            while alive and not self.stopping:
                if not self.positions or self.rng.random() < ASSIGN_ODDS:
                    self._assign(consumer)
                alive = self._append(consumer)
                self.pause()
        finally:
            self.close(consumer)

    def _assign(self, consumer: Consumer) -> None:
        """What stays assigned goes on where it is; what is new starts at what is stable now."""
        lists = self.keys_of(LIST)
        chosen = self.rng.sample(lists, self.rng.randint(1, min(3, len(lists))))
        begins: dict[str, int] = {}
        for key in chosen:
            at = self.positions.get(key)
            begins[key] = self._end(consumer, key) if at is None else at
        self.positions = {**begins}
        op = Txn("assign", "ok", self.process, began_s=time.monotonic(), ended_s=time.monotonic())
        op.positions, op.begins = dict.fromkeys(chosen, 0), begins
        self.note(op)
        consumer.assign([place_of(key, at) for key, at in begins.items()])

    def _end(self, consumer: Consumer, key: str) -> int:
        """What is stable now; or else the beginning.

        Given OFFSET_END, librdkafka 2.16 asks whoever leads, and asks again when that one falls silent and another leads. If
        it hears the first one after all, it goes to what is the end by then, over all that came in between.
        """
        with contextlib.suppress(KafkaException):
            found = consumer.get_watermark_offsets(place_of(key), timeout=END_S)
            if found is not None:
                return int(found[1])
        return 0

    def _append(self, consumer: Consumer) -> bool:
        number = self.next_number()
        op = Txn("txn", "info", self.process, number)
        before = dict(self.positions)
        if self.rng.random() < 0.6:
            self.poll(consumer, op, 200, 0.1)
        for key, position in self.positions.items():
            if position is not None and position != before.get(key):
                op.offsets[f"{self.group}|{key}"] = position
        count = self.rng.randint(0 if op.polls else 1, 4)
        keys = self.rng.choices(self.keys_of(LIST), k=count)
        op.sends = [Sent(key, number * SENDS_MAX + at) for at, key in enumerate(keys)]
        alive = self.transact(op, consumer)
        if op.type != "ok" and alive:
            self._rewind(consumer, op, before)
        return alive

    def _rewind(self, consumer: Consumer, _op: Txn, before: dict[str, int | None]) -> None:
        for key, at in before.items():
            if at is not None and at != self.positions[key]:
                consumer.seek(place_of(key, at))
                self.positions[key] = at


class Subscriber(Appender):
    """Its group gives it partitions, and takes them away in the middle of a transaction."""

    mine: list[str]

    @property
    def group(self) -> str:
        return SHARED_GROUP

    def live(self) -> None:
        consumer = self.consumer(SHARED_GROUP, begin="earliest")
        self.positions, self.mine = {}, []
        consumer.subscribe(
            [LIST], on_assign=self._given, on_revoke=self._taken, on_lost=self._taken
        )
        alive = True
        try:
            while alive and not self.stopping:
                alive = self._append(consumer)
                self.pause()
        finally:
            self.close(consumer)

    def _given(self, _consumer: Consumer, given: list[TopicPartition]) -> None:
        """All begin where the group has committed."""
        self.mine = [key_of(each.topic, each.partition) for each in given]
        self.positions = dict.fromkeys(self.mine)
        now = time.monotonic()
        self.note(Txn("assign", "ok", self.process, began_s=now, ended_s=now))

    def _taken(self, _consumer: Consumer, _taken: list[TopicPartition]) -> None:
        self.positions, self.mine = {}, []

    def poll(self, consumer: Consumer, op: Txn, most: int, seconds: float) -> None:
        super().poll(consumer, op, most, seconds)
        # What was polled of a partition that was taken away meanwhile is another's to work on, and was shown to us.
        op.shown += [each for each in op.polls if each.key not in self.mine]
        op.polls = [each for each in op.polls if each.key in self.mine]
        self.positions = {key: self.positions.get(key) for key in self.mine}

    def _rewind(self, consumer: Consumer, op: Txn, _before: dict[str, int | None]) -> None:
        """To the first that was polled: where this member began is not known before."""
        firsts: dict[str, int] = {}
        for polled in op.polls:
            firsts.setdefault(polled.key, polled.offset)
        for key, at in firsts.items():
            if key not in self.mine:
                continue
            try:
                consumer.seek(place_of(key, at))
                self.positions[key] = at
            except KafkaException:  # it is being taken away
                self.mine.remove(key)
                del self.positions[key]


class Auditor(Worker):
    """Reads all accounts from the beginning, all the while."""

    def run(self) -> None:
        self.born()
        consumer = self.consumer()
        self.positions = dict.fromkeys(self.keys_of(BANK), 0)
        consumer.assign([place_of(key, 0) for key in self.positions])
        noted_s = 0.0
        while not self.stopping:
            op = Txn("snapshot", "ok", self.process, began_s=time.monotonic())
            self.poll(consumer, op, self.rng.randint(1, 300), 0.5)
            op.positions = {key: at or 0 for key, at in self.positions.items()}
            op.ended_s = time.monotonic()
            if (
                op.polls or op.ended_s - noted_s > TELL_S
            ):  # that it was shown nothing has to be known
                self.note(op)
                noted_s = op.ended_s
        self.close(consumer)


ROLES: Final[dict[str, type[Teller | Appender | Auditor]]] = {
    "teller": Teller,
    "appender": Appender,
    "subscriber": Subscriber,
    "auditor": Auditor,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="One process of transactional work.")
    parser.add_argument("--role", choices=list(ROLES), required=True)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--slot", type=int, required=True, help=f"below {SLOTS_MAX}; unique")
    parser.add_argument("--life", type=int, default=1, help="how often it was started")
    parser.add_argument("--transactional-id", default="")
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--rate", type=int, default=20, help="transactions a second, at most")
    parser.add_argument("--timeout-ms", type=int, default=6_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--notes", type=Path, required=True)
    chosen = parser.parse_args(arguments)
    with chosen.notes.open("a") as notes:
        worker = ROLES[chosen.role](chosen, notes)
        worker.obey()
        worker.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
