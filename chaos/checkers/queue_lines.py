"""The first pass over a long history: each line once, taken apart into records that later passes sort by value, place and time.

What is held in memory: two bytes a line (and twelve more of one that sends 15 records or more), eight for each process that ever
was, some hundred for each key, and for each living process and key the last poll and the last send. A process that crashed, or
ended, is forgotten: its name does not come again.
"""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from .consumed import is_shared
from .history import FINAL, Anomaly
from .queue_buckets import Buckets, Names, Words
from .txn_history import NO_NUMBER, Polled, Txn, WholeLines, begins_of

OK, INFO, FAIL = 1, 2, 3
KINDS: Final = {"ok": OK, "info": INFO, "fail": FAIL}
KIND: Final = 3  # the bits of an outcome that say the kind
IS_TXN: Final = 4
WAS_SEEN: Final = 8  # of an unknown one: somebody read something of it, so it is committed
POLL: Final = 16  # a record of a poll, else of a send
OF_FINAL: Final = 32
SHOWN: Final = 64  # and taken away: who polled it has not read it, and was shown it all the same
SENT_SHIFT: Final = 4  # of an outcome's byte: the bits above hold how many sends the line has,
MANY: Final = 15  # or that they are so many, or more: then they are counted elsewhere
FOREVER: Final = float("inf")
KEPT_PER_RULE: Final = 1_000
VALUES_PER_BUCKET: Final = 100_000
BYTES_PER_VALUE: Final = 150  # of a history, for a guess
VALUE_BUCKETS_MAX: Final = 2_048
PLACE_BUCKETS: Final = 16  # one in so many: there are fewer places than values
ONLY: Final = 0  # the one bucket of what is not sorted yet
INT, EXT, GROUP = 0, 1, 2  # what a gap was seen by

# value, key, line, process, offset, flags, began_s, ended_s
VALUE_FORM: Final = "<qIIIqBdd"
# key, from, to, line before, line, what it was seen by
GAP_FORM: Final = "<IqqIIB"
# group, key, first, last, line
STEP_FORM: Final = "<IIqqI"
# what comes before: line, process, began_s, ended_s; what comes behind it: likewise
EDGE_FORM: Final = "<IIddIIdd"
EDGE_S: Final = 60.0  # of a bucket of edges
# group and key, number, position, line, ended_s; of what brokers say where its name is, and whether several share the group;
# meanwhile, to whom and since when
POSITION_FORM: Final = "<16sqqId"
TOLD_FORM: Final = "<16sqqIQB"
ASKED_FORM: Final = "<16sqqIQBId"


NOTHING: Final = (NO_NUMBER, 0)  # that was committed to a place, and its line


class Told(NamedTuple):
    """What brokers say of a place."""

    number: int
    position: int
    line: int
    name_at: int
    shared: int

    def of(self, number: int, position: int) -> int:
        """What rises with each commit there: a position, where several share the group (who began before may go on behind who
        began later), else a number."""
        return position if self.shared else number

    def is_behind(self, reached: int) -> bool:
        """One that names nobody's is behind all that name somebody."""
        is_somebodys = self.number != NO_NUMBER
        return (self.of(self.number, self.position) if is_somebodys else NO_NUMBER) < reached

    def but(self, reached: int) -> str:
        if self.shared:
            what = f"finds {self.position} of transaction {self.number}"
            return f"{what}, and a committed one had put it at {reached}"
        return f"finds transaction {self.number}, not {reached}, a committed one"


