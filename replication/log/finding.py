"""Where an offset is in a segment's file, and where the batches that may be read end.

INVARIANT  what is found starts and ends at a batch's edge, and no batch beyond `limit` is in it.
PREVENTS   a reader seeing past the high watermark, or a batch cut in half.
PROVED BY  tests/replication/log/test_log_model.py::test_the_log_answers_as_a_plain_list_does

Three ways, the cheapest first: the remembered tail of the segment that is written; the sparse index and a walk over
the headers behind the entry; and, when an entry is found not to fit the log, a walk from the segment's start.
"""

import errno
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from fencepost.cluster.base.errors import LogDamaged
from fencepost.cluster.base.ports import Chunk, FileSlice
from fencepost.cluster.wire.batch import BatchHeader

from .segment import Segment
from .walk import Step, walk, walk_headers


class ReadResult(NamedTuple):
    """Whole batches. `first_offset` is not above the first one's base offset; `next_offset` is behind the last."""

    slices: list[Chunk]
    size: int
    first_offset: int
    next_offset: int


class IndexWrong(Exception):
    """An index entry does not point to the batch that it says: the index must be made anew."""


def steps_from(segment: Segment, slot: int, *, block: bool) -> Iterator[Step]:
    """The batches from an index entry on (-1: from the start)."""
    file = segment.file()
    if slot < 0:
        yield from walk(file, 0, segment.size, segment.base_offset, block=block)
        return
    index, _ = segment.load_indexes()
    last = segment.base_offset + index.offsets[slot]
    steps = walk(file, index.positions[slot], segment.size, segment.base_offset, block=block)
    try:
        first = next(steps)
    except LogDamaged as error:
        _mend(segment, error)
    if first.next_offset - 1 != last:
        _mend(segment, None)
    yield first
    yield from steps


def _mend(segment: Segment, error: LogDamaged | None) -> NoReturn:
    """Make the index anew, for the next who comes. This one goes on without."""
    try:
        segment.rebuild_indexes()
    except LogDamaged as damage:  # it is the log: whoever walks there meets it
        raise IndexWrong from damage
    raise IndexWrong from error


def locate(segment: Segment, offset: int, *, block: bool) -> Step | None:
    """The first batch that ends behind `offset`."""
    known = bisect_right(segment.nexts, offset) - 1
    if known >= 0:
        nexts, ends = segment.nexts, segment.ends
        if known + 1 == len(nexts):
            return None
        start = ends[known]
        return Step(start, nexts[known], nexts[known + 1], ends[known + 1] - start)
    try:
        index, _ = segment.load_indexes(block=block)
        slot = index.slot_at_or_before(offset - segment.base_offset)
        return _locate(segment, offset, slot, block=block)
    except IndexWrong:
        return _locate(segment, offset, -1, block=block)


def _locate(segment: Segment, offset: int, slot: int, *, block: bool) -> Step | None:
    for step in steps_from(segment, slot, block=block):
        if step.next_offset > offset:
            return step
    return None


class Edge(NamedTuple):
    """The end of a batch: its position in the file and the offset behind it."""

    position: int
    next_offset: int


def boundary(
    segment: Segment, start: Step, limit: int, position_max: int, *, block: bool
) -> Edge | None:
    """Where the last batch from `start` on ends that ends at or before both `limit` and `position_max`."""
    if limit >= segment.next_offset and position_max >= segment.size:
        return Edge(segment.size, segment.next_offset)
    nexts, ends = segment.nexts, segment.ends
    known = min(bisect_right(nexts, limit), bisect_right(ends, position_max)) - 1
    if known >= 0:
        found = Edge(ends[known], nexts[known])
        return found if found.position > start.position else None
    if start.next_offset > limit or start.position + start.size > position_max:
        return None
    index, _ = segment.load_indexes(block=block)
    slot = min(index.slot_before(limit - segment.base_offset), index.slot_by_position(position_max))
    first = Edge(start.position + start.size, start.next_offset)
    try:
        while slot >= 0 and index.positions[slot] > start.position:
            steps = steps_from(segment, slot, block=block)
            last = _edge(steps, None, limit, position_max)
            if last is not None:
                return last
            # That entry's own batch does not fit, and where the one before it ends only that one tells: there may be a gap.
            slot -= 1
    except IndexWrong:
        pass
    steps = walk(segment.file(), first.position, segment.size, first.next_offset, block=block)
    return _edge(steps, first, limit, position_max)


def _edge(steps: Iterator[Step], edge: Edge | None, limit: int, position_max: int) -> Edge | None:
    """How far the steps go within the bounds. Damage ends them too: who reads on from there meets it."""
    try:
        for step in steps:
            if step.next_offset > limit or step.position + step.size > position_max:
                return edge
            edge = Edge(step.position + step.size, step.next_offset)
    except LogDamaged:
        return edge
    return edge


def read(
    segment: Segment, offset: int, max_bytes: int, *, limit: int, min_one: bool, block: bool
) -> ReadResult | None:
    """Batches from the one that holds `offset` on; None when all batches here end before it."""
    start = locate(segment, offset, block=block)
    if start is None:
        return None
    end = boundary(segment, start, limit, start.position + max_bytes, block=block)
    if end is not None and end.position > start.position:
        size, next_offset = end.position - start.position, end.next_offset
    elif min_one and start.next_offset <= limit:
        size, next_offset = start.size, start.next_offset
    else:
        return ReadResult([], 0, start.base_offset, start.base_offset)
    piece = FileSlice(segment.file(), start.position, size)
    return ReadResult([piece], size, start.base_offset, next_offset)


def end_before(segment: Segment, offset: int, *, block: bool = True) -> Edge:
    """Where the last batch that ends at or before `offset` ends, in the file and in offsets."""
    index, _ = segment.load_indexes(block=block)
    slot = index.slot_before(offset - segment.base_offset)
    try:
        return _end_before(segment, offset, slot, block=block)
    except IndexWrong:
        return _end_before(segment, offset, -1, block=block)


def _end_before(segment: Segment, offset: int, slot: int, *, block: bool) -> Edge:
    position, end = 0, segment.base_offset
    for step in steps_from(segment, slot, block=block):
        if step.next_offset > offset:
            break
        position, end = step.position + step.size, step.next_offset
    return Edge(position, end)


def headers_of(
    segment: Segment, offset: int, *, block: bool = True
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every batch that ends behind `offset`."""
    start = end_before(segment, offset, block=block).position
    file, base = segment.file(), segment.base_offset
    for position, header in walk_headers(file, start, segment.size, base, block=block):
        if header.last_offset >= offset:
            yield position, header


def is_whole(segment: Segment) -> bool:
    """Whether it reaches to the next one: others that were out of the log are gone, or gone in part."""
    end = segment.base_offset
    try:
        for _, header in headers_of(segment, end):
            end = header.next_offset
    except LogDamaged:
        return False
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return False
    return end == segment.next_offset
