"""Aborted transactions, for readers that want only what was committed: Kafka's `.txnindex` entries.

INVARIANT  a read_committed fetch names every aborted transaction that has a record in its range.
PREVENTS   records of an aborted transaction shown as data.
PROVED BY  tests/replication/log/test_txn_index.py::test_no_aborted_record_is_left_unnamed

One file a segment, for the transactions whose abort marker is in that segment; an entry is 34 bytes, big endian:
version i16 (0), producer_id i64, first_offset i64, last_offset i64 (the marker's), last_stable_offset i64.
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

ENTRY: Final = struct.Struct(">hqqqq")
ENTRY_SIZE: Final = ENTRY.size  # 34
VERSION: Final = 0


class IndexDamaged(Exception):
    """The bytes are not entries of a transaction index. It is rebuilt from the log."""


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def to_bytes(self) -> bytes:
        return ENTRY.pack(VERSION, *self)


def parse(data: bytes, *, base_offset: int) -> list[AbortedTxn]:
    """All entries of a segment's index, which hold together, or IndexDamaged."""
    if len(data) % ENTRY_SIZE:
        raise IndexDamaged(f"{len(data)} bytes are not whole entries of {ENTRY_SIZE}")
    found: list[AbortedTxn] = []
    last = base_offset - 1
    for position, (version, *fields) in enumerate(ENTRY.iter_unpack(data)):
        txn = AbortedTxn(*fields)
        if version != VERSION:
            raise IndexDamaged(f"entry {position} has version {version}")
        # Markers come in the order of the log, each behind what it ends.
        if (
            not txn.first_offset < txn.last_offset
            or txn.last_offset <= last
            or txn.first_offset < 0
        ):
            raise IndexDamaged(f"entry {position} is {txn}, behind offset {last}")
        last = txn.last_offset
        found.append(txn)
    return found


def collect(
    entries: Iterable[AbortedTxn], fetch_offset: int, upper_bound: int
) -> tuple[list[AbortedTxn], bool]:
    """Those that reach into [fetch_offset, upper_bound), and whether later segments need not be asked.

    An entry whose last stable offset was at or behind the upper bound tells that every transaction which ends
    later also begins later.
    """
    found = []
    for txn in entries:
        if txn.last_offset >= fetch_offset and txn.first_offset < upper_bound:
            found.append(txn)
        if txn.last_stable_offset >= upper_bound:
            return found, True
    return found, False


def truncated(entries: list[AbortedTxn], end_offset: int) -> int:
    """How many of the entries stay when the log is cut to end before `end_offset`."""
    for index, txn in enumerate(entries):
        if txn.last_offset >= end_offset:
            return index
    return len(entries)
