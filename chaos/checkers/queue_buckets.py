"""Records of one form in numbered files: written in any order, read one file after the other, so that memory holds one at a time.

INVARIANT  what was added to a bucket is read from it, all of it, in the order in which it was added.
PREVENTS   a checker that runs out of memory and says nothing of a history in which something was lost.
PROVED BY  tests/chaos/test_queue_stream.py::test_buckets_give_back_what_was_added_in_its_order
"""

import json
from array import array
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Any, Final

BUFFER_BYTES: Final = 8 << 10  # of each bucket, before it is written
BUFFERS_MAX: Final = 4_096  # that are held; then the oldest is written, however little is in it
PIECE_RECORDS: Final = 16_384  # that are read at a time


class Buckets:
    """Buffers are as long as they will ever be from the beginning: thousands that grow by and by leave holes that nothing else fits in."""

    def __init__(self, folder: Path, name: str, form: str) -> None:
        self._folder = folder
        self._name = name
        self._struct = Struct(form)
        self._pack_into = self._struct.pack_into
        self._bytes = self._struct.size
        self._full = max(1, BUFFER_BYTES // self._bytes) * self._bytes
        self._buffers: dict[int, bytearray] = {}
        self._used: dict[int, int] = {}  # bytes of a buffer
        self._written: set[int] = set()

    def add(self, bucket: int, *fields: Any) -> None:
        at = self._used.get(bucket)
        if at is None:
            at = self._begin(bucket)
        self._pack_into(self._buffers[bucket], at, *fields)
        self._used[bucket] = at = at + self._bytes
        if at == self._full:
            self._write(bucket)
            self._used[bucket] = 0

    def _begin(self, bucket: int) -> int:
        if len(self._buffers) >= BUFFERS_MAX:
            oldest = next(iter(self._buffers))
            self._write(oldest)
            del self._used[oldest]
            self._buffers[bucket] = self._buffers.pop(oldest)
        else:
            self._buffers[bucket] = bytearray(self._full)
        return 0

    def _file(self, bucket: int) -> Path:
        return self._folder / f"{self._name}.{bucket}"

    def _write(self, bucket: int) -> None:
        with self._file(bucket).open("ab") as sink:
            sink.write(memoryview(self._buffers[bucket])[: self._used[bucket]])
        self._written.add(bucket)

    def numbers(self) -> list[int]:
        return sorted(self._written | self._buffers.keys())

    def read(self, bucket: int) -> Iterator[tuple[Any, ...]]:
        """All of it, as often as one likes."""
        if bucket in self._written:
            with self._file(bucket).open("rb") as source:
                while piece := source.read(self._bytes * PIECE_RECORDS):
                    yield from self._struct.iter_unpack(piece)
        rest = self._buffers.get(bucket, b"")[: self._used.get(bucket, 0)]  # a copy
        yield from self._struct.iter_unpack(rest)

    def drop(self, bucket: int) -> None:
        self._buffers.pop(bucket, None)
        self._used.pop(bucket, None)
        if bucket in self._written:
            self._written.discard(bucket)
            self._file(bucket).unlink()

    def take(self, bucket: int) -> Iterator[tuple[Any, ...]]:
        """All of it, and it is empty afterwards."""
        yield from self.read(bucket)
        self.drop(bucket)


class Words:
    """Names that are hardly ever read again, in a file: each is known by the byte at which it begins."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = (folder / name).open("w+b")
        self._end = 0
        self._was_read = False  # then the file is not at its end

    def add(self, word: str) -> int:
        if self._was_read:
            self._file.seek(self._end)
            self._was_read = False
        at, data = self._end, json.dumps(word).encode() + b"\n"
        self._file.write(data)
        self._end += len(data)
        return at

    def read(self, at: int) -> str:
        self._file.seek(at)
        self._was_read = True
        word: str = json.loads(self._file.readline())
        return word

    def close(self) -> None:
        self._file.close()


class Names:
    """Small numbers for names that come again and again, until they are forgotten; what a number meant is known for ever."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._numbers: dict[str, int] = {}
        self._at = array("Q")

    def number(self, name: str) -> int:
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = len(self._at)
            self._at.append(self._words.add(name))
        return found

    def name(self, number: int) -> str:
        return self._words.read(self._at[number])

    def forget(self, name: str) -> None:
        """It does not come again; if it does, it has another number."""
        self._numbers.pop(name, None)

    def __len__(self) -> int:
        return len(self._at)
