"""Reads the batches of a coordinator's partition, fast: most of what a log says it takes back later.

INVARIANT  the machine ends up as if every record had been applied one by one, in order.
PREVENTS   a coordinator that forgot or invented something when it moved.
PROVED BY  tests/txn/test_loader.py::test_a_fast_replay_ends_where_a_plain_one_does

Records outside of transactions are kept by owner and key, as compaction would do, and left undecoded (`unread.py`).
In a transaction order matters across keys: an owner that is named by a transactional batch is read at once, and
from then on each of its records when it comes.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEADER_SIZE,
    LENGTH_PREFIX,
    TRANSACTIONAL_FLAG,
    BatchRefused,
)
from fencepost.cluster.wire.compression import SIZE_MAX, decompress
from fencepost.cluster.wire.records import read_control, read_records

from .ports import Codec, Machine
from .unread import Unread

READ_MAX: Final = 100  # owners in one turn of the loop, some 30 µs each
NO_PRODUCER: Final = -1

# base offset, length, attributes, last offset delta, producer id, record count: what a replay asks of a header
_HEADER: Final = Struct(">qi9xhi16xq6xi")
_LENGTH_MIN: Final = HEADER_SIZE - LENGTH_PREFIX
Row = tuple[int, bytes, bytes | None]


class Replay:
    """`take` every batch; `unread` then holds what is left to read, `finish` reads it all."""

    def __init__(self, machine: Machine, codec: Codec) -> None:
        self._machine = machine
        self._codec = codec
        self._awake: set[bytes] = set()  # owners that were named in a transaction
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
            self.records += count
            if attributes & CONTROL_FLAG:
                self._marker(buffer[position:behind], producer_id)
            else:
                body, at = buffer, position + HEADER_SIZE
                if attributes & COMPRESSION_MASK:
                    body = decompress(attributes & COMPRESSION_MASK, body[at:behind], SIZE_MAX)
                    at = 0
                rows = rows_of(body, at, count, base_offset)
                if attributes & TRANSACTIONAL_FLAG:
                    self._apply_at_once(rows, producer_id)
                else:
                    self._keep(rows)
            next_offset = base_offset + last_delta + 1
            position = behind
        return next_offset

    def finish(self) -> Iterator[None]:
        """Read what was kept, a turn's worth at a time."""
        unread = self.unread
        while unread.rows:
            for owner in unread.first(READ_MAX):
                unread.read(owner, self._machine)
            yield

    def _keep(self, rows: list[Row]) -> None:
        owner_of, by_owner, awake = self._codec.owner_of, self.unread.rows, self._awake
        for row in rows:
            offset, key, value = row
            owner = owner_of(key, value)
            if owner is None:
                self.unread.skipped += 1
            elif owner in awake:
                self._apply(row, NO_PRODUCER)
            else:
                known = by_owner.get(owner)
                if known is None:
                    by_owner[owner] = {key: (offset, value)}
                else:
                    known.pop(key, None)  # what is written last is applied last
                    known[key] = (offset, value)

    def _apply_at_once(self, rows: list[Row], producer_id: int) -> None:
        for row in rows:
            owner = self._codec.owner_of(row[1], row[2])
            if owner is not None and owner not in self._awake:
                self._awake.add(owner)
                self.unread.read(owner, self._machine)
            self._apply(row, producer_id)

    def _apply(self, row: Row, producer_id: int) -> None:
        offset, key, value = row
        record = self._codec.decode(key, value)
        if record is None:
            self.unread.skipped += 1
        else:
            self._machine.apply(record, offset, producer_id)

    def _marker(self, batch: bytes, producer_id: int) -> None:
        for record in read_records(batch):
            marker = read_control(record)
            if marker is not None:
                self._machine.end_transaction(producer_id, commit=marker.commit)


def _cut_off(position: int) -> BatchRefused:
    return BatchRefused(
        ErrorCode.corrupt_message, f"the batch at {position} is not as long as it claims"
    )


def rows_of(body: bytes, at: int, count: int, base_offset: int) -> list[Row]:
    """Offset, key and value of each record: what `read_records` gives, without what nobody asked for.

    The batch is from our own log and its CRC was checked when it came in, so lengths are not doubted here;
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
