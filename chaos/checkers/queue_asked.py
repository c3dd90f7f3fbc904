"""What clients were told of their groups' positions while a long run went on, after the first pass.

INVARIANT  the same is found of it as in a history that is held (`torn_transactions.py`).
PREVENTS   a group that begins again behind what it had committed being nobody's fault, as soon as a history is long.
PROVED BY  tests/chaos/test_queue_asked_meanwhile.py::test_what_is_told_of_positions_meanwhile_is_judged_in_a_long_history_too

What is held: of one bucket, all that was told, and of each of its places the commits that rose above all before them.
"""

from array import array
from bisect import bisect_right
from typing import NamedTuple

from .queue_lines import FAIL, KIND, NOTHING, OK, Found, Lines, Told
from .txn_history import NO_NUMBER


class Asked(NamedTuple):
    place: bytes
    told: Told
    process: int
    began_s: float


class Newest:
    """By time: the highest number of a transaction that had been acknowledged by then, or the furthest position, and its line."""

    def __init__(self) -> None:
        self._at_s, self._reached, self._lines = array("d"), array("q"), array("I")

    def add(self, ended_s: float, reached: int, line: int) -> None:
        if self._reached and reached <= self._reached[-1]:
            return
        # Lines are in the order of ends, or nearly so: who comes late counts from then on.
        self._at_s.append(max(ended_s, self._at_s[-1]) if self._at_s else ended_s)
        self._reached.append(reached)
        self._lines.append(line)

    def at(self, at_s: float) -> tuple[int, int]:
        before = bisect_right(self._at_s, at_s) - 1
        return (self._reached[before], self._lines[before]) if before >= 0 else NOTHING


class Meanwhile:
    def __init__(self, lines: Lines, found: Found) -> None:
        self.lines = lines
        self.found = found

    def run(self) -> None:
        for bucket in self.lines.asked.numbers() if self.lines.has_final else ():
            told = self.lines.asked.take(bucket)
            self._look(
                bucket, [Asked(at, Told(*said), who, began_s) for at, *said, who, began_s in told]
            )

    def _look(self, bucket: int, asked: list[Asked]) -> None:
        named = {(each.place, each.told.number) for each in asked}
        newest = {each.place: (each.told, Newest()) for each in asked}
        put: dict[tuple[bytes, int], tuple[int, int]] = {}  # to where, line
        for place, number, position, line, ended_s in self.lines.positions.read(bucket):
            if (place, number) in named:
                put[place, number] = position, line
            if place in newest and self.lines.outcome[line] & KIND == OK:
                told, so_far = newest[place]
                so_far.add(ended_s, told.of(number, position), line)
        for each in asked:
            self._judge(each, put.get((each.place, each.told.number)), newest[each.place][1])

    def _judge(self, asked: Asked, put: tuple[int, int] | None, newest: Newest) -> None:
        told = asked.told
        reached, line = newest.at(asked.began_s)
        if told.is_behind(reached) and (put is None or put[1] != line):
            self._torn(asked, told.but(reached), line)
        if told.number == NO_NUMBER:
            return
        if put is not None and self._has_failed(put[1]):
            self._torn(asked, f"finds transaction {told.number}, which failed", put[1])
        if put is None or put[0] != told.position:
            where = "put it nowhere" if put is None else f"put it at {put[0]}"
            what = f"finds {told.position} of transaction {told.number}, which {where}"
            self._torn(asked, what, 0 if put is None else put[1])

    def _has_failed(self, line: int) -> bool:
        """Also one of unknown fate, of which nothing is there in the end."""
        lines = self.lines
        if lines.is_committed(line) or lines.found_at_end(line) > 0:
            return False
        return lines.outcome[line] & KIND == FAIL or lines.sends_of(line) > 0

    def _torn(self, asked: Asked, what: str, line: int) -> None:
        place = self.lines.words.read(asked.told.name_at)
        who = self.lines.processes.name(asked.process)
        self.found.add(
            "torn-offset", place, f"{who} {what}", *filter(None, (line, asked.told.line))
        )
