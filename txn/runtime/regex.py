"""Which topics a subscription by regular expression means, in time that nobody can blow up.

INVARIANT  reading an expression and matching one name cost at most a bounded amount of work each, whatever it is.
PREVENTS   `(a+)+$` from one client holding the loop, and with it every partition of the node, for minutes.
PROVED BY  tests/txn/test_regex.py::test_an_expression_that_blows_up_backtracking_is_matched_at_once

Python's `re` backtracks, so it is not used. The expression becomes an automaton whose states are sets of
places in it; the transitions that names really take are kept (a DFA built as it is walked, as RE2 does).
"""

from dataclasses import dataclass
from typing import Final

from .regex_classes import WORD
from .regex_syntax import At, Chars, Concat, Either, Node, RegexRefused, Repeat, parse

__all__ = [
    "NAMES_A_TURN",
    "PARTS_MAX",
    "WORK_A_TURN",
    "Pause",
    "Regex",
    "RegexRefused",
    "refusal_of",
]

# Enough for eight repetitions of the longest that can matter; what one name may cost grows with it.
PLACES_MAX: Final = 2_000
# Parts of the tree looked at to place them, a copy at a time. An honest expression takes two or three for each
# place; what is empty takes some and no place, and copies of copies of it would never reach PLACES_MAX.
PARTS_MAX: Final = 4 * PLACES_MAX
# A topic's name has at most 249 characters, so more copies than this of anything match no more and no less.
COPIES_MAX: Final = 250
# The expression is the key of a record, whose strings end at 32,767 bytes; this is plenty.
TEXT_MAX: Final = 4_000
STATES_KEPT_MAX: Final = 2_000
# Of whoever holds many names against one: in one turn of the loop.
NAMES_A_TURN: Final = 1_000  # about 2 ms when the transitions are known
WORK_A_TURN: Final = 20_000  # places looked at; about 5 ms
TOO_LARGE: Final = "expression is too large"

_CHARS, _SPLIT, _AT, _MATCH = range(4)
_Step = tuple[
    int, int, int
]  # what it is, then its mask or place or other branch, then where it goes on
_PLACES: Final = ("start", "end", "line_start", "line_end", "word_edge", "no_word_edge")
_NEWLINE: Final = 10


class _State:
    """Places reached before the next character, with what stands before it; and where characters lead."""

    __slots__ = ("at_start", "before", "cores", "nexts")

    def __init__(self, cores: tuple[int, ...], before: int) -> None:
        self.cores = cores
        self.before = before  # the character before, -1 at the start
        self.nexts: dict[int, _State] = {}


@dataclass(frozen=True, slots=True)
class Pause:
    """Where in a name matching stopped for now."""

    state: _State
    at: int


