"""Looking up what a group's regular expressions mean, a little at a time.

INVARIANT  one turn of the loop spends a bounded amount of work on expressions.
PREVENTS   ten thousand topics and one clumsy expression stopping every partition of the node for a second.
PROVED BY  tests/txn/test_consumer_scan.py::test_an_expensive_expression_is_looked_up_in_small_pieces

A heartbeat begins a scan and does not wait for it; the group's epoch moves when the scan is over (KIP-848;
Kafka's TopicRegexResolver). A scan is memory only: whoever takes over begins a new one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ..runtime.regex import NAMES_A_TURN, PARTS_MAX, WORK_A_TURN, Pause, Regex, RegexRefused

# So many characters whose transition is known take as long as one place.
KNOWN_CHARS_A_PLACE: Final = 8
# So many places take as long as reading a character of an expression and placing it.
PLACES_A_PART: Final = 5
# An expression that costs more is ignored, as Kafka ignores one that it can't read any more.
WORK_MAX: Final = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """How far it has come. `found[i]` are the topics of `regexes[i]` so far."""

    regexes: tuple[str, ...]
    names: Sequence[str]
    found: tuple[tuple[str, ...], ...]
    version: int
    started_ms: int
    compiled: tuple[Regex | None, ...] = ()  # those of the first `regexes`; names come when all are
    at: int = 0  # the name, then the expression that it is held against, then where in the name
    regex_at: int = 0
    pause: Pause | None = None

    @property
    def is_over(self) -> bool:
        return self.at >= len(self.names) or not self.regexes


def begin(regexes: Sequence[str], names: Sequence[str], version: int, now_ms: int) -> Scan:
    return Scan(
        regexes=tuple(regexes),
        names=names,
        found=((),) * len(regexes),
        version=version,
        started_ms=now_ms,
    )


def go_on(scan: Scan) -> Scan:
    """The scan after one turn's worth of work."""
    scan, work = _compile_on(scan)
    if len(scan.compiled) < len(scan.regexes):
        return scan
    compiled = list(scan.compiled)
    found = [list(topics) for topics in scan.found]
    at, index, pause = scan.at, scan.regex_at, scan.pause
    end = min(len(scan.names), at + NAMES_A_TURN)
    while at < end and work < WORK_A_TURN:
        regex, name = compiled[index], scan.names[at]
        work += 1
        if regex is not None:
            before = regex.work
            answer = regex.match(name, pause, WORK_A_TURN - work)
            work += regex.work - before + len(name) // KNOWN_CHARS_A_PLACE
            if regex.work > WORK_MAX:
                compiled[index] = None
                found[index].clear()
            elif isinstance(answer, Pause):
                pause = answer
                break
            elif answer:
                found[index].append(name)
        index, pause = index + 1, None
        if index == len(compiled):
            at, index = at + 1, 0
    return replace(
        scan,
        at=at,
        regex_at=index,
        pause=pause,
        compiled=tuple(compiled),
        found=tuple(tuple(topics) for topics in found),
    )


def _compile_on(scan: Scan) -> tuple[Scan, int]:
    """The scan with more of its expressions compiled, and what that cost: a group can have a thousand of them."""
    compiled, work = list(scan.compiled), 0
    for text in scan.regexes[len(compiled) :]:
        if work >= WORK_A_TURN:
            break
        regex = _compile(text)
        compiled.append(regex)
        parts = PARTS_MAX if regex is None else regex.parts
        work += (len(text) + parts) * PLACES_A_PART
    return replace(scan, compiled=tuple(compiled)), work


def _compile(regex: str) -> Regex | None:
    try:
        return Regex(regex)
    except RegexRefused:
        return None  # from a log of Kafka's, whose limits are wider: it means nothing here
