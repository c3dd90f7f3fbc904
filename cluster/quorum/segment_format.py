"""How the journal's segments are written: bytes in, groups of entries out.

Segment  = magic, format, number, salt, checksum; groups.
Group    = magic, first index, count, flags, length and checksum of the body, checksum of this header; body.
Body     = for each entry: its length, its term, its bytes.
The salt goes into every checksum, so that the bytes of a group inside a client's value are no group.
"""

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from crc32c import crc32c

FORMAT: Final = 1
RESET: Final = 1  # flag: forget all entries before this group
SEAL: Final = 2  # flag: nothing new; what lies before was durable when the node stopped

_SEGMENT: Final = struct.Struct(">4sHxxQQI")
_SEGMENT_MAGIC: Final = b"FPJS"
_GROUP: Final = struct.Struct(">4sQIIIII")
_GROUP_MAGIC: Final = b"\xf5FPG"
_ENTRY: Final = struct.Struct(">IQ")
_SUM_SIZE: Final = 4
SEGMENT_HEADER_SIZE: Final = _SEGMENT.size


class Entry(NamedTuple):
    """What pysyncobj keeps in its log, in its order."""

    command: bytes
    idx: int
    term: int


@dataclass(frozen=True, slots=True)
class Group:
    """Entries that were written and synced together. `end` is the position behind it."""

    first_index: int
    flags: int
    entries: list[Entry]
    end: int


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    number: int
    salt: int
    format: int


def write_segment_header(number: int, salt: int) -> bytes:
    header = _SEGMENT.pack(_SEGMENT_MAGIC, FORMAT, number, salt, 0)[:-_SUM_SIZE]
    return header + int(crc32c(header)).to_bytes(_SUM_SIZE, "big")


def read_segment_header(data: bytes) -> SegmentHeader | None:
    """None when there is no whole, sound one."""
    if len(data) < SEGMENT_HEADER_SIZE:
        return None
    magic, form, number, salt, checksum = _SEGMENT.unpack_from(data)
    if magic != _SEGMENT_MAGIC or crc32c(data[: SEGMENT_HEADER_SIZE - _SUM_SIZE]) != checksum:
        return None
    return SegmentHeader(number, salt, form)


def _checksum(salt: int, data: bytes | memoryview) -> int:
    return int(crc32c(data, crc32c(salt.to_bytes(8, "big"))))


def write_group(salt: int, first_index: int, entries: list[Entry], flags: int = 0) -> bytes:
    body = b"".join(
        part
        for entry in entries
        for part in (_ENTRY.pack(len(entry.command), entry.term), entry.command)
    )
    sums = len(body), _checksum(salt, body)
    header = _GROUP.pack(_GROUP_MAGIC, first_index, len(entries), flags, *sums, 0)[:-_SUM_SIZE]
    return header + _checksum(salt, header).to_bytes(_SUM_SIZE, "big") + body


def read_group(data: bytes, position: int, salt: int) -> Group | None:
    """The group at a position, or None when there is no whole, sound one."""
    start = position + _GROUP.size
    if start > len(data):
        return None
    magic, first_index, count, flags, length, body_sum, header_sum = _GROUP.unpack_from(
        data, position
    )
    header = data[position : start - _SUM_SIZE]
    if magic != _GROUP_MAGIC or header_sum != _checksum(salt, header):
        return None
    end = start + length
    body = memoryview(data)[start:end]
    if len(body) != length or body_sum != _checksum(salt, body):
        return None
    entries: list[Entry] = []
    at = 0
    for index in range(first_index, first_index + count):
        size, term = _ENTRY.unpack_from(body, at)
        at += _ENTRY.size + size
        entries.append(Entry(bytes(body[at - size : at]), index, term))
    assert at == length, "a group with right checksums was written wrong"
    return Group(first_index, flags, entries, end)


def is_group_behind(data: bytes, position: int, salt: int) -> bool:
    """Whether there is a sound group anywhere from a position on."""
    found = data.find(_GROUP_MAGIC, position)
    while found >= 0:
        if read_group(data, found, salt) is not None:
            return True
        found = data.find(_GROUP_MAGIC, found + 1)
    return False
