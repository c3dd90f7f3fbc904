"""Aborted transactions, for readers that want only what was committed: Kafka's `.txnindex` entries, and a checksum.

INVARIANT  a read_committed fetch names every aborted transaction that has a record in its range.
PREVENTS   records of an aborted transaction shown as data.
PROVED BY  tests/replication/log/test_txn_index.py::test_no_aborted_record_is_left_unnamed

One file a segment, for the transactions whose abort marker is in that segment; an entry is 38 bytes, big endian:
version i16 (0), producer_id i64, first_offset i64, last_offset i64 (the marker's), last_stable_offset i64; behind
these 34 bytes, which are Kafka's, the CRC-32 u32 of those of this entry and of all before it. So one look at the
last checksum tells of the whole file, and entries are added without reading it. Kafka believes what it reads: one
bit in a first offset, and the transaction is shown to readers who want only what was committed.

In memory they are columns, 32 bytes an entry, and a summary a thousand entries: Kafka looks at every entry of the
segment for each fetch, which one transaction that stays open for long makes a million.
"""

import operator
import struct
import sys
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

ENTRY: Final = struct.Struct(">hqqqq")
CHECKSUM_SIZE: Final = 4
ENTRY_SIZE: Final = ENTRY.size + CHECKSUM_SIZE  # 38
VERSION: Final = 0
BLOCK: Final = 1024  # entries that one look tells to be of no interest
_COLUMNS: Final = range(2, ENTRY.size, 8)
_NONE: Final = array("q")
_NO_BLOCKS: Final[list[tuple[int, int]]] = []


class IndexDamaged(Exception):
    """The bytes are not entries of a transaction index. It is rebuilt from the log."""


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def to_bytes(self) -> bytes:
        """Kafka's part of it."""
        return ENTRY.pack(VERSION, *self)


