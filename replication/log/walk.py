"""From batch to batch through a segment, by their headers alone.

INVARIANT  a step is taken only from a header that could be one: version 2, a size that fits the file, offsets that
           rise. Anything else is LogDamaged, with the file and the position in its message.
PREVENTS   a reader that loses its place in a damaged file going on with garbage, or skipping what it can't read.
PROVED BY  tests/replication/log/test_reads.py::test_a_damaged_header_is_named_not_skipped
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from fencepost.cluster.base.errors import LogDamaged
from fencepost.cluster.base.ports import File
from fencepost.cluster.wire.batch import (
    HEADER_SIZE,
    LENGTH_PREFIX,
    MAGIC,
    BatchHeader,
    BatchRefused,
    check_batch,
    parse_header,
)

# base offset, length, magic, last offset delta: what a step needs of the 61 bytes.
_STEP: Final = Struct(">qi4xb4x2xi")
CHUNK: Final = 4096  # index.interval.bytes: one read spans the distance between two index entries
PIECE: Final = 256 * 1024  # whole batches that are looked into at a time
LONG_CHUNK: Final = 256 * 1024  # for a walk through a whole segment


class Step(NamedTuple):
    """One batch: where it is, and which offsets it holds."""

    position: int
    base_offset: int
    next_offset: int
    size: int


class Cold(Exception):
    """What was asked for is not in memory, or (`aside`) not checked yet. Call `work` off the loop, then ask again."""

    def __init__(self, work: Callable[[], object], *, aside: bool = False) -> None:
        super().__init__("not in memory")
        self.work = work
        self.aside = aside


# With another replica: reassignments take this one out, which deletes its folder, and in again. Without: what is left.
HOW_TO_MEND: Final = (
    "Take this replica out of the partition and in again (`fencepost partition move`): it is copied anew."
    " If it is the only one, restore the file, or have the partition recovered without what is lost"
)


def damaged(path: str, position: int, offset: int, why: str) -> LogDamaged:
    return LogDamaged(
        f"{path} is damaged at position {position}, where offset {offset} should be: {why}. What lies"
        f" before it and behind it was left as it is. {HOW_TO_MEND}"
    )


def read_range(file: File, position: int, length: int, *, block: bool) -> bytes:
    if block:
        return file.read(position, length)
    data = file.read_cached(position, length)
    if data is None:
        raise Cold(lambda: file.read(position, length))
    return data


def walk(
    file: File, position: int, end: int, offset: int, *, block: bool, chunk: int = CHUNK
) -> Iterator[Step]:
    """The batches from `position` to `end`; `offset` is what the first one is at or behind."""
    data = b""
    start = position  # of `data` in the file
    while position < end:
        at = position - start
        if at + HEADER_SIZE > len(data):
            data = read_range(file, position, min(chunk, end - position), block=block)
            start, at = position, 0
            if len(data) < HEADER_SIZE:
                why = f"{len(data)} bytes are too few for a batch"
                raise damaged(file.path, position, offset, why)
        base, length, magic, delta = _STEP.unpack_from(data, at)
        size = length + LENGTH_PREFIX
        if magic != MAGIC or size < HEADER_SIZE or size > end - position or delta < 0:
            why = f"a batch of version {magic}, {size} bytes and {delta + 1} offsets can't be here"
            raise damaged(file.path, position, offset, why)
        if base < offset:
            raise damaged(file.path, position, offset, f"offset {base} is there instead")
        offset = base + delta + 1
        yield Step(position, base, offset, size)
        position += size


def walk_headers(
    file: File, position: int, end: int, offset: int, *, block: bool = True
) -> Iterator[tuple[int, BatchHeader]]:
    """The same with whole headers."""
    data = b""
    start = position
    for step in walk(file, position, end, offset, block=block, chunk=LONG_CHUNK):
        at = step.position - start
        if at + HEADER_SIZE > len(data):
            length = min(LONG_CHUNK, end - step.position)
            data = read_range(file, step.position, length, block=block)
            start, at = step.position, 0
        try:
            yield step.position, parse_header(data, at)
        except BatchRefused as refused:
            raise damaged(file.path, step.position, step.base_offset, refused.message) from refused


def is_largest(
    headers: Iterator[tuple[int, BatchHeader]],
    timestamp: int,
    offset: int,
    end: int,
    *,
    damaged_is: bool = False,
) -> bool:
    """Whether the batch that ends with `offset` is there with that timestamp (-1: none has one), and none has a larger one, up to the
    batch at the position `end`: what is behind may be torn. `damaged_is`: what is answered where damage is met before that."""
    found = timestamp == -1
    try:
        for position, header in headers:
            if header.max_timestamp > timestamp:
                return False
            found |= (header.last_offset, header.max_timestamp) == (offset, timestamp)
            if position >= end:
                break
    except LogDamaged:
        return damaged_is
    return found


def pieces(
    file: File, position: int, end: int, offset: int, limit: int
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Position, header and bytes of the whole batches in the next piece; one at least. LogDamaged. The first one is at or behind
    `offset`, and none reaches to `limit` or over it: no checksum covers a batch's own offset."""
    data = file.read(position, min(PIECE, end - position))
    at = 0
    while position + at < end:
        if at and at + HEADER_SIZE > len(data):
            return
        try:
            header = parse_header(data, at)
            if at + header.size > len(data):
                if at:
                    return
                data = file.read(position, min(header.size, end - position))
            check_batch(data, at, header)
        except BatchRefused as refused:
            raise damaged(file.path, position + at, offset, refused.message) from refused
        if not offset <= header.base_offset <= header.last_offset < limit:
            why = f"a batch of offset {header.base_offset} can't be here"
            raise damaged(file.path, position + at, offset, why)
        offset = header.next_offset
        yield position + at, header, memoryview(data)[at : at + header.size]
        at += header.size
