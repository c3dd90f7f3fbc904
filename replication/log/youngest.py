"""How young the youngest record of a sealed segment is, found out off the loop.

INVARIANT  what is found here is what the segment itself would find; where its indexes can't be believed nothing is, and it looks itself.
PREVENTS   a loop that stands still, for 85 ms with a file of 1 GiB that has a batch every 4 KiB, and up to a hundred of them in one turn:
           a start after a kill knows it of no sealed segment, and the first round of retention asks it of each log's oldest.
PROVED BY  tests/replication/test_many_segments.py::test_retention_reads_no_index_on_the_loop
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from fencepost.cluster.base.ports import File

from .index import OffsetIndex, parsed
from .names import INDEX, TIMEINDEX
from .segment_files import read_if_there
from .walk import is_largest, walk_headers

if TYPE_CHECKING:
    from .segment import Segment

Largest = tuple[int, int]  # a timestamp, and the last offset of the first batch that has it
UNTOLD: Final[Largest] = (-2, -1)  # by these indexes


def look_into(segment: "Segment") -> Callable[[], None]:
    """Of a segment that nobody writes to: what may run on a thread. `segment.found_largest` has what came of it."""
    disk, file = segment.pool.disk, segment.file()
    size, base_offset = segment.size, segment.base_offset
    paths = segment.path_of(INDEX), segment.path_of(TIMEINDEX)

    def work() -> None:
        index, times = parsed(*(read_if_there(disk, path) for path in paths))
        found = UNTOLD
        if index is not None and times is not None and index.fits(size):
            timestamp, relative = times.last()
            largest = timestamp, base_offset + relative
            if is_there(largest, index, file, base_offset, size, end=size):
                found = largest
        segment.found_largest = found

    return work


def is_there(
    largest: Largest,
    index: OffsetIndex,
    file: File,
    base_offset: int,
    size: int,
    *,
    end: int,
    damaged_is: bool = False,
) -> bool:
    """The batch that the last time entry names has that timestamp, and none behind it, up to the one at `end`, a larger one.
    Where time goes forward that is a few batches, once for each segment after a crash."""
    timestamp, offset = largest
    slot = index.slot_at_or_before(offset - base_offset)
    start = index.positions[slot] if slot >= 0 else 0
    headers = walk_headers(file, start, size, base_offset)
    return is_largest(headers, timestamp, offset, end, damaged_is=damaged_is)