class AbortedIndex:
    """The entries of one segment, in the order of their markers. Of them the first `written` are the file's first."""

    __slots__ = ("_blocks", "_firsts", "_lasts", "_producer_ids", "_stables", "unsure", "written")

    def __init__(self, entries: Iterable[AbortedTxn] = ()) -> None:
        # Nearly every segment has none, and there are ten thousands of them: they share one nothing.
        self._producer_ids = self._firsts = self._lasts = self._stables = _NONE
        # Of each BLOCK entries: the lowest first offset, and the highest last stable offset.
        self._blocks = _NO_BLOCKS
        self.written = 0
        # The file may be longer on the disk than in the page cache, and a sync alone would leave it so.
        self.unsure = False
        for entry in entries:
            self.append(entry)

    def __len__(self) -> int:
        return len(self._lasts)

    def __iter__(self) -> Iterator[AbortedTxn]:
        columns = zip(self._producer_ids, self._firsts, self._lasts, self._stables, strict=True)
        return (AbortedTxn(*row) for row in columns)

    def __getitem__(self, place: int) -> AbortedTxn:
        return AbortedTxn(
            self._producer_ids[place], self._firsts[place], self._lasts[place], self._stables[place]
        )

    def append(self, entry: AbortedTxn) -> None:
        place = len(self._lasts)
        if self._lasts is _NONE:
            self._producer_ids, self._firsts, self._lasts, self._stables = (
                array("q") for _ in _COLUMNS
            )
            self._blocks = []
        self._producer_ids.append(entry.producer_id)
        self._firsts.append(entry.first_offset)
        self._lasts.append(entry.last_offset)
        self._stables.append(entry.last_stable_offset)
        if place % BLOCK == 0:
            self._blocks.append((entry.first_offset, entry.last_stable_offset))
        else:
            first, stable = self._blocks[-1]
            self._blocks[-1] = (
                min(first, entry.first_offset),
                max(stable, entry.last_stable_offset),
            )

    def cut(self, end_offset: int) -> bool:
        """Keep those whose marker lies before `end_offset`; whether any went."""
        keep = bisect_left(self._lasts, end_offset)
        if keep == len(self._lasts):
            return False
        for column in (self._producer_ids, self._firsts, self._lasts, self._stables):
            del column[keep:]
        self._summarise(keep // BLOCK)
        self.written = min(self.written, keep)
        return True

    def _summarise(self, block: int) -> None:
        """The blocks from this one on, anew."""
        del self._blocks[block:]
        for start in range(block * BLOCK, len(self._lasts), BLOCK):
            end = start + BLOCK
            self._blocks.append((min(self._firsts[start:end]), max(self._stables[start:end])))

    def overlapping(self, fetch_offset: int, upper_bound: int) -> tuple[list[int], bool]:
        """The places of those that reach into [fetch_offset, upper_bound), and whether later segments need not be asked.

        An entry whose last stable offset was at or behind the upper bound tells that every transaction which ends
        later also begins later.
        """
        found = []
        firsts, stables, blocks = self._firsts, self._stables, self._blocks
        place, end = bisect_left(self._lasts, fetch_offset), len(firsts)
        while place < end:
            first, stable = blocks[place // BLOCK]
            stop = min(place - place % BLOCK + BLOCK, end)
            if first >= upper_bound and stable < upper_bound:
                place = stop
                continue
            while place < stop:
                if firsts[place] < upper_bound:
                    found.append(place)
                if stables[place] >= upper_bound:
                    return found, True
                place += 1
        return found, False

    def to_bytes(self, start: int = 0, *, checksum: int = 0) -> bytes:
        """The entries from this one on, as they stand in the file behind one whose checksum is this."""
        parts: list[bytes] = []
        for place in range(start, len(self)):
            entry = self[place].to_bytes()
            checksum = zlib.crc32(entry, checksum)
            parts += (entry, checksum.to_bytes(CHECKSUM_SIZE, "big"))
        return b"".join(parts)

    @classmethod
    def parse(cls, data: bytes, *, base_offset: int) -> "AbortedIndex":
        """All entries of a segment's index, which hold together, or IndexDamaged. A million in a third of a second."""
        count, rest = divmod(len(data), ENTRY_SIZE)
        if rest:
            raise IndexDamaged(f"{len(data)} bytes are not whole entries of {ENTRY_SIZE}")
        index = cls()
        if not count:
            return index
        if any(data[at::ENTRY_SIZE].count(0) != count for at in range(2)):
            raise IndexDamaged("an entry has another version")
        if zlib.crc32(_without_checksums(data, count)) != int.from_bytes(
            data[-CHECKSUM_SIZE:], "big"
        ):
            raise IndexDamaged("its checksum is of other entries")
        index._producer_ids, index._firsts, index._lasts, index._stables = (
            _column(data, at, count) for at in _COLUMNS
        )
        firsts, lasts = index._firsts, index._lasts
        # Markers come in the order of the log, each behind what it ends.
        if not (
            lasts[0] >= base_offset
            and min(firsts) >= 0
            and all(map(operator.lt, firsts, lasts))
            and all(map(operator.lt, lasts, islice(lasts, 1, None)))
        ):
            raise IndexDamaged("its markers are not in the order of a log")
        index._blocks = []
        index._summarise(0)
        index.written = count
        return index


def _without_checksums(data: bytes, count: int) -> bytearray:
    """What the last checksum covers, gathered as `_column` does."""
    gathered = bytearray(ENTRY.size * count)
    for byte in range(ENTRY.size):
        gathered[byte :: ENTRY.size] = data[byte::ENTRY_SIZE]
    return gathered


def _column(data: bytes, at: int, count: int) -> "array[int]":
    """Eight bytes of each entry as numbers, gathered a byte at a time: no loop over entries."""
    gathered = bytearray(8 * count)
    for byte in range(8):
        gathered[byte::8] = data[at + byte :: ENTRY_SIZE]
    column = array("q")
    column.frombytes(gathered)
    if sys.byteorder == "little":
        column.byteswap()
    return column
