"""The third pass over a long history, place by place along each key, from its end to its beginning."""

from bisect import bisect_right
from pathlib import Path
from typing import Final

from .history import FINAL
from .queue_buckets import Buckets
from .queue_lines import FAIL, GROUP, INT, KIND, ONLY, WAS_SEEN, Found, Lines
from .queue_values import PERHAPS, SHIFT, Values
from .txn_history import NO_NUMBER

# the place where it begins, the place of the next that was polled, line before, line, what it was seen by
GAP_FORM: Final = "<qqIIB"
# first place, last, group, line
STEP_FORM: Final = "<qqII"
RULES: Final = {INT: "int-poll-skip", GROUP: "group-skip"}
BEYOND: Final = 1 << 62


class Places:
    def __init__(self, lines: Lines, values: Values, folder: Path, found: Found) -> None:
        self.lines = lines
        self.values = values
        self.found = found
        self._gaps = Buckets(folder, "gaps-by-place", GAP_FORM)
        self._steps = Buckets(folder, "steps-by-place", STEP_FORM)
        self._perhaps: list[tuple[int, int, int]] = []  # group, first, last: of unknown fate

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
                name = self.lines.keys.names[key]
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
            said = f"{behind[0]} of {self.lines.processes.names[process]} comes after its {value}"
            self.found.add("key-order", self.lines.keys.names[key], said, line, behind[1])
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
                self.found.add(rule, self.lines.keys.names[key], what, *known)

    # -- what groups consumed --------------------------------------------------------------------

    def _group_steps(self) -> None:
        lines, bases = self.lines, self.values.bases
        for group, key, first, last, line in lines.steps.take(ONLY):
            if lines.is_committed(line):
                place = bases[key] + first
                self._steps.add(place >> SHIFT, place, bases[key] + last, group, line)
            elif not (lines.sends_of(line) and lines.has_final):
                self._perhaps.append((group, bases[key] + first, bases[key] + last))
        reached: dict[
            int, tuple[int, int]
        ] = {}  # group -> the place behind its last step, its line
        for chunk in self._steps.numbers():
            for first, last, group, line in sorted(self._steps.take(chunk)):
                base = bases[bisect_right(bases, first) - 1]
                next_one, line_before = reached.get(group, (base, 0))
                if first < next_one:
                    name = lines.places.names[group]
                    what = f"begins at offset {first - base}, though it had gone on to {next_one - base}"
                    self.found.add("group-repeat", name, what, *filter(None, (line_before, line)))
                elif first > next_one and not self._may_be_filled(group, next_one, first):
                    self._gap(next_one, first, line_before, line, GROUP)
                reached[group] = (max(next_one, last + 1), line)

    def _may_be_filled(self, group: int, start: int, end: int) -> bool:
        """Some step of unknown fate lies in between: then nobody knows."""
        return any(g == group and first < end and last >= start for g, first, last in self._perhaps)

    # -- what groups committed -------------------------------------------------------------------

    def _positions(self) -> None:
        """The final position of each place must be the newest of its committed transactions."""
        told: dict[int, int] = {}
        for op in self.lines.final_positions:
            for name, number in op.writers.items():
                told[self.lines.places.number(name)] = number
        newest: dict[int, tuple[int, int]] = {}
        for place, number, line in self.lines.positions.take(ONLY):
            if place not in told:
                continue
            kind = self.lines.outcome[line] & KIND
            there = self.lines.is_committed(line) or self.lines.found_at_end(line) > 0
            if there:
                newest[place] = max(newest.get(place, (NO_NUMBER, 0)), (number, line))
            elif number == told[place] and (kind == FAIL or self.lines.sends_of(line)):
                what = f"{FINAL} finds transaction {number}, which failed"
                self.found.add("torn-offset", self.lines.places.names[place], what, line)
        for place, (number, line) in sorted(newest.items()):
            if told[place] < number:
                what = f"{FINAL} finds transaction {told[place]}, not {number}, a committed one"
                self.found.add("torn-offset", self.lines.places.names[place], what, line)
