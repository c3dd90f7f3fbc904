"""Reads the batches of a coordinator's partition, fast: most of what a log says it takes back later.

INVARIANT  the machine ends up as if every record had been applied one by one, in order.
PREVENTS   a coordinator that forgot or invented something when it moved.
PROVED BY  tests/txn/test_loader.py::test_a_fast_replay_ends_where_a_plain_one_does

Records are kept by owner and key, as compaction would do, and left undecoded (`unread.py`). Those of a transaction
wait beside them for its marker, and count by their own place when it commits. Where that is not the whole story the
owner is read at once and from then on each of its records when it comes: when a transaction is aborted, which leaves
an owner that may have nothing else, when something is taken away while one is open, and when one is at the end.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from fencepost.cluster.base.errors import ErrorCode, LogDamaged
from fencepost.cluster.base.ids import NO_TIMESTAMP
from fencepost.cluster.wire.batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    CRC_FROM,
    HEADER_SIZE,
    LENGTH_PREFIX,
    TRANSACTIONAL_FLAG,
    BatchRefused,
    compute_crc,
)
from fencepost.cluster.wire.compression import SIZE_MAX, decompress
from fencepost.cluster.wire.records import Record, read_control

from .ports import Codec, Machine
from .unread import Unread

READ_MAX: Final = 100  # owners in one turn of the loop, some 30 µs each
NO_PRODUCER: Final = -1

# base offset, length, attributes, last offset delta, producer id, record count: what a replay asks of a header
_HEADER: Final = Struct(">qi9xhi16xq6xi")
_CRC: Final = Struct(">I")
_LENGTH_MIN: Final = HEADER_SIZE - LENGTH_PREFIX
Row = tuple[int, bytes, bytes | None]


class Replay:
    """`take` every batch, then `close`; `unread` holds what is left to read, `finish` reads it all."""

    def __init__(self, machine: Machine, codec: Codec) -> None:
        self._machine = machine
        self._codec = codec
        self._awake: set[bytes] = set()  # owners that have been read
        # Open transactions of all others: producer -> owner -> records, and for each owner its producers.
        self._open: dict[int, dict[bytes, list[Row]]] = {}
        self._producers_of: dict[bytes, dict[int, None]] = {}
        self.unread = Unread(codec)
        self.records = 0

    def take(self, buffer: bytes) -> int | None:
        """All batches in the buffer; the offset behind the last one, None if there is none."""
        next_offset = None
        position, end = 0, len(buffer)
        unpack_from = _HEADER.unpack_from
        while position < end:
            if position + HEADER_SIZE > end:
                raise _cut_off(position)
            base_offset, length, attributes, last_delta, producer_id, count = unpack_from(
                buffer, position
            )
            behind = position + LENGTH_PREFIX + length
            if length < _LENGTH_MIN or behind > end:
                raise _cut_off(position)
            (crc,) = _CRC.unpack_from(buffer, position + CRC_FROM - _CRC.size)
            if crc != compute_crc(buffer, position, behind - position):
                raise LogDamaged(f"the batch at offset {base_offset} is not what was written")
            self.records += count
            body, at = buffer, position + HEADER_SIZE
            if attributes & COMPRESSION_MASK:
                body = decompress(attributes & COMPRESSION_MASK, body[at:behind], SIZE_MAX)
                at = 0
            rows = rows_of(body, at, count, base_offset)
            if attributes & CONTROL_FLAG:
                self._markers(rows, producer_id)
            elif attributes & TRANSACTIONAL_FLAG:
                self._hold(rows, producer_id)
            else:
                self._keep(rows)
            next_offset = base_offset + last_delta + 1
            position = behind
        return next_offset

    def close(self) -> None:
        """No more batches: who has an open transaction is read, so that its marker finds it."""
        for owner in list(self._producers_of):
            self._wake(owner)

    def read_urgent(self) -> Iterator[None]:
        """Read those who can't wait: a transaction that is decided, and whose partitions do not know it yet."""
        is_urgent = self._codec.is_urgent
        owners = [] if is_urgent is None else self.unread.urgent(is_urgent)
        for at in range(0, len(owners), READ_MAX):
            yield
            for owner in owners[at : at + READ_MAX]:
                self.unread.read(owner, self._machine)

    def finish(self) -> Iterator[None]:
        """Read what was kept, a turn's worth at a time."""
        unread = self.unread
        while unread.rows:
            for owner in unread.first(READ_MAX):
                unread.read(owner, self._machine)
            yield

    def _keep(self, rows: list[Row]) -> None:
        owner_of, awake, unread = self._codec.owner_of, self._awake, self.unread
        for row in rows:
            offset, key, value = row
            owner = owner_of(key, value)
            if owner is None:
                unread.skipped += 1
            elif owner in awake:
                self._apply(row, NO_PRODUCER)
            elif value is None and owner in self._producers_of:
                self._wake(
                    owner
                )  # a tombstone takes away what waits, too: nothing may stay behind it
                self._apply(row, NO_PRODUCER)
            else:
                unread.keep(owner, offset, key, value)

    def _hold(self, rows: list[Row], producer_id: int) -> None:
        for row in rows:
            owner = self._codec.owner_of(row[1], row[2])
            if owner is None:
                self.unread.skipped += 1
            elif owner in self._awake:
                self._apply(row, producer_id)
            else:
                self._open.setdefault(producer_id, {}).setdefault(owner, []).append(row)
                self._producers_of.setdefault(owner, {})[producer_id] = None

    def _markers(self, rows: list[Row], producer_id: int) -> None:
        for offset, key, value in rows:
            marker = read_control(Record(offset, NO_TIMESTAMP, key, value))
            if marker is None:
                continue
            if marker.commit:
                for owner, held in self._open.pop(producer_id, {}).items():
                    self._forget_open(owner, producer_id)
                    for row in held:
                        self.unread.keep_older(owner, *row)
            else:
                for owner in list(self._open.get(producer_id, ())):
                    self._wake(owner)
            self._machine.end_transaction(producer_id, commit=marker.commit)

    def _wake(self, owner: bytes) -> None:
        """Read what is known of an owner, its open transactions last: no tombstone came after any of them."""
        self._awake.add(owner)
        self.unread.read(owner, self._machine)
        held: list[tuple[Row, int]] = []
        for producer_id in list(self._producers_of.get(owner, ())):
            held += [(row, producer_id) for row in self._open[producer_id].pop(owner)]
            if not self._open[producer_id]:
                del self._open[producer_id]
            self._forget_open(owner, producer_id)
        for row, producer_id in sorted(held, key=_by_offset):
            self._apply(row, producer_id)

    def _forget_open(self, owner: bytes, producer_id: int) -> None:
        producers = self._producers_of[owner]
        del producers[producer_id]
        if not producers:
            del self._producers_of[owner]

    def _apply(self, row: Row, producer_id: int) -> None:
        offset, key, value = row
        record = self._codec.decode(key, value)
        if record is None:
            self.unread.skipped += 1
        else:
            self._machine.apply(record, offset, producer_id)


