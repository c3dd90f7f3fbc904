"""Records of one form in numbered files: written in any order, read one file after the other, so that memory holds one at a time.

INVARIANT  what was added to a bucket is read from it, all of it, in the order in which it was added.
PREVENTS   a checker that runs out of memory and says nothing of a history in which something was lost.
PROVED BY  tests/chaos/test_queue_stream.py::test_buckets_give_back_what_was_added_in_its_order
"""

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Any, Final

BUFFER_BYTES: Final = 32 << 10  # of each bucket, before it is written
PIECE_RECORDS: Final = 16_384  # that are read at a time


class Buckets:
    def __init__(self, folder: Path, name: str, form: str) -> None:
        self._folder = folder
        self._name = name
        self._struct = Struct(form)
        self._pack = self._struct.pack
        self._buffers: dict[int, bytearray] = {}
        self._written: set[int] = set()

    def add(self, bucket: int, *fields: Any) -> None:
        buffer = self._buffers.get(bucket)
        if buffer is None:
            buffer = self._buffers[bucket] = bytearray()
        buffer += self._pack(*fields)
        if len(buffer) >= BUFFER_BYTES:
            self._flush(bucket, buffer)

    def _file(self, bucket: int) -> Path:
        return self._folder / f"{self._name}.{bucket}"

    def _flush(self, bucket: int, buffer: bytearray) -> None:
        with self._file(bucket).open("ab") as sink:
            sink.write(buffer)
        buffer.clear()
        self._written.add(bucket)

    def numbers(self) -> list[int]:
        return sorted(self._written | self._buffers.keys())

    def read(self, bucket: int) -> Iterator[tuple[Any, ...]]:
        """All of it, as often as one likes."""
        if bucket in self._written:
            with self._file(bucket).open("rb") as source:
                while piece := source.read(self._struct.size * PIECE_RECORDS):
                    yield from self._struct.iter_unpack(piece)
        yield from self._struct.iter_unpack(self._buffers.get(bucket, b""))

    def drop(self, bucket: int) -> None:
        self._buffers.pop(bucket, None)
        if bucket in self._written:
            self._written.discard(bucket)
            self._file(bucket).unlink()

    def take(self, bucket: int) -> Iterator[tuple[Any, ...]]:
        """All of it, and it is empty afterwards."""
        yield from self.read(bucket)
        self.drop(bucket)