class Found:
    """Anomalies; of each rule so many are kept, and all are counted."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.kept: list[Anomaly] = []

    def add(self, rule: str, key: str, what: str, *lines: int) -> None:
        self.counts[rule] += 1
        if self.counts[rule] <= KEPT_PER_RULE:
            self.kept.append(Anomaly(rule, key, what, tuple(sorted(set(lines)))))

    def all(self) -> list[Anomaly]:
        more = [
            Anomaly(rule, "all", f"and {count - KEPT_PER_RULE:,} more of them")
            for rule, count in sorted(self.counts.items())
            if count > KEPT_PER_RULE
        ]
        return [*self.kept, *more]


def digest(place: str) -> bytes:
    """A place by so many bits that no two have the same: every process that assigns has a group, and places, of its own."""
    return blake2b(place.encode(errors="surrogatepass"), digest_size=16).digest()


class Many:
    """Counts of lines that send more than half a byte holds, which are few or long; they come in their order."""

    def __init__(self) -> None:
        self._lines = array("I")
        self._sent = array("I")
        self._at_end = array("I")

    def add(self, line: int, sent: int) -> None:
        self._lines.append(line)
        self._sent.append(sent)
        self._at_end.append(0)

    def sent(self, line: int) -> int:
        return self._sent[bisect_left(self._lines, line)]

    def at_end(self, line: int) -> int:
        return self._at_end[bisect_left(self._lines, line)]

    def note_at_end(self, line: int) -> None:
        self._at_end[bisect_left(self._lines, line)] += 1


class Lines:
    """What the first pass leaves: bytes by line, buckets, and what is known of each key."""

    def __init__(self, folder: Path, history_bytes: int, found: Found) -> None:
        self.found = found
        self.words = Words(folder, "words")
        self.keys, self.processes, self.places = (Names(self.words) for _ in range(3))
        guess = history_bytes // (BYTES_PER_VALUE * VALUES_PER_BUCKET) + 1
        self.value_buckets = min(VALUE_BUCKETS_MAX, guess)
        self.place_buckets = self.value_buckets // PLACE_BUCKETS + 1
        self.values = Buckets(folder, "values", VALUE_FORM)
        self.gaps = Buckets(folder, "gaps", GAP_FORM)
        self.steps = Buckets(folder, "steps", STEP_FORM)
        self.positions = Buckets(folder, "positions", POSITION_FORM)
        self.told = Buckets(folder, "told", TOLD_FORM)
        self.asked = Buckets(folder, "asked", ASKED_FORM)
        self.edges = Buckets(folder, "edges", EDGE_FORM)
        self.outcome = bytearray(1)  # lines are counted from 1
        self._at_end = bytearray(1)  # how many of a line's values the final polls have found
        self._many = Many()
        self.ends = array("q")  # by key: one above its highest offset
        self.has_final = False
        self.cut = ""
        self._polled: dict[str, dict[str, tuple[int, int]]] = {}  # process -> key -> offset, line
        self._sent_to: dict[str, dict[str, tuple[int, int]]] = {}
        self._unknown: dict[str, list[tuple[int, float]]] = {}  # process -> lines without an end

    def read(self, file: Path, see: Callable[[Txn], None]) -> None:
        with file.open("rb") as source:
            lines = WholeLines(source)
            for op in lines:
                see(op)
                self._take(op)
        self.cut = lines.cut
        self._polled.clear()
        self._sent_to.clear()

    def _take(self, op: Txn) -> None:
        kind = KINDS[op.type]
        count = len(op.sends)
        if count >= MANY:
            self._many.add(op.line, count)
            count = MANY
        self.outcome.append(kind | (IS_TXN if op.f == "txn" else 0) | count << SENT_SHIFT)
        self._at_end.append(0)
        if op.f in ("assign", "subscribe"):
            last = self._polled.get(op.process, {})
            self._polled[op.process] = {k: at for k, at in last.items() if k in op.positions}
            self._begins(op)
            return
        if op.f == "crash":
            self._polled.pop(op.process, None)
            self._sent_to.pop(op.process, None)
            self._unknown.pop(op.process, None)
            self.processes.forget(op.process)
            return
        if op.f == "position":
            self._told(op)
            self._begins(op)
        self.has_final = self.has_final or op.process == FINAL
        self._sends(op, kind)
        self._polls(op, kind)
        self._shown(op, kind)
        if (op.sends or op.polls) and kind != FAIL:
            self._process_order(op, kind)
        if op.f == "txn" and op.offsets:
            self._offsets(op)

    def _begins(self, op: Txn) -> None:
        """As if what is before that place had been polled."""
        if begins := begins_of(op):
            last = self._polled.setdefault(op.process, {})
            for key, at in begins.items():
                last.setdefault(key, (at - 1, op.line))

    def _key(self, name: str) -> int:
        key = self.keys.number(name)
        if key == len(self.ends):
            self.ends.append(0)
        return key

    def _bucket(self, value: int) -> int:
        return (value * 0x9E3779B1 >> 16) % self.value_buckets

    def _sends(self, op: Txn, kind: int) -> None:
        process = self.processes.number(op.process)
        ended_s = FOREVER if kind == INFO else op.ended_s
        last = self._sent_to.setdefault(op.process, {}) if op.sends else {}
        within: dict[str, tuple[int, int]] = {}
        for sent in op.sends:
            key = self._key(sent.key)
            offset = -1 if sent.offset is None else sent.offset
            self.values.add(
                self._bucket(sent.value),
                sent.value,
                key,
                op.line,
                process,
                offset,
                kind,
                op.began_s,
                ended_s,
            )
            if offset < 0 or kind == FAIL:
                continue
            if offset >= self.ends[key]:
                self.ends[key] = offset + 1
            rule = "int-nonmonotonic-send" if sent.key in within else "nonmonotonic-send"
            before = within.get(sent.key) or last.get(sent.key)
            if before is not None and offset <= before[0]:
                what = f"{op.process} was told of {offset}, after {before[0]}"
                self.found.add(rule, sent.key, what, before[1], op.line)
            within[sent.key] = (offset, op.line)
        last.update(within)

    def _polls(self, op: Txn, kind: int) -> None:
        if not op.polls:
            return
        flags = kind | POLL | (OF_FINAL if op.process == FINAL else 0)
        ended_s = FOREVER if kind == INFO else op.ended_s
        process = self.processes.number(op.process)
        last = self._polled.setdefault(op.process, {})
        within: dict[str, tuple[int, int]] = {}
        for polled in op.polls:
            key = self._poll(polled, op, process, flags, ended_s)
            if polled.key in within:
                self._step(op, polled, key, within[polled.key], INT)
            elif polled.key in last:
                self._step(op, polled, key, last[polled.key], EXT)
            within[polled.key] = (polled.offset, op.line)
        if kind == OK:
            last.update(within)

    def _poll(self, polled: Polled, op: Txn, process: int, flags: int, ended_s: float) -> int:
        key = self._key(polled.key)
        self.values.add(
            self._bucket(polled.value),
            polled.value,
            key,
            op.line,
            process,
            polled.offset,
            flags,
            op.began_s,
            ended_s,
        )
        if polled.offset >= self.ends[key]:
            self.ends[key] = polled.offset + 1
        return key

    def _shown(self, op: Txn, kind: int) -> None:
        for polled in op.shown:
            process = self.processes.number(op.process)
            self._poll(polled, op, process, kind | POLL | SHOWN, op.ended_s)

    def _step(self, op: Txn, polled: Polled, key: int, before: tuple[int, int], by: int) -> None:
        at, line = before
        if polled.offset == at + 1:
            return
        if polled.offset > at:
            self.gaps.add(ONLY, key, at, polled.offset, line, op.line, by)
            return
        name = "int-nonmonotonic-poll" if by == INT else "nonmonotonic-poll"
        what = f"{op.process} polled offset {polled.offset} after {at}"
        self.found.add(name, polled.key, what, line, op.line)

    def _process_order(self, op: Txn, kind: int) -> None:
        """What is of unknown outcome has no end in time, but its process went on behind it all the same."""
        process = self.processes.number(op.process)
        before = self._unknown.get(op.process, [])
        ended_s = FOREVER if kind == INFO else op.ended_s
        for line, began_s in before:
            self.edge((line, process, began_s, FOREVER), (op.line, process, op.began_s, ended_s))
        if kind == INFO:
            self._unknown.setdefault(op.process, []).append((op.line, op.began_s))
        elif before:
            del self._unknown[op.process]

    def edge(
        self, one: tuple[int, int, float, float], other: tuple[int, int, float, float]
    ) -> None:
        """The first is before the second, whatever their times say."""
        self.edges.add(int(min(one[2], other[2]) // EDGE_S), *one, *other)

    def _offsets(self, op: Txn) -> None:
        for place, position in op.offsets.items():
            name, there = place.partition("|")[2], digest(place)
            self.positions.add(
                self._place_bucket(there), there, op.number, position, op.line, op.ended_s
            )
            offsets = [polled.offset for polled in op.polls if polled.key == name]
            if is_shared(place) and offsets and op.type != "fail":
                key, number = self._key(name), self.places.number(place)
                self.steps.add(ONLY, number, key, min(offsets), max(offsets), op.line)

    def _told(self, op: Txn) -> None:
        for place, number in op.writers.items():
            there, position = digest(place), op.offsets[place]
            said = (there, number, position, op.line, self.words.add(place), is_shared(place))
            bucket = self._place_bucket(there)
            if op.process == FINAL:
                self.told.add(bucket, *said)
            else:
                self.asked.add(bucket, *said, self.processes.number(op.process), op.began_s)

    def _place_bucket(self, there: bytes) -> int:
        return int.from_bytes(there[:4]) % self.place_buckets

    # -- what later passes ask -------------------------------------------------------------------

    def is_committed(self, line: int) -> bool:
        outcome = self.outcome[line]
        return outcome & KIND == OK or bool(outcome & WAS_SEEN)

    def sends_of(self, line: int) -> int:
        count = self.outcome[line] >> SENT_SHIFT
        return count if count < MANY else self._many.sent(line)

    def found_at_end(self, line: int) -> int:
        is_many = self.outcome[line] >> SENT_SHIFT == MANY
        return self._many.at_end(line) if is_many else self._at_end[line]

    def note_at_end(self, line: int) -> None:
        if self.outcome[line] >> SENT_SHIFT == MANY:
            self._many.note_at_end(line)
        else:
            self._at_end[line] += 1
