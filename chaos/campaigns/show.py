"""A trace for a person: when, who, what happened. Small events (disk, network, Raft) only when they are asked for."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ..sim.trace import SMALL

# `1.234567890 node-2 log.info event=isr_shrinks fields={…}`
_LINE: Final = re.compile(r"^(?P<at>[\d.]+) (?P<who>\S+) (?P<kind>\S+)(?P<rest>.*)$", re.DOTALL)
_LOGGED: Final = re.compile(r"^ event=(?P<event>\S+) fields=\{(?P<fields>.*)\}$", re.DOTALL)
_FIELD: Final = re.compile(r"'(\w+)': ")
LEVELS: Final = {"log.info": "", "log.warn": "! ", "log.error": "!! "}
SHOWN_MAX: Final = 240


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which lines."""

    everything: bool = False
    who: tuple[str, ...] = ()
    from_s: float = 0.0
    to_s: float = float("inf")


def strangers(lines: Iterable[str], who: Sequence[str]) -> str:
    """A sentence when one of these has no event in a trace, with all who have; empty when all have."""
    known = sorted({found["who"] for line in lines if (found := _LINE.match(line))})
    if unknown := [name for name in who if name not in known]:
        return (
            f"--who {unknown[0]!r}: nobody has that name in this run; there are: {', '.join(known)}"
        )
    return ""


def shown(lines: Iterable[str], wanted: Wanted) -> Iterator[str]:
    """Each event as a line; the same again and again is counted."""
    before, times = "", 0
    for line in lines:
        found = _LINE.match(line)
        if found is None:
            continue
        at, who, kind = float(found["at"]), found["who"], found["kind"]
        if not wanted.from_s <= at <= wanted.to_s or (wanted.who and who not in wanted.who):
            continue
        if kind.startswith(SMALL) and not wanted.everything:
            continue
        text = f"{who:<10} {_sentence(kind, found['rest'])}"[:SHOWN_MAX]
        if text == before:
            times += 1
            continue
        if times:
            yield f"{'':>12}  {'':<10} … {times} more like this"
        before, times = text, 0
        yield f"{at:>11.6f}s  {text}"


def _sentence(kind: str, rest: str) -> str:
    logged = _LOGGED.match(rest)
    if kind in LEVELS and logged is not None:
        fields = _FIELD.sub(r"\1 ", logged["fields"])
        return f"{LEVELS[kind]}{logged['event'].replace('_', ' ')}{': ' if fields else ''}{fields}"
    return f"{kind}{rest}"