class Regex:
    """One expression, compiled. `work` counts what its matching has cost, so that a caller can stop."""

    def __init__(self, text: str) -> None:
        if len(text) > TEXT_MAX:
            raise RegexRefused(TOO_LARGE)
        self.text = text
        self.work = 0
        self.parts = 0  # what compiling it has cost
        self._steps: list[_Step] = [(_MATCH, 0, 0)]
        self._start = self._compile(parse(text), 0)
        self._looks_around = any(step[0] == _AT for step in self._steps)
        self._states: dict[tuple[tuple[int, ...], int], _State] = {}

    def matches(self, name: str) -> bool:
        """Whether the whole of `name` matches."""
        answer = self.match(name)
        assert isinstance(answer, bool), "nothing told it to stop"
        return answer

    def match(
        self, name: str, since: Pause | None = None, work_max: int | None = None
    ) -> bool | Pause:
        """`matches`, from where the last call stopped; a Pause when this one has cost `work_max`, or just over."""
        end = None if work_max is None else self.work + work_max
        start = 0 if since is None else since.at
        state = self._state((self._start,), -1) if since is None else since.state
        for at, char in enumerate(name[start:], start):
            code = ord(char)
            found = state.nexts.get(code)
            if found is None:
                if end is not None and self.work >= end:
                    return Pause(state, at)
                found = self._step(state, code)
                state.nexts[code] = found
            state = found
            if not state.cores:
                return False
        reached = self._closure(state, -1)
        return any(self._steps[place][0] == _MATCH for place in reached)

    # ---- the automaton ----------------------------------------------------------------------

    def _state(self, cores: tuple[int, ...], before: int) -> _State:
        # What stood before matters only to expressions that look: others share more states.
        key = (cores, _kind(before) if self._looks_around else -2)
        state = self._states.get(key)
        if state is None:
            if len(self._states) >= STATES_KEPT_MAX:
                self._states.clear()
            state = self._states[key] = _State(cores, before)
        return state

    def _step(self, state: _State, code: int) -> _State:
        nexts = set()
        bit = 1 << code if code < 128 else 0
        for place in self._closure(state, code):
            kind, mask, target = self._steps[place]
            if kind == _CHARS and mask & bit:
                nexts.add(target)
        return self._state(tuple(sorted(nexts)), code)

    def _closure(self, state: _State, after: int) -> list[int]:
        """Every place reached from the state without a character, when `after` (-1: the end) comes next."""
        reached = []
        seen = set(state.cores)
        todo = list(state.cores)
        while todo:
            place = todo.pop()
            kind, other, target = self._steps[place]
            if kind == _SPLIT:
                targets: tuple[int, ...] = (other, target)
            elif kind == _AT:
                targets = (target,) if _holds(_PLACES[other], state.before, after) else ()
            else:
                reached.append(place)
                continue
            for next_place in targets:
                if next_place not in seen:
                    seen.add(next_place)
                    todo.append(next_place)
        self.work += len(seen)
        return reached

    # ---- from the tree, back to front: what a part goes on to is known before the part ------

    def _add(self, step: _Step) -> int:
        if len(self._steps) >= PLACES_MAX:
            raise RegexRefused(TOO_LARGE)
        self._steps.append(step)
        return len(self._steps) - 1

    def _compile(self, node: Node, then: int) -> int:
        self.parts += 1
        if self.parts > PARTS_MAX:
            raise RegexRefused(TOO_LARGE)
        match node:
            case Chars(mask):
                return self._add((_CHARS, mask, then))
            case At(place):
                return self._add((_AT, _PLACES.index(place), then))
            case Concat(parts):
                for part in reversed(parts):
                    then = self._compile(part, then)
                return then
            case Either(parts):
                start = self._compile(parts[-1], then)
                for part in reversed(parts[:-1]):
                    start = self._add((_SPLIT, self._compile(part, then), start))
                return start
            case Repeat(part, low, high):
                return self._repeat(part, low, high, then)

    def _repeat(self, part: Node, low: int, high: int | None, then: int) -> int:
        low = min(low, COPIES_MAX)
        if high is None:
            loop = self._add((_SPLIT, then, then))
            self._steps[loop] = (_SPLIT, self._compile(part, loop), then)
            then = loop
        else:
            out = then
            for _ in range(min(high, COPIES_MAX) - low):
                then = self._add((_SPLIT, self._compile(part, then), out))
        for _ in range(low):
            after, then = then, self._compile(part, then)
            if then == after:
                break  # it is empty, and so is any number of copies
        return then


def _kind(code: int) -> int:
    """What the places between characters can tell of a character: all that need not be kept apart is one."""
    if code in (-1, _NEWLINE):
        return code
    return 1 if _is_word(code) else 0


def _is_word(code: int) -> bool:
    return 0 <= code < 128 and bool(WORD >> code & 1)


def _holds(place: str, before: int, after: int) -> bool:
    match place:
        case "start":
            return before == -1
        case "end":
            return after == -1
        case "line_start":
            return before in (-1, _NEWLINE)
        case "line_end":
            return after in (-1, _NEWLINE)
        case "word_edge":
            return _is_word(before) != _is_word(after)
        case _:
            return _is_word(before) == _is_word(after)


def refusal_of(text: str) -> str | None:
    """Why `text` is not an expression that can be used, in RE2/J's words; None when it is one."""
    try:
        Regex(text)
    except RegexRefused as refused:
        return str(refused.args[0])
    return None
