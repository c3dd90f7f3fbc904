"""From a timestamp to an offset, for ListOffsets. Blocks on the disk where the log is cold."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from fencepost.cluster.wire.batch import BatchHeader
from fencepost.cluster.wire.records import read_records

from .finding import headers_of
from .segment import Segment

if TYPE_CHECKING:
    from .log import Log


class Found(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


class TimeIndexWrong(Exception):
    """A time index entry does not fit the batch that it names."""


def first_at_or_after(log: "Log", timestamp: int, limit: int) -> Found | None:
    """The first record at or above the log's start and below `limit` whose timestamp is not less."""
    for segment in log.segments[log.index_of(log.log_start_offset) :]:
        if segment.base_offset >= limit:
            return None
        if segment.size == 0 or segment.largest_timestamp() < timestamp:
            continue
        try:
            found = _first_in(log, segment, timestamp, limit)
        except TimeIndexWrong:
            segment.rebuild_indexes()
            found = _first_in(log, segment, timestamp, limit)
        if found is not None:
            return found
    return None


def _first_in(log: "Log", segment: Segment, timestamp: int, limit: int) -> Found | None:
    start = log.log_start_offset
    for position, header in _from_time(segment, timestamp):
        if header.base_offset >= limit:
            return None
        if header.max_timestamp < timestamp or header.last_offset < start:
            continue
        for record in read_records(segment.file().read(position, header.size)):
            if record.timestamp >= timestamp and start <= record.offset < limit:
                return Found(record.offset, record.timestamp, header.leader_epoch)
    return None


def _from_time(segment: Segment, timestamp: int) -> Iterator[tuple[int, BatchHeader]]:
    """Batches from where the index says that the first one as young as `timestamp` can be."""
    _, times = segment.load_indexes()
    slot = times.slot_at_or_before(timestamp)
    if slot < 0:
        yield from headers_of(segment, segment.base_offset)
        return
    known_offset = segment.base_offset + times.offsets[slot]
    checked = False
    for position, header in headers_of(segment, known_offset):
        if not checked:
            known = (known_offset, times.timestamps[slot])
            if (header.last_offset, header.max_timestamp) != known:
                raise TimeIndexWrong
            checked = True
        yield position, header
    if not checked:
        raise TimeIndexWrong


def newest(log: "Log") -> Found | None:
    """The first record with the largest timestamp of all (ListOffsets -3)."""
    best: Segment | None = None
    for segment in log.segments:
        if segment.size and (
            best is None or segment.largest_timestamp() > best.largest_timestamp()
        ):
            best = segment
    if best is None or best.largest_timestamp() < 0:
        return None
    largest = best.largest_timestamp()
    for position, header in headers_of(best, best.offset_of_max):
        if header.max_timestamp != largest:
            continue
        for record in read_records(best.file().read(position, header.size)):
            if record.timestamp == largest:
                return Found(record.offset, largest, header.leader_epoch)
    return None
