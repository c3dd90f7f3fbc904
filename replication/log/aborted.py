"""The aborted transactions of a log, segment by segment, for readers that want only what was committed.

Kept in memory once read; written to the segment's file and synced with the next checkpoint. Entries at or above
the recovery point are derived again from the log at a start after a crash, so none is lost with that delay.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from fencepost.cluster.base.ports import Disk

from . import snapshots
from .finding import headers_of
from .names import TXNINDEX
from .producer_verdicts import CompletedTxn
from .producers_machine import ProducersMachine
from .segment import Segment
from .segment_files import extend, read_if_there
from .txn_index import CHECKSUM_SIZE, ENTRY_SIZE, AbortedIndex, AbortedTxn, IndexDamaged
from .walk import Cold

if TYPE_CHECKING:
    from .log import Log


def load(log: "Log", segment: Segment) -> AbortedIndex:
    if segment.aborted is None:
        if segment.raw_aborted is None:
            _read(log, segment)
        assert segment.raw_aborted is not None, "it was read just now"
        if isinstance(segment.raw_aborted, IndexDamaged):
            return _derived(log, segment, segment.raw_aborted)
        segment.aborted, segment.raw_aborted = segment.raw_aborted, None
    return segment.aborted


def _read(log: "Log", segment: Segment) -> None:
    """May run on a thread: what is read becomes the index on the loop."""
    data = read_if_there(log.env.disk, segment.path_of(TXNINDEX)) or b""
    try:
        segment.raw_aborted = AbortedIndex.parse(data, base_offset=segment.base_offset)
    except IndexDamaged as damage:
        segment.raw_aborted = damage


def _read_ahead(log: "Log", segments: Sequence[Segment]) -> None:
    """Up to one that has entries: it tells, as a rule, that no later one need be asked."""
    for segment in segments:
        if segment.aborted is None and segment.raw_aborted is None:
            _read(log, segment)
        if segment.aborted or segment.raw_aborted:
            return


def _derived(log: "Log", segment: Segment, damage: IndexDamaged) -> AbortedIndex:
    path = segment.path_of(TXNINDEX)
    log.env.log.warn("transaction_index_damaged", path=path, cause=str(damage))
    index = segment.aborted = derive(log, segment)
    segment.raw_aborted = None
    mark(log, segment)
    return index


def mark(log: "Log", segment: Segment) -> None:
    if segment not in log.aborted_unsynced:
        log.aborted_unsynced.append(segment)
    log.unsettled()


def add(log: "Log", segment: Segment, completed: CompletedTxn) -> None:
    entry = AbortedTxn(
        completed.producer_id,
        completed.first_offset,
        completed.last_offset,
        completed.last_stable_offset,
    )
    load(log, segment).append(entry)
    mark(log, segment)


def between(log: "Log", first: int, last: int, *, block: bool = True) -> list[AbortedTxn]:
    found: list[AbortedTxn] = []
    segments = log.segments[log.index_of(first) :]
    for at, segment in enumerate(segments):
        index = segment.aborted
        if index is None:
            if segment.raw_aborted is None and not block:
                raise Cold(partial(_read_ahead, log, segments[at:]))
            index = load(log, segment)
        if not index:
            continue  # nearly all: of a thousand segments this is all that a read pays for
        places, done = index.overlapping(first, last)
        found += [index[place] for place in places]
        if done:
            break
    return found


def has_any(log: "Log", segment: Segment) -> bool:
    if segment.aborted is None:
        return log.env.disk.exists(segment.path_of(TXNINDEX))
    return len(segment.aborted) > 0


def cut(log: "Log", segment: Segment, end_offset: int) -> None:
    """The log ends before `end_offset` now."""
    if load(log, segment).cut(end_offset):
        mark(log, segment)


def write(log: "Log", segment: Segment) -> None:
    """Bring the file up to date."""
    index = segment.aborted
    assert index is not None, f"what was never read of {segment.path_of(TXNINDEX)} is written"
    disk, path = log.env.disk, segment.path_of(TXNINDEX)
    checksum = _checksum_before(disk, path, index.written)
    added = index.to_bytes(index.written, checksum=checksum)
    if index.unsure:  # so that it is cut once more
        extend(disk, path, index.written * ENTRY_SIZE, b"\0")
        index.unsure = False
    if not extend(disk, path, index.written * ENTRY_SIZE, added):
        extend(disk, path, 0, index.to_bytes())
    index.written = len(index)


def _checksum_before(disk: Disk, path: str, place: int) -> int:
    """Of all entries before this place, as the file has it; nobody may have changed it but this log."""
    if place == 0:
        return 0
    file = disk.open(path, create=True)
    try:
        return int.from_bytes(file.read(place * ENTRY_SIZE - CHECKSUM_SIZE, CHECKSUM_SIZE), "big")
    finally:
        file.close()


def derive(log: "Log", segment: Segment) -> AbortedIndex:
    """From the log itself, replayed from its start. Blocks; only for an index that was damaged."""
    machine = ProducersMachine(budget=None, name=str(log.topic_partition))
    now_ms = log.env.clock.now_ms()
    found = AbortedIndex()
    for current in log.segments:
        for position, header in headers_of(current, current.base_offset):
            completed = snapshots.replay(machine, current, position, header, now_ms)
            if completed is not None and completed.aborted and current is segment:
                found.append(AbortedTxn(
                    completed.producer_id, completed.first_offset, completed.last_offset,
                    completed.last_stable_offset,
                ))  # fmt: skip
        if current is segment:
            break
    return found


def derive_anew(log: "Log", segments: list[Segment]) -> None:
    """At a start whose machine knows by a snapshot who wrote what is not there any more: that one can't begin at the log's start."""
    for segment in segments:
        if segment in log.segments:
            segment.aborted = derive(log, segment)
            mark(log, segment)
