"""The final polls of the queue workload: every key from its beginning, until all that is known of was reached.

    python -m fencepost.chaos.workloads.queue_final --bootstrap … --wanted wanted.json --notes final.jsonl --seconds 200

`wanted.json` names the keys with the highest offset that anybody was told of, and the groups with the keys that they
committed. Exit code 0: all was reached; 3: the time was over before, and the last line says what is missing; 4: all was
read, which a line of its own says as soon as it is so, but not everything that groups have committed was told.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TextIO

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message

from ..checkers.history import FINAL
from ..checkers.txn_history import Txn, to_line
from .queue_topics import Topics
from .txn_keys import key_of
from .txn_positions import Untold, all_positions
from .txn_process import CLIENT, DAMAGE, Damaged, DamageSeen, place_of, polled_of

MISSED: Final = 3
UNTOLD: Final = 4
ALL_READ: Final = "all that is known of was read"
POLL_MAX: Final = 1_000
POLL_S: Final = 0.2
PAUSE_S: Final = 0.2
ROUND_S: Final = 10.0  # then with another consumer


class FinalPolls:
    def __init__(self, bootstrap: str, wanted: dict[str, int], notes: TextIO) -> None:
        self.bootstrap = bootstrap
        self.topics = Topics(bootstrap, 1)
        self.wanted = wanted  # key -> the offset up to which it must be read
        self.next_at = dict.fromkeys(wanted, 0)
        self.why = ""  # it did not come to its end, where that is known
        self._notes = notes
        self._damage = DamageSeen()

    def note(self, op: Txn) -> None:
        op.ended_s = time.monotonic()
        self._notes.write(f"{to_line(op)}\n")
        self._notes.flush()

    def missing(self) -> dict[str, int]:
        return {key: end for key, end in self.wanted.items() if self.next_at[key] < end}

    def run(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        if not self._wait_stable(deadline):
            return False
        while self.missing() and time.monotonic() < deadline:
            self._round(min(deadline, time.monotonic() + ROUND_S))
        return not self.missing()

    def _wait_stable(self, deadline: float) -> bool:
        """Until no transaction is open any more. Then all must be read up to where the keys end."""
        keys = list(self.wanted)
        while time.monotonic() < deadline:
            ends = self.topics.ends(keys)
            stable = self.topics.ends(keys, IsolationLevel.READ_COMMITTED)
            open_keys = [key for key in keys if stable.get(key, -1) != ends.get(key)]
            if not open_keys:
                self.wanted = {key: max(ends[key], end) for key, end in self.wanted.items()}
                return True
            time.sleep(PAUSE_S)
        self.why = f"transactions are open in {open_keys}: stable {stable}, ends {ends}"
        return False

    def _consumer(self, group: str) -> Consumer:
        settings = {"bootstrap.servers": self.bootstrap, "group.id": group}
        reading = {"isolation.level": "read_committed", "enable.partition.eof": True}
        quiet = {"enable.auto.commit": False, "error_cb": lambda _: None}
        return Consumer(CLIENT | settings | reading | quiet)

    def _round(self, until: float) -> None:
        consumer = self._consumer("final")
        consumer.assign([place_of(key, self.next_at[key]) for key in self.missing()])
        while self.missing() and time.monotonic() < until:
            op = Txn("read", "ok", FINAL, began_s=time.monotonic())
            for message in consumer.consume(POLL_MAX, timeout=POLL_S):
                error = message.error()
                key = key_of(message.topic() or "", message.partition() or 0)
                offset = message.offset() or 0
                if error is None:
                    self._take(op, message)
                    self.next_at[key] = offset + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    self.next_at[key] = max(self.next_at[key], offset)  # markers are passed by
                elif error.code() in DAMAGE:
                    self._note_damage(message, error)
                elif error.fatal():
                    raise KafkaException(error)
            if op.polls:
                self.note(op)
        consumer.close()

    def _take(self, op: Txn, message: Message) -> None:
        try:
            op.polls.append(polled_of(message))
        except Damaged as damaged:
            self._note_damage(message, damaged)

    def _note_damage(self, message: Message, what: object) -> None:
        for op in self._damage.at(FINAL, message, what):
            self.note(op)

    def positions(self, groups: dict[str, list[str]]) -> Untold:
        """Notes what groups have committed; returns the places of which that is not known, and why."""
        untold: Untold = {}
        for op, missing in all_positions(self._consumer, groups):
            if op.offsets:
                self.note(op)
            untold |= missing
        return untold


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The final polls of the queue workload.")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--wanted", type=Path, required=True)
    parser.add_argument("--notes", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=200.0)
    chosen = parser.parse_args(arguments)
    wanted = json.loads(chosen.wanted.read_text())
    with chosen.notes.open("a") as notes:
        final = FinalPolls(chosen.bootstrap, wanted["keys"], notes)
        if not final.run(chosen.seconds):
            sys.stdout.write(f"{final.why or final.missing()}\n")
            return MISSED
        # Said before anything else is asked: whatever comes of that, what was read was all.
        sys.stdout.write(f"{ALL_READ}\n")
        sys.stdout.flush()
        untold = final.positions(wanted["groups"])
    if untold:
        sys.stdout.write(f"{untold}\n")
    return UNTOLD if untold else 0


if __name__ == "__main__":
    sys.exit(main())
