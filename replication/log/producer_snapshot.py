"""Producer state as bytes: one entry in memory, and the checksummed file that holds them all.

INVARIANT  what is read back is what was written, all five batches of every producer; a file that is damaged
           anywhere is refused whole, never half believed.
PREVENTS   a restart that remembers one batch of the window and refuses the retry of an older one.
PROVED BY  tests/replication/log/test_producers_machine.py::test_no_damage_to_a_snapshot_is_believed

Kafka's own `.snapshot` keeps only the last batch of a producer, so this is another format under another name
(`SNAPSHOT_SUFFIX`), which Kafka's tools pass over. Big endian, no padding:

    file    magic "FPPS" | version u16 | crc32 u32 of all that follows | end_offset i64 |
            producers u32 | completed u32 | producers * (producer_id i64, batches u8, entry) |
            completed * (first_offset i64, last_offset i64)
    entry   producer_epoch i16 | coordinator_epoch i32 | last_timestamp i64 | seen_ms i64 |
            txn_first_offset i64 (-1: none) | batches * (last_sequence i32, last_offset_delta i32,
            last_offset i64, timestamp i64), oldest first

An entry is kept in memory in just this form, one `bytes` a producer: a fifth of what tuples take.
"""

import struct
import zlib
from typing import Final, NamedTuple

SNAPSHOT_SUFFIX: Final = ".producers"
MAGIC: Final = b"FPPS"
VERSION: Final = 1
WINDOW: Final = 5  # ProducerStateEntry.NUM_BATCHES_TO_RETAIN, as max.in.flight allows
SEQUENCE_MAX: Final = 2**31 - 1

ENTRY: Final = struct.Struct(">hiqqq")
BATCH: Final = struct.Struct(">iiqq")
PREFIX: Final = struct.Struct(">4sHI")
COUNTS: Final = struct.Struct(">qII")
PRODUCER: Final = struct.Struct(">qB")
COMPLETED: Final = struct.Struct(">qq")

ENTRY_SIZE: Final = ENTRY.size
BATCH_SIZE: Final = BATCH.size
WINDOW_SIZE: Final = WINDOW * BATCH_SIZE


class SnapshotDamaged(Exception):
    """The bytes are not a whole snapshot. Nothing is lost but time: the log is replayed from further back."""


class Batch(NamedTuple):
    """One batch of a producer's window."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerState(NamedTuple):
    """What is known of one producer id, unpacked for people and tests."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_timestamp: int
    seen_ms: int
    txn_first_offset: int
    batches: tuple[Batch, ...]

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1


class Snapshot(NamedTuple):
    """What a file held: entries in order of last use, and transactions that ended but may not be replicated."""

    end_offset: int
    entries: list[tuple[int, bytes]]
    completed: list[tuple[int, int]]


def sequence_minus(sequence: int, delta: int) -> int:
    """`sequence - delta` on the circle 0 … 2^31-1 (DefaultRecordBatch.decrementSequence)."""
    return sequence - delta if sequence >= delta else sequence - delta + SEQUENCE_MAX + 1


def sequence_plus(sequence: int, delta: int) -> int:
    """`sequence + delta` on the circle 0 … 2^31-1 (DefaultRecordBatch.incrementSequence)."""
    total = sequence + delta
    return total if total <= SEQUENCE_MAX else total - SEQUENCE_MAX - 1


def is_after(sequence: int, other: int) -> bool:
    """On that circle."""
    return 0 < (sequence - other) & SEQUENCE_MAX < SEQUENCE_MAX // 2


def unpack_entry(producer_id: int, entry: bytes) -> ProducerState:
    batches = tuple(
        Batch(
            sequence_minus(last_sequence, delta),
            last_sequence,
            last_offset - delta,
            last_offset,
            time,
        )
        for last_sequence, delta, last_offset, time in BATCH.iter_unpack(entry[ENTRY_SIZE:])
    )
    epoch, coordinator_epoch, last_timestamp, seen_ms, txn_first_offset = ENTRY.unpack_from(entry)
    return ProducerState(
        producer_id, epoch, coordinator_epoch, last_timestamp, seen_ms, txn_first_offset, batches
    )


def seen_at(entry: bytes, now_ms: int) -> bytes:
    """The same, last seen then."""
    epoch, coordinator_epoch, timestamp, _, first = ENTRY.unpack_from(entry)
    return ENTRY.pack(epoch, coordinator_epoch, timestamp, now_ms, first) + entry[ENTRY_SIZE:]


def find_duplicate(entry: bytes, base_sequence: int, last_offset_delta: int) -> Batch | None:
    """The batch of the window with exactly these sequences, the oldest first as Kafka looks."""
    if len(entry) == ENTRY_SIZE:
        return None
    if base_sequence == BATCH.unpack_from(entry, len(entry) - BATCH_SIZE)[0] + 1:
        return None  # the common case: the one after the newest
    last_sequence = sequence_plus(base_sequence, last_offset_delta)
    for known_last, delta, last_offset, timestamp in BATCH.iter_unpack(entry[ENTRY_SIZE:]):
        if known_last == last_sequence and sequence_minus(known_last, delta) == base_sequence:
            return Batch(base_sequence, known_last, last_offset - delta, last_offset, timestamp)
    return None


def write_snapshot(
    end_offset: int, entries: dict[int, bytes], completed: list[tuple[int, int]]
) -> bytes:
    parts = [COUNTS.pack(end_offset, len(entries), len(completed))]
    for producer_id, entry in entries.items():
        parts.append(PRODUCER.pack(producer_id, (len(entry) - ENTRY_SIZE) // BATCH_SIZE))
        parts.append(entry)
    parts += [COMPLETED.pack(first, last) for first, last in completed]
    body = b"".join(parts)
    return PREFIX.pack(MAGIC, VERSION, zlib.crc32(body)) + body


def most_bytes(producers: int) -> int:
    """Of a snapshot of so many, each with a transaction that is over and not yet stable."""
    each = PRODUCER.size + ENTRY_SIZE + WINDOW_SIZE + COMPLETED.size
    return PREFIX.size + COUNTS.size + producers * each


def read_snapshot(data: bytes) -> Snapshot:
    """Raises SnapshotDamaged unless `data` is a whole snapshot, to the last bit."""
    if len(data) < PREFIX.size + COUNTS.size:
        raise SnapshotDamaged(f"only {len(data)} bytes")
    magic, version, checksum = PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise SnapshotDamaged(f"starts with {magic!r}, not {MAGIC!r}")
    if version != VERSION:
        raise SnapshotDamaged(f"version {version}; this code reads version {VERSION}")
    if zlib.crc32(memoryview(data)[PREFIX.size :]) != checksum:
        raise SnapshotDamaged("the checksum does not match")
    end_offset, producers, transactions = COUNTS.unpack_from(data, PREFIX.size)
    position = PREFIX.size + COUNTS.size
    entries = []
    try:
        for _ in range(producers):
            producer_id, batches = PRODUCER.unpack_from(data, position)
            position += PRODUCER.size
            size = ENTRY_SIZE + batches * BATCH_SIZE
            entries.append((producer_id, data[position : position + size]))
            position += size
        completed = []
        for _ in range(transactions):
            completed.append(COMPLETED.unpack_from(data, position))
            position += COMPLETED.size
    except struct.error as error:
        raise SnapshotDamaged(f"ends inside an entry: {error}") from error
    if position != len(data):
        raise SnapshotDamaged(f"{len(data)} bytes where its counts say {position}")
    return Snapshot(end_offset, entries, completed)
