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

from ..runtime.regex import Regex, RegexRefused

NAMES_A_TURN: Final = 1_000  # about 2 ms when the transitions are known
WORK_A_TURN: Final = 20_000  # places looked at; about 5 ms
# An expression that costs more is ignored, as Kafka ignores one that it can't read any more.
WORK_MAX: Final = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """How far it has come. `found[i]` are the topics of `regexes[i]` so far."""

    regexes: tuple[str, ...]
    compiled: tuple[Regex | None, ...]
    names: Sequence[str]
    at: int
    found: tuple[tuple[str, ...], ...]
    version: int
    started_ms: int

    @property
    def is_over(self) -> bool:
        return self.at >= len(self.names)


def begin(regexes: Sequence[str], names: Sequence[str], version: int, now_ms: int) -> Scan:
    return Scan(
        regexes=tuple(regexes),
        compiled=tuple(_compile(regex) for regex in regexes),
        names=names,
        at=0,
        found=((),) * len(regexes),
        version=version,
        started_ms=now_ms,
    )


def _compile(regex: str) -> Regex | None:
    try:
        return Regex(regex)
    except RegexRefused:
        return None  # from a log of Kafka's, whose limits are wider: it means nothing here


def go_on(scan: Scan) -> Scan:
    """The scan after one turn's worth of work."""
    compiled = list(scan.compiled)
    found = [list(topics) for topics in scan.found]
    at, work = scan.at, 0
    end = min(len(scan.names), at + NAMES_A_TURN)
    while at < end and work < WORK_A_TURN:
        name = scan.names[at]
        for index, regex in enumerate(compiled):
            if regex is None:
                continue
            before = regex.work
            if regex.matches(name):
                found[index].append(name)
            work += regex.work - before
            if regex.work > WORK_MAX:
                compiled[index] = None
                found[index].clear()
        at += 1
    return replace(
        scan, at=at, compiled=tuple(compiled), found=tuple(tuple(topics) for topics in found)
    )
