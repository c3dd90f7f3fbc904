"""Builds a machine from the batches of its partition, fast: most of what a log says it takes back later.

INVARIANT  the machine ends up as if every record had been applied one by one, in order.
PREVENTS   a coordinator that forgot or invented something when it moved.
PROVED BY  tests/txn/test_loader.py::test_a_fast_replay_ends_where_a_plain_one_does

Records outside of transactions are gathered by key, as compaction would do, and only the last of each is
decoded. A transactional batch or a marker means that order matters across keys: then what was gathered is
applied first.
"""

from collections.abc import Iterator
from typing import Final

from fencepost.cluster.base.ports import Buffer
from fencepost.cluster.wire.batch import HEADER_SIZE, BatchHeader, headers_of
from fencepost.cluster.wire.compression import SIZE_MAX, decompress
from fencepost.cluster.wire.records import read_control, read_records

from .ports import Decode, Machine

APPLY_MAX: Final = 1_000  # in one turn of the loop


class Replay:
    """`take` every batch, then exhaust `finish`."""

    def __init__(self, machine: Machine, decode: Decode) -> None:
        self._machine = machine
        self._decode = decode
        self._latest: dict[bytes, tuple[int, bytes | None]] = {}
        self.records = 0
        self.skipped = 0  # of kinds that this version does not know

    def take(self, buffer: Buffer) -> int | None:
        """All batches in the buffer; the offset behind the last one, None if there is none."""
        next_offset = None
        for position, header in headers_of(buffer):
            next_offset = header.next_offset
            self.records += header.record_count
            if header.is_control:
                self._flush()
                self._marker(buffer, position, header)
            elif header.is_transactional:
                self._flush()
                for offset, key, value in records_in(buffer, position, header):
                    self._apply(offset, key, value, header.producer_id)
            else:
                latest = self._latest
                for offset, key, value in records_in(buffer, position, header):
                    latest.pop(key, None)  # what is written last is applied last
                    latest[key] = (offset, value)
        return next_offset

    def finish(self) -> Iterator[None]:
        """Apply what was gathered, a turn's worth at a time."""
        for done, (key, (offset, value)) in enumerate(self._latest.items(), 1):
            self._apply(offset, key, value)
            if done % APPLY_MAX == 0:
                yield
        self._latest.clear()

    def _flush(self) -> None:
        for _ in self.finish():
            pass

    def _apply(self, offset: int, key: bytes, value: bytes | None, producer_id: int = -1) -> None:
        record = self._decode(key, value)
        if record is None:
            self.skipped += 1
        else:
            self._machine.apply(record, offset, producer_id)

    def _marker(self, buffer: Buffer, position: int, header: BatchHeader) -> None:
        for record in read_records(buffer, position):
            marker = read_control(record)
            if marker is not None:
                self._machine.end_transaction(header.producer_id, commit=marker.commit)


def records_in(
    buffer: Buffer, position: int, header: BatchHeader
) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Offset, key and value of each record: what `read_records` gives, without what nobody asked for.

    The batch is from our own log and its CRC was checked when it came in, so lengths are not doubted here;
    one that runs over the end gives short bytes, which the decoder refuses.
    """
    with memoryview(buffer) as whole:
        packed = whole[position + HEADER_SIZE : position + header.size]
        body = bytes(decompress(header.compression, packed, SIZE_MAX))
    base_offset = header.base_offset
    at = 0
    for _ in range(header.record_count):
        length, at = _varint(body, at)
        end = at + length
        _, at = _varint(body, at + 1)  # behind the attributes: the timestamp
        delta, at = _varint(body, at)
        size, at = _varint(body, at)
        key = body[at : at + size]
        size, at = _varint(body, at + size)
        yield base_offset + delta, key, None if size < 0 else body[at : at + size]
        at = end


def _varint(body: bytes, at: int) -> tuple[int, int]:
    byte = body[at]
    at += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), at
    value = byte & 127
    shift = 7
    while byte > 127:
        byte = body[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
    return (value >> 1) ^ -(value & 1), at
