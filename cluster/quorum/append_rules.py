"""What a follower does with the entries that a leader sends: which are new, which conflict, what they prove.

INVARIANT  only an entry of another term at the same index cuts the log; nothing committed is ever cut.
PREVENTS   a late append that repeats what is there, and takes away what came behind it and was acknowledged.
PROVED BY  tests/cluster/quorum/test_append_rules.py::test_an_append_that_repeats_what_is_there_cuts_nothing

pysyncobj cuts everything behind `prevLogIdx`, whether or not it conflicts.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ..base.errors import FrameRefused
from .segment_format import Entry


class Log(Protocol):
    """What is in memory of the log; the first entry is the last but one of the snapshot before it."""

    def __getitem__(self, item: int) -> Entry: ...

    def __len__(self) -> int: ...


class Fits(NamedTuple):
    """`cut_from` is the index of the first entry that conflicts; the log is the leader's up to `matched`."""

    matched: int
    cut_from: int | None
    new: Sequence[Entry]


class Gap(NamedTuple):
    """The leader has to begin at `next_index` at the latest."""

    next_index: int


def judge_append(
    log: Log, commit_index: int, previous: tuple[int, int], entries: Sequence[Entry]
) -> Fits | Gap:
    """`previous` is (index, term) of the entry before the first one of `entries`, which follow each other.

    FrameRefused for what no leader can have (Raft, §5.4.3): whoever sends it lies.
    """
    first, last = log[0].idx, log[-1].idx
    index, term = previous
    if index > last:
        return Gap(last + 1)
    if index < first:
        # All of that is in the snapshot, so it is committed, so the leader has it too.
        entries = entries[first - index :]
        index, term = first, log[0].term
    if log[index - first].term != term:
        if index <= commit_index:
            raise FrameRefused(f"A leader has another entry {index}, which is committed here.")
        return Gap(_first_of_its_term(log, index, commit_index))
    matched = max(index + len(entries), min(commit_index, last))
    for place, entry in enumerate(entries):
        if entry.idx > last:
            return Fits(matched, None, entries[place:])
        if log[entry.idx - first].term != entry.term:
            if entry.idx <= commit_index:
                raise FrameRefused(
                    f"Entry {entry.idx} of a leader is another than is committed here."
                )
            return Fits(matched, entry.idx, entries[place:])
    return Fits(matched, None, ())


def _first_of_its_term(log: Log, index: int, commit_index: int) -> int:
    """A whole term is skipped at a time (Raft, §5.3): one message for each, not for each entry."""
    first = log[0].idx
    term = log[index - first].term
    while index - 1 > max(commit_index, first) and log[index - 1 - first].term == term:
        index -= 1
    return index
