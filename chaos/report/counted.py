"""The figures of a run as its verdict was given by them, and what its history holds beside what they count.

INVARIANT  page, digest and index name the operations and records that run.json names, where its history was judged and holds
           them; else what was measured, which counts every line.
PREVENTS   one run with two sets of figures: so many operations in its verdict, and more of them in a tile under it, since
           crashes and who was assigned what are lines of a history, too.
PROVED BY  tests/chaos/test_report_counted.py::test_a_page_names_the_figures_of_the_verdict_and_what_is_beside_them
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ..checkers.verdict import MEANWHILE
from . import words
from .measured import KINDS, Measured

# What else is counted by the judge, by the forms of `checkers/txn_history.py`: one, many.
BESIDE: Final[Mapping[str, tuple[str, str]]] = {
    "assign": ("assignment", "assignments"),
    "subscribe": ("subscription", "subscriptions"),
    "crash": ("crash", "crashes"),
    "snapshot": ("snapshot", "snapshots"),
}
REST: Final = "other (final polls, ends and positions that were asked for, notes)"
REST_OF_LOOPS: Final = "other (polls and notes)"
# Among the counts of run.json: each kind of operation, what was read, and at the end. The kill loops have words of their own.
NAMES: Final = {"ok": "ok", "fail": "fail", "info": "info"}, "records read"
NAMES_OF_LOOPS: Final = {"ok": "acknowledged", "fail": "failed", "info": "unknown"}, MEANWHILE
AT_END: Final = "read at the end"


@dataclass(frozen=True, slots=True)
class Counted:
    operations: dict[str, int]  # by kind: ok, fail, info
    records: int  # acknowledged
    read: int  # while the load went on
    read_in_vain: int  # of these, by operations that failed, or of which nobody knows the end
    read_at_end: int
    beside: dict[str, int] = field(
        default_factory=dict
    )  # lines of the history that are no operation

    @property
    def total(self) -> int:
        return sum(self.operations.values())


def counted(found: Measured) -> Counted:
    said = {name: int(number) for name, number in found.run.counts.items()}
    of_loop = MEANWHILE in said
    kinds, read = NAMES_OF_LOOPS if of_loop else NAMES
    total = sum(said.get(name, 0) for name in kinds.values())
    if not said.keys() >= {*kinds.values(), read, AT_END} or not 0 <= total <= found.total:
        measured = {kind: found.operations[kind] for kind in KINDS}
        return Counted(measured, found.acknowledged, found.read, 0, found.read_at_end)
    beside = {} if of_loop else {name: said[name] for name in BESIDE if said.get(name, 0) > 0}
    rest = found.total - total - sum(beside.values())
    return Counted(
        {kind: said[name] for kind, name in kinds.items()},
        found.acknowledged,
        said[read],
        max(0, said[read] - found.read),
        said[AT_END],
        beside | ({REST_OF_LOOPS if of_loop else REST: rest} if rest > 0 else {}),
    )


def beside_words(figures: Counted) -> str:
    """Empty when a history holds operations alone."""
    parts = [
        words.plural(count, *BESIDE[name]) if name in BESIDE else f"{words.count(count)} {name}"
        for name, count in figures.beside.items()
    ]
    lines = words.plural(sum(figures.beside.values()), "more line")
    return f"the history holds {lines}: {', '.join(parts)}" if parts else ""
