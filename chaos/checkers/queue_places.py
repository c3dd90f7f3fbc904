"""The third pass over a long history, place by place along each key, from its end to its beginning."""

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from itertools import accumulate
from pathlib import Path
from typing import Final

from .history import FINAL
from .queue_buckets import Buckets
from .queue_lines import FAIL, GROUP, INT, KIND, NOTHING, ONLY, WAS_SEEN, Found, Lines, Told
from .queue_values import PERHAPS, SHIFT, Values
from .txn_history import NO_NUMBER

# the place where it begins, the place of the next that was polled, line before, line, what it was seen by
GAP_FORM: Final = "<qqIIB"
# first place, last, group, line
STEP_FORM: Final = "<qqII"
RULES: Final = {INT: "int-poll-skip", GROUP: "group-skip"}
BEYOND: Final = 1 << 62


class Stretches:
    """From place to place, many of them: whether one of them touches another stretch is asked of all at once.

    INVARIANT  what is asked between the last `add` and the next is answered in steps as few as a number has digits.
    PREVENTS   a judge that looks at every step of unknown fate for each step of a group: 100 million operations have millions.
    PROVED BY  tests/chaos/test_queue_stream.py::test_a_stretch_is_touched_by_the_one_that_reaches_furthest
    """

    def __init__(self) -> None:
        self._firsts = array("q")
        self._furthest = array("q")  # the last place of it, or of one before it in their order
        self._is_sorted = True

    def add(self, first: int, last: int) -> None:
        if self._is_sorted and self._firsts:
            if first >= self._firsts[-1]:
                last = max(last, self._furthest[-1])
            else:
                self._is_sorted = False
        self._firsts.append(first)
        self._furthest.append(last)

    def touches(self, start: int, end: int) -> bool:
        """Whether one begins before `end` and ends not before `start`."""
        if not self._is_sorted:
            both = sorted(zip(self._firsts, self._furthest, strict=True))
            self._firsts = array("q", (first for first, _ in both))
            self._furthest = array("q", accumulate((last for _, last in both), max))
            self._is_sorted = True
        before = bisect_left(self._firsts, end)
        return before > 0 and self._furthest[before - 1] >= start


