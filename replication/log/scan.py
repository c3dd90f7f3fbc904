"""Batch by batch through a file that a crash may have left half written, every byte checked."""

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from fencepost.cluster.wire.batch import (
    HEADER_SIZE,
    BatchHeader,
    BatchRefused,
    check_batch,
    parse_header,
)

from .config import INT_MAX

CHUNK: Final = 1024 * 1024
LOOK_BEHIND: Final = 64 * 1024 * 1024  # how far behind damage a good batch is looked for
OFFSETS_AHEAD: Final = 2**32  # a batch with an offset further on is none of this log's
_MAGIC_AT: Final = 16
_MAGIC: Final = b"\x02"


class Readable(Protocol):
    """What is asked of a file here."""

    def read(self, position: int, length: int) -> bytes: ...


class Bad(Exception):
    """The first batch that is not whole. `short`: it, or its header, is longer than the file."""

    def __init__(self, position: int, offset: int, why: str, *, short: bool) -> None:
        super().__init__(why)
        self.position = position
        self.offset = offset  # that should be here
        self.why = why
        self.short = short


class Checked(NamedTuple):
    position: int
    header: BatchHeader
    batch: memoryview


def scan(
    file: Readable, position: int, end: int, offset: int, *, chunk: int = CHUNK
) -> Iterator[Checked]:
    """Every whole batch from `position` on, whose first offset is at or above `offset`. Raises Bad.

    The checksum does not cover a batch's own offset. One that is too low shows at once; one that leaves a gap is
    right in a log that was compacted, unless the next batch belies it.
    """
    data = b""
    offset_max = offset + INT_MAX
    start = position
    while position < end:
        at = position - start
        if at + HEADER_SIZE > len(data):
            data = file.read(position, min(chunk, end - position))
            start, at = position, 0
        try:
            header = parse_header(data, at)
        except BatchRefused as refused:
            short = end - position < HEADER_SIZE
            raise Bad(position, offset, refused.message, short=short) from None
        if header.size > end - position:
            why = f"a batch of {header.size} bytes, of which {end - position} are there"
            # A follower killed while it copies a compacted log leaves half a batch behind a gap.
            raise Bad(position, offset, why, short=offset <= header.base_offset <= offset_max)
        if at + header.size > len(data):
            data = file.read(position, max(chunk, header.size))
            start, at = position, 0
        try:
            check_batch(data, at, header)
        except BatchRefused as refused:
            raise Bad(position, offset, refused.message, short=False) from None
        base = header.base_offset
        if base != offset and (
            not offset < base <= offset_max or _is_belied(file, position + header.size, end, header)
        ):
            why = f"a batch of offset {base} where {offset} should be"
            raise Bad(position, offset, why, short=False)
        yield Checked(position, header, memoryview(data)[at : at + header.size])
        offset = header.next_offset
        position += header.size


def _is_belied(file: Readable, position: int, end: int, header: BatchHeader) -> bool:
    if end - position < HEADER_SIZE:
        return False
    try:
        following = parse_header(file.read(position, HEADER_SIZE))
    except BatchRefused:
        return False
    return following.magic == header.magic and following.base_offset <= header.last_offset


def good_batch_behind(file: Readable, position: int, end: int, offset: int) -> int | None:
    """The position of a whole batch somewhere behind a bad one, whose own length may be wrong."""
    data = file.read(position, min(LOOK_BEHIND, end - position))
    found = data.find(_MAGIC, _MAGIC_AT + 1)
    while found >= 0:
        at = found - _MAGIC_AT
        found = data.find(_MAGIC, found + 1)
        if at + HEADER_SIZE > len(data):
            break
        base = int.from_bytes(data[at : at + 8], "big", signed=True)
        if not offset <= base < offset + OFFSETS_AHEAD:
            continue
        try:
            header = parse_header(data, at)
            if at + header.size <= len(data):
                check_batch(data, at, header)
                return position + at
        except BatchRefused:
            continue
    return None
