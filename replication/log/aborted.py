"""The aborted transactions of a log, segment by segment, for readers that want only what was committed.

Kept in memory once read; written to the segment's file and synced with the next checkpoint. Entries at or above
the recovery point are derived again from the log at a start after a crash, so none is lost with that delay.
"""

from typing import TYPE_CHECKING

from fencepost.cluster.wire.batch import HEADER_SIZE, parse_header

from . import snapshots
from .finding import headers_of, locate
from .names import TXNINDEX
from .producer_verdicts import CompletedTxn
from .producers_machine import ProducersMachine
from .segment import Segment
from .segment_files import extend, read_if_there
from .txn_index import ENTRY_SIZE, AbortedTxn, IndexDamaged, collect, parse, truncated
from .walk import Cold, read_range

if TYPE_CHECKING:
    from .log import Log


def load(log: "Log", segment: Segment, *, block: bool = True) -> list[AbortedTxn]:
    if segment.aborted is None:
        if segment.raw_aborted is None:
            if not block:
                raise Cold(lambda: _read(log, segment))
            _read(log, segment)
        try:
            found = parse(segment.raw_aborted or b"", base_offset=segment.base_offset)
            for entry in found:
                _check_marker(segment, entry, block=block)
            segment.aborted, segment.aborted_written = found, len(found)
        except IndexDamaged as error:
            path = segment.path_of(TXNINDEX)
            log.env.log.warn("transaction_index_damaged", path=path, error=str(error))
            segment.aborted = derive(log, segment)
            segment.aborted_written = 0
            mark(log, segment)
        segment.raw_aborted = None
    return segment.aborted


def _read(log: "Log", segment: Segment) -> None:
    segment.raw_aborted = read_if_there(log.env.disk, segment.path_of(TXNINDEX)) or b""


def _check_marker(segment: Segment, entry: AbortedTxn, *, block: bool) -> None:
    """The file has no checksum: each entry must at least name a marker that is there."""
    step = locate(segment, entry.last_offset, block=block)
    if step is not None:
        data = read_range(segment.file(), step.position, HEADER_SIZE, block=block)
        header = parse_header(data)
        if header.is_control and (header.producer_id, header.last_offset) == (
            entry.producer_id,
            entry.last_offset,
        ):
            return
    raise IndexDamaged(f"there is no marker for {entry}")


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
    for segment in log.segments[log.index_of(first) :]:
        more, done = collect(load(log, segment, block=block), first, last)
        found += more
        if done:
            break
    return found


def has_any(log: "Log", segment: Segment) -> bool:
    if segment.aborted is None:
        return log.env.disk.exists(segment.path_of(TXNINDEX))
    return bool(segment.aborted)


def cut(log: "Log", segment: Segment, end_offset: int) -> None:
    """The log ends before `end_offset` now."""
    entries = load(log, segment)
    keep = truncated(entries, end_offset)
    if keep < len(entries):
        del entries[keep:]
        mark(log, segment)


def write(log: "Log", segment: Segment) -> None:
    """Bring the file up to date."""
    entries = segment.aborted or []
    disk, path = log.env.disk, segment.path_of(TXNINDEX)
    at = min(segment.aborted_written, len(entries))
    data = b"".join(entry.to_bytes() for entry in entries[at:])
    if not extend(disk, path, at * ENTRY_SIZE, data):
        extend(disk, path, 0, b"".join(entry.to_bytes() for entry in entries))
    segment.aborted_written = len(entries)


def derive(log: "Log", segment: Segment) -> list[AbortedTxn]:
    """From the log itself, replayed from its start. Blocks; only for an index that was damaged."""
    machine = ProducersMachine(budget=None, name=str(log.topic_partition))
    now_ms = log.env.clock.now_ms()
    found: list[AbortedTxn] = []
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
