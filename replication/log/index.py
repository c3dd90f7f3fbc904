"""A segment's two sparse indexes, in memory as arrays and on disk as Kafka writes them.

INVARIANT  an index only shortens a search: whoever follows an entry checks that the batch it points to ends at
           the entry's offset (`Segment._from_index`), and rebuilds the index when it does not.
PREVENTS   a damaged index sending a reader into the middle of a record, or past what it asked for.
PROVED BY  tests/replication/log/test_indexes.py::test_no_damage_to_an_index_changes_what_is_read

An offset entry is (last offset of a batch, position of that batch): 4 + 4 bytes, the offset relative to the
segment's base. A time entry is (largest timestamp so far, last offset of the first batch that has it): 8 + 4
bytes. Big endian, both rise from entry to entry.
"""

import itertools
import operator
import struct
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

OFFSET_ENTRY_SIZE: Final = 8
TIME_ENTRY_SIZE: Final = 12
PIECE: Final = 16_384  # entries that are compared without a pause: 1 ms
_TIME_ENTRY: Final = struct.Struct(">qI")


class OffsetIndex:
    """Relative last offsets and positions of every so manieth batch."""

    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("I")
        self.positions = array("I")

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, relative_offset: int, position: int) -> None:
        self.offsets.append(relative_offset)
        self.positions.append(position)

    def slot_at_or_before(self, relative_offset: int) -> int:
        """The last entry whose offset is not above this one; -1 when there is none."""
        return bisect_right(self.offsets, relative_offset) - 1

    def slot_before(self, relative_offset: int) -> int:
        return bisect_left(self.offsets, relative_offset) - 1

    def slot_by_position(self, position: int) -> int:
        """The last entry whose batch starts at or before `position`."""
        return bisect_right(self.positions, position) - 1

    def cut(self, relative_offset: int) -> None:
        """Drop the entries of batches that end at or behind this offset."""
        keep = bisect_left(self.offsets, relative_offset)
        del self.offsets[keep:], self.positions[keep:]

    def to_bytes(self, start: int = 0) -> bytes:
        count = len(self.offsets) - start
        both = array("I", bytes(OFFSET_ENTRY_SIZE * count))
        both[0::2] = self.offsets[start:]
        both[1::2] = self.positions[start:]
        both.byteswap()
        return both.tobytes()

    @classmethod
    def parse(cls, data: bytes) -> "OffsetIndex | None":
        """None when the bytes can't be an index; of which log, `fits` tells."""
        index = cls()
        if len(data) % OFFSET_ENTRY_SIZE:
            return None
        both = array("I", data)
        both.byteswap()
        index.offsets, index.positions = both[0::2], both[1::2]
        if not (_rises(index.offsets) and _rises(index.positions)):
            return None
        return index

    def fits(self, log_size: int) -> bool:
        """Its last entry is of a batch in a log of this size."""
        return not self.positions or self.positions[-1] < log_size


class TimeIndex:
    """The largest timestamps so far, and how far "so far" went."""

    __slots__ = ("offsets", "timestamps")

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.offsets = array("I")

    def __len__(self) -> int:
        return len(self.offsets)

    def maybe_append(self, timestamp: int, relative_offset: int) -> None:
        """Only a timestamp above all before is news."""
        if timestamp < 0 or (self.timestamps and timestamp <= self.timestamps[-1]):
            return
        if self.offsets and relative_offset <= self.offsets[-1]:
            return
        self.timestamps.append(timestamp)
        self.offsets.append(relative_offset)

    def last(self) -> tuple[int, int]:
        """The largest timestamp, -1 without any, and the relative offset that has it."""
        return (self.timestamps[-1], self.offsets[-1]) if self.offsets else (-1, 0)

    def slot_at_or_before(self, timestamp: int) -> int:
        return bisect_right(self.timestamps, timestamp) - 1

    def cut(self, relative_offset: int) -> None:
        keep = bisect_left(self.offsets, relative_offset)
        del self.offsets[keep:], self.timestamps[keep:]

    def to_bytes(self, start: int = 0) -> bytes:
        pack = _TIME_ENTRY.pack
        return b"".join(map(pack, self.timestamps[start:], self.offsets[start:]))

    @classmethod
    def parse(cls, data: bytes) -> "TimeIndex | None":
        if len(data) % TIME_ENTRY_SIZE:
            return None
        index = cls()
        for timestamp, offset in _TIME_ENTRY.iter_unpack(data):
            index.timestamps.append(timestamp)
            index.offsets.append(offset)
        if not (_rises(index.timestamps) and _rises(index.offsets)):
            return None
        return index


def parsed(
    raw_index: bytes | None, raw_times: bytes | None
) -> tuple[OffsetIndex | None, TimeIndex | None]:
    """What two files hold, as far as they are there and usable; whether it fits the log is yet to be asked."""
    index = None if raw_index is None else OffsetIndex.parse(raw_index)
    return index, None if raw_times is None else TimeIndex.parse(raw_times)


def _rises(values: "array[int]") -> bool:
    """Strictly. 11 ms for the index of a full segment; a piece at a time, so that other threads get their turns."""
    pieces = (values[at : at + PIECE + 1] for at in range(0, len(values), PIECE))
    return all(all(map(operator.lt, piece, itertools.islice(piece, 1, None))) for piece in pieces)
