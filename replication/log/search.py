"""From a timestamp to an offset, for ListOffsets. With `block` false, Cold where the disk must be waited for.

INVARIANT  a search that says so (`Seek.leaves`) neither unpacks nor looks through many records on the caller's thread.
PREVENTS   4 KB of zstd that somebody once wrote, 16 million records, holding a node for seconds whenever they are met.
PROVED BY  tests/replication/log/test_search.py::test_what_is_packed_is_looked_into_elsewhere
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from fencepost.cluster.wire.batch import BatchHeader
from fencepost.cluster.wire.records import read_times

from .finding import headers_of
from .segment import Segment
from .walk import read_range

if TYPE_CHECKING:
    from .log import Log

MAX_TIMESTAMP: Final = -3  # as ListOffsets asks for the youngest record
MANY_RECORDS: Final = 2_000  # 2 ms


class Found(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


class TimeIndexWrong(Exception):
    """A time index entry does not fit the batch that it names."""


class Heavy(Exception):
    """A batch takes long to look into. Call `work` off the loop, then go on with the same `Seek`."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__("takes long to look into")
        self.work = work


class Seek:
    """The first record that is not older than `timestamp`: one search, and how far it is.

    For MAX_TIMESTAMP, the first one of the largest there is when the search begins. It holds for one term of one leader: what was looked into is not looked into again.
    """

    __slots__ = ("done_to", "found", "leaves", "timestamp")

    def __init__(self, timestamp: int, *, leaves: bool = False) -> None:
        self.timestamp = timestamp
        self.leaves = leaves  # raise Heavy, rather than do it here
        self.done_to = 0  # no record below this offset is the one
        self.found: Found | None = None

    def look(self, batch: bytes, header: BatchHeader, timestamp: int, start: int) -> None:
        """Into one batch, for a record at or above `start`."""
        for offset, at in read_times(batch):
            if at >= timestamp and start <= offset <= header.last_offset:
                self.found = Found(offset, at, header.leader_epoch)
                return
        self.done_to = header.last_offset + 1


def first_at_or_after(log: "Log", seek: Seek, limit: int, *, block: bool = True) -> Found | None:
    """Of the records at or above the log's start and below `limit`."""
    if seek.timestamp == MAX_TIMESTAMP:
        seek.timestamp = _largest_timestamp(log, block=block)
    if seek.timestamp < 0:
        return None
    start = max(log.log_start_offset, seek.done_to)
    if seek.found is None or seek.found.offset < start:
        seek.found = None
        for segment in log.segments[log.index_of(start) :]:
            if segment.base_offset >= limit or seek.found is not None:
                break
            if segment.size and segment.largest_timestamp(block=block) >= seek.timestamp:
                _look_through(segment, seek, seek.timestamp, start, limit, block=block)
    found = seek.found
    return found if found is not None and found.offset < limit else None


def _look_through(
    segment: Segment, seek: Seek, timestamp: int, start: int, limit: int, *, block: bool
) -> None:
    for position, header in _batches(segment, seek, timestamp, start, block=block):
        if header.base_offset >= limit:
            return
        if header.max_timestamp < timestamp or header.last_offset < start:
            continue
        batch = read_range(segment.file(), position, header.size, block=block)
        work = partial(seek.look, batch, header, timestamp, start)
        if seek.leaves and (header.compression or header.record_count > MANY_RECORDS):
            raise Heavy(work)
        work()
        if seek.found is not None:
            return


def _batches(
    segment: Segment, seek: Seek, timestamp: int, start: int, *, block: bool
) -> Iterator[tuple[int, BatchHeader]]:
    """Those that can hold it, and perhaps some before them."""
    if segment.base_offset < seek.done_to == start:
        yield from headers_of(segment, start, block=block)
        return
    try:
        yield from _from_time(segment, timestamp, block=block)
    except TimeIndexWrong:  # which it finds with the first batch
        segment.rebuild_indexes()
        yield from _from_time(segment, timestamp, block=block)


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


def _largest_timestamp(log: "Log", *, block: bool) -> int:
    return max(
        (each.largest_timestamp(block=block) for each in log.segments if each.size), default=-1
    )