def _by_offset(held: tuple[Row, int]) -> int:
    return held[0][0]


def _cut_off(position: int) -> BatchRefused:
    return BatchRefused(
        ErrorCode.corrupt_message, f"the batch at {position} is not as long as it claims"
    )


def rows_of(body: bytes, at: int, count: int, base_offset: int) -> list[Row]:
    """Offset, key and value of each record: what `read_records` gives, without what nobody asked for.

    The batch is what was written, as its CRC says, and it was checked when it came in, so lengths are not doubted here;
    one that runs over the end gives short bytes, which the decoder refuses. Numbers of one byte are spelled out:
    nearly all are, and a call would cost as much as the rest.
    """
    rows = []
    for _ in range(count):
        number = body[at]
        at += 1
        if number > 127:
            number, at = _number(body, at - 1)
        behind = at + (number >> 1)
        at += 1  # the attributes
        while body[at] > 127:
            at += 1
        number = body[at + 1]  # behind the timestamp's last byte
        at += 2
        if number > 127:
            number, at = _number(body, at - 1)
        offset = base_offset + (number >> 1)
        number = body[at]
        at += 1
        if number > 127:
            number, at = _number(body, at - 1)
        if number & 1:
            raise BatchRefused(ErrorCode.invalid_record, f"the record at {offset} has no key")
        start = at
        at += number >> 1
        key = body[start:at]
        number = body[at]
        at += 1
        if number > 127:
            number, at = _number(body, at - 1)
        rows.append((offset, key, None if number & 1 else body[at : at + (number >> 1)]))
        at = behind
    return rows


def _number(body: bytes, at: int) -> tuple[int, int]:
    """A varint as it stands, zig-zag and all: odd is negative, half of it is the value."""
    byte = body[at]
    number = byte & 127
    shift = 7
    while byte > 127:
        at += 1
        byte = body[at]
        number |= (byte & 127) << shift
        shift += 7
    return number, at + 1
