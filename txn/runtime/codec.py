"""Kafka's primitive encodings, for the records of coordinators: as few as those need.

INVARIANT  whatever the bytes, reading ends in a value or in RecordRefused, and allocates no more than they hold.
PREVENTS   one damaged or foreign record taking the coordinator down with an error that names nothing.
PROVED BY  tests/txn/test_group_records.py::test_any_bytes_decode_to_a_record_or_are_refused
"""

import struct
from struct import Struct
from typing import Final
from uuid import UUID

STRING_BYTES_MAX: Final = 2**15 - 1  # outside of the compact form

_INT8: Final = Struct(">b")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")


class RecordRefused(ValueError):
    """These bytes are not a record that we know how to read; says which and why."""


class Reader:
    """Reads one value after another. The compact forms are those of flexible versions (KIP-482)."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def int8(self) -> int:
        return self._unpack(_INT8, 1)

    def int16(self) -> int:
        return self._unpack(_INT16, 2)

    def int32(self) -> int:
        return self._unpack(_INT32, 4)

    def int64(self) -> int:
        return self._unpack(_INT64, 8)

    def _unpack(self, layout: Struct, size: int) -> int:
        position = self.position
        self.position = position + size
        try:
            value: int = layout.unpack_from(self.data, position)[0]
        except struct.error:
            raise RecordRefused(f"a number is cut off at byte {position}") from None
        return value

    def take(self, length: int) -> bytes:
        end = self.position + length
        if length < 0 or end > len(self.data):
            raise RecordRefused(f"{length} bytes at {self.position} run over the end")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 28:
                raise RecordRefused(f"a varint before byte {self.position} does not end")

    def uuid(self) -> UUID:
        return UUID(bytes=self.take(16))

    def bytes_(self, *, compact: bool = False) -> bytes:
        return self.take(self.uvarint() - 1 if compact else self.int32())

    def string(self, *, compact: bool = False) -> str:
        value = self.nullable_string(compact=compact)
        if value is None:
            raise RecordRefused(f"a string before byte {self.position} is null")
        return value

    def nullable_string(self, *, compact: bool = False) -> str | None:
        length = self.uvarint() - 1 if compact else self._unpack(_INT16, 2)
        if length == -1:
            return None
        # As `take`, written out: most of what a replay reads are strings.
        start = self.position
        self.position = end = start + length
        if length < 0 or end > len(self.data):
            raise RecordRefused(f"{length} bytes at {start} run over the end")
        try:
            return self.data[start:end].decode()
        except UnicodeDecodeError:
            raise RecordRefused(f"a string before byte {end} is not UTF-8") from None

    def length(self, *, compact: bool = False) -> int:
        """How many elements an array has; each takes at least one byte, which bounds it."""
        count = self.uvarint() - 1 if compact else self.int32()
        if not 0 <= count <= len(self.data) - self.position:
            raise RecordRefused(f"an array before byte {self.position} claims {count} elements")
        return count

    def nullable_length(self, *, compact: bool = False) -> int | None:
        """`length` of an array that may be null."""
        position = self.position
        if (self.uvarint() - 1 if compact else self.int32()) == -1:
            return None
        self.position = position
        return self.length(compact=compact)

    def tags(self) -> dict[int, bytes]:
        """The tagged fields at the end of a flexible struct, unread."""
        return {self.uvarint(): self.take(self.uvarint()) for _ in range(self.uvarint())}

    def end(self) -> None:
        if self.position != len(self.data):
            left = len(self.data) - self.position
            raise RecordRefused(f"{left} bytes are left behind the last field")


class Writer:
    """Writes one value after another; `bytes(writer.data)` is the result."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data = bytearray()

    def int16(self, value: int) -> None:
        self.data += _INT16.pack(value)

    def int32(self, value: int) -> None:
        self.data += _INT32.pack(value)

    def int64(self, value: int) -> None:
        self.data += _INT64.pack(value)

    def uvarint(self, value: int) -> None:
        while value > 127:
            self.data.append(value & 127 | 128)
            value >>= 7
        self.data.append(value)

    def length(self, count: int | None, *, compact: bool = False) -> None:
        """Of an array; None for one that is null."""
        number = -1 if count is None else count
        if compact:
            self.uvarint(number + 1)
        else:
            self.int32(number)

    def bytes_(self, value: bytes, *, compact: bool = False) -> None:
        if compact:
            self.uvarint(len(value) + 1)
        else:
            self.int32(len(value))
        self.data += value

    def string(self, value: str | None, *, compact: bool = False) -> None:
        if value is None:
            self.data += b"\x00" if compact else b"\xff\xff"
            return
        encoded = value.encode()
        if compact:
            self.uvarint(len(encoded) + 1)
        elif len(encoded) > STRING_BYTES_MAX:
            raise RecordRefused(f"{len(encoded)} bytes are too many for a string")
        else:
            self.int16(len(encoded))
        self.data += encoded
