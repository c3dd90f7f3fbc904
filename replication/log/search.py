"""From a timestamp to an offset, for ListOffsets. With `block` false, Cold where the disk must be waited for."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from fencepost.cluster.wire.batch import BatchHeader
from fencepost.cluster.wire.records import read_records

from .finding import headers_of
from .segment import Segment
from .walk import read_range

if TYPE_CHECKING:
    from .log import Log


class Found(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


class TimeIndexWrong(Exception):
    """A time index entry does not fit the batch that it names."""


def first_at_or_after(
    log: "Log", timestamp: int, limit: int, *, block: bool = True
) -> Found | None:
    """The first record at or above the log's start and below `limit` whose timestamp is not less."""
    for segment in log.segments[log.index_of(log.log_start_offset) :]:
        if segment.base_offset >= limit:
            return None
        if segment.size == 0 or segment.largest_timestamp(block=block) < timestamp:
            continue
        try:
            found = _first_in(log, segment, timestamp, limit, block=block)
        except TimeIndexWrong:
            segment.rebuild_indexes()
            found = _first_in(log, segment, timestamp, limit, block=block)
        if found is not None:
            return found
    return None


def _first_in(
    log: "Log", segment: Segment, timestamp: int, limit: int, *, block: bool
) -> Found | None:
    start = log.log_start_offset
    for position, header in _from_time(segment, timestamp, block=block):
        if header.base_offset >= limit:
            return None
        if header.max_timestamp < timestamp or header.last_offset < start:
            continue
        batch = read_range(segment.file(), position, header.size, block=block)
        for record in read_records(batch):
            if record.timestamp >= timestamp and start <= record.offset < limit:
                return Found(record.offset, record.timestamp, header.leader_epoch)
    return None


def _from_time(
    segment: Segment, timestamp: int, *, block: bool
) -> Iterator[tuple[int, BatchHeader]]:
    """Batches from where the index says that the first one as young as `timestamp` can be."""
    _, times = segment.load_indexes(block=block)
    slot = times.slot_at_or_before(timestamp)
    if slot < 0:
        yield from headers_of(segment, segment.base_offset, block=block)
        return
    known_offset = segment.base_offset + times.offsets[slot]
    checked = False
    for position, header in headers_of(segment, known_offset, block=block):
        if not checked:
            known = (known_offset, times.timestamps[slot])
            if (header.last_offset, header.max_timestamp) != known:
                raise TimeIndexWrong
            checked = True
        yield position, header
    if not checked:
        raise TimeIndexWrong


def newest(log: "Log", *, block: bool = True) -> Found | None:
    """The first record with the largest timestamp of all (ListOffsets -3)."""
    best: Segment | None = None
    largest = -1
    for segment in log.segments:
        if segment.size and (best is None or segment.largest_timestamp(block=block) > largest):
            best, largest = segment, segment.largest_timestamp(block=block)
    if best is None or largest < 0:
        return None
    for position, header in headers_of(best, best.offset_of_max, block=block):
        if header.max_timestamp != largest:
            continue
        for record in read_records(read_range(best.file(), position, header.size, block=block)):
            if record.timestamp == largest:
                return Found(record.offset, largest, header.leader_epoch)
    return None