class Places:
    def __init__(self, lines: Lines, values: Values, folder: Path, found: Found) -> None:
        self.lines = lines
        self.values = values
        self.found = found
        self._gaps = Buckets(folder, "gaps-by-place", GAP_FORM)
        self._steps = Buckets(folder, "steps-by-place", STEP_FORM)
        self._unknown = Buckets(folder, "unknown-by-place", STEP_FORM)
        self._perhaps: dict[int, Stretches] = defaultdict(Stretches)  # group -> of unknown fate

    def run(self) -> None:
        bases = self.values.bases
        for key, start, end, line_before, line, by in self.lines.gaps.take(ONLY):
            self._gap(bases[key] + start + 1, bases[key] + end, line_before, line, by)
        self._group_steps()
        first_behind = BEYOND
        order: dict[int, tuple[int, int]] = {}
        key = -1
        chunks = sorted({*self.values.places.numbers(), *self._gaps.numbers()}, reverse=True)
        for chunk in chunks:
            at, present = self._chunk(chunk)
            for place in sorted(at, reverse=True):
                its_key = bisect_right(bases, place) - 1
                if its_key != key:
                    key, order = its_key, {}
                self._order(key, place, at[place], order)
            self._look_at_gaps(chunk, present, first_behind)
            first = present.find(1)
            if first >= 0:
                first_behind = (chunk << SHIFT) + first
        self._positions()

    # -- along the keys --------------------------------------------------------------------------

    def _chunk(self, chunk: int) -> tuple[dict[int, tuple[int, int, int]], bytearray]:
        at: dict[int, tuple[int, int, int]] = {}
        present = bytearray(1 << SHIFT)
        low = chunk << SHIFT
        for place, value, line, process, flags in self.values.places.take(chunk):
            if flags & PERHAPS and not self.lines.outcome[line] & WAS_SEEN:
                continue
            known = at.get(place)
            if known is None or value < known[0]:
                at[place] = (value, line, process)
                present[place - low] = 1
            if known is not None and known[0] != value:
                key = bisect_right(self.values.bases, place) - 1
                what = f"offset {place - self.values.bases[key]} holds {sorted((value, known[0]))}"
                name = self.lines.keys.name(key)
                self.found.add("inconsistent-offsets", name, what, *filter(None, (line, known[1])))
        return at, present

    def _order(
        self, key: int, place: int, what: tuple[int, int, int], order: dict[int, tuple[int, int]]
    ) -> None:
        value, line, process = what
        if line == 0:
            return  # nobody's
        behind = order.get(process)
        if behind is not None and behind[0] < value:
            said = f"{behind[0]} of {self.lines.processes.name(process)} comes after its {value}"
            self.found.add("key-order", self.lines.keys.name(key), said, line, behind[1])
        order[process] = (value, line)

    # -- gaps between what was polled ------------------------------------------------------------

    def _gap(self, start: int, end: int, line_before: int, line: int, by: int) -> None:
        """Nothing may be from `start` on up to `end`, which was polled."""
        self._gaps.add(start >> SHIFT, start, end, line_before, line, by)

    def _look_at_gaps(self, chunk: int, present: bytearray, first_behind: int) -> None:
        low = chunk << SHIFT
        for start, end, line_before, line, by in self._gaps.take(chunk):
            next_one = present.find(1, start - low)
            there = low + next_one if next_one >= 0 else first_behind
            if there < end:
                key = bisect_right(self.values.bases, end) - 1
                base = self.values.bases[key]
                what = f"{end - base} was polled, and {there - base} before it was not"
                rule = RULES.get(by, "poll-skip")
                known = filter(None, (line_before, line))
                self.found.add(rule, self.lines.keys.name(key), what, *known)

    # -- what groups consumed --------------------------------------------------------------------

    def _group_steps(self) -> None:
        lines, bases = self.lines, self.values.bases
        for group, key, first, last, line in lines.steps.take(ONLY):
            place = bases[key] + first
            if lines.is_committed(line):
                self._steps.add(place >> SHIFT, place, bases[key] + last, group, line)
            elif not (lines.sends_of(line) and lines.has_final):
                self._unknown.add(place >> SHIFT, place, bases[key] + last, group, line)
        for chunk in self._unknown.numbers():  # so that nothing has to be sorted as a whole
            for first, last, group, _ in sorted(self._unknown.take(chunk)):
                self._perhaps[group].add(first, last)
        reached: dict[
            int, tuple[int, int]
        ] = {}  # group -> the place behind its last step, its line
        for chunk in self._steps.numbers():
            for first, last, group, line in sorted(self._steps.take(chunk)):
                base = bases[bisect_right(bases, first) - 1]
                next_one, line_before = reached.get(group, (base, 0))
                if first < next_one:
                    name = lines.places.name(group)
                    what = f"begins at offset {first - base}, though it had gone on to {next_one - base}"
                    self.found.add("group-repeat", name, what, *filter(None, (line_before, line)))
                elif first > next_one and not self._may_be_filled(group, next_one, first):
                    self._gap(next_one, first, line_before, line, GROUP)
                reached[group] = (max(next_one, last + 1), line)

    def _may_be_filled(self, group: int, start: int, end: int) -> bool:
        """Some step of unknown fate lies in between: then nobody knows."""
        return group in self._perhaps and self._perhaps[group].touches(start, end)

    # -- what groups committed -------------------------------------------------------------------

    def _positions(self) -> None:
        """The final position of each place is that of its newest committed transaction, and where that one has put it; where
        several share the group, no committed one has put it further."""
        lines = self.lines
        for bucket in lines.told.numbers():
            told = {place: Told(*said) for place, *said in lines.told.take(bucket)}
            last: dict[bytes, tuple[int, int]] = {}  # number or position, line
            put: dict[bytes, tuple[int, int]] = {}  # to where, line: by whom it says it was moved
            for place, number, position, line, _ in lines.positions.take(bucket):
                said = told.get(place)
                if said is None:
                    continue
                if number == said.number:
                    put[place] = position, line
                if lines.is_committed(line) or lines.found_at_end(line) > 0:
                    last[place] = max(last.get(place, NOTHING), (said.of(number, position), line))
                elif number == said.number and (
                    lines.outcome[line] & KIND == FAIL or lines.sends_of(line)
                ):
                    self._torn(said, f"finds transaction {number}, which failed", line)
            for place, said in told.items():
                at, line = put.get(place, (None, 0))
                reached, last_line = last.get(place, NOTHING)
                if said.is_behind(reached) and line != last_line:
                    self._torn(said, said.but(reached), last_line)
                if said.number != NO_NUMBER and at != said.position:
                    where = "put it nowhere" if at is None else f"put it at {at}"
                    what = f"finds {said.position} of transaction {said.number}, which {where}"
                    self._torn(said, what, line)

    def _torn(self, said: Told, what: str, line: int) -> None:
        place = self.lines.words.read(said.name_at)
        self.found.add("torn-offset", place, f"{FINAL} {what}", *filter(None, (line, said.line)))
