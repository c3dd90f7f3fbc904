"""A few numbers of every partition of a node, durable: how far synced and cleaned, where it starts, high watermark, doubts.

INVARIANT  a recovery point in the file was true when it was written, and stays true: what lowers one (truncation,
           deletion) is durable here *before* the log is touched (`lower`, `forget`).
PREVENTS   recovery taking damage for a torn end, because it does not know how far the log was synced; and taking a
           truncated log for a damaged one, because it believes that it was synced further.
PROVED BY  tests/replication/log/test_checkpoint.py::test_a_crash_at_any_write_loses_nothing_that_was_flushed

One append-only file, rewritten when it has grown. After the magic come frames, big endian:

    length u32 | crc32 u32 of the rest | type u8 | body
    type B  the boot id of the machine's run in which all logs were last known to be whole, but those that are UNOPENED
    type N  names: (id u32, partition i32, length u16, topic) …
    type V  values: (id u32, kind u8, offset i64) …; the last one counts, -1 is none, -2 unknown (recovery points)
    type M  both: (length u32 of the names), names as in N, values as in V; so builds that know no M go by what a clean stop leaves

A bad frame at the end was being written at a crash. A bad frame with a good one behind it is damage: then nothing
in the file is relied on (`intact` is false), every log is checked from its start, slow but right. No frame is
appended while another waits to be synced, and names go with their first values in one, so that a power cut can't look like damage.
"""

import asyncio
import enum
import errno
import struct
import zlib
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.base.ports import Env, File

from .segment_files import UNREADABLE, read_if_there

FILE_NAME: Final = "partition-offsets"
MAGIC: Final = b"FPPO\x01"
FRAME: Final = struct.Struct(">II")
NAME: Final = struct.Struct(">IiH")
VALUE: Final = struct.Struct(">IBq")
REWRITE_AT: Final = 16 * 1024 * 1024  # 1.2 million values: a quarter of a second to load
LENGTH: Final = struct.Struct(">I")
TYPES: Final = b"BNVM"
NONE: Final = -1
UNKNOWN: Final = -2  # it had a recovery point, which was lost: not the same as none


class Kind(enum.IntEnum):
    RECOVERY_POINT = 0
    LOG_START = 1
    HIGH_WATERMARK = 2
    CLEANED = 3
    DOUBT = 4  # doubts.py
    UNOPENED = 5  # 1: not since the machine went down, so its end may be torn on whatever boot it is opened


class PartitionOffsets:
    """Reads and `put` are memory; `flush`, `lower` and `forget` reach the disk."""

    def __init__(self, env: Env, path: str) -> None:
        self.env = env
        self.path = path
        self.intact = True
        self.boot_id = ""
        self._ids: dict[TopicPartition, int] = {}
        self._next_id = 0
        self._values: dict[int, list[int]] = {}
        self._pending: dict[tuple[int, int], None] = {}
        self._unnamed: list[TopicPartition] = []
        self._file: File | None = None
        self._syncing = False
        self._on_its_way: frozenset[tuple[int, int]] = frozenset()  # written, not synced yet
        self._one_at_a_time = asyncio.Lock()

    # -- in memory -------------------------------------------------------------------------------------

    def get(self, kind: Kind, partition: TopicPartition) -> int | None:
        number = self._ids.get(partition)
        if number is None:
            return None
        value = self._values[number][kind]
        return None if value == NONE else value

    def recovery_point_of(self, partition: TopicPartition) -> int | None:
        """0 of a partition that never had one; None: it was lost, and the log has not been opened since."""
        known = self.get(Kind.RECOVERY_POINT, partition) or 0
        return None if known == UNKNOWN else known

    def put(self, kind: Kind, partition: TopicPartition, offset: int) -> None:
        """Remember; durable with the next `flush`."""
        number = self._ids.get(partition)
        if number is None:
            number = self._name(partition)
        values = self._values[number]
        if values[kind] != offset:
            values[kind] = offset
            self._pending[number, kind] = None

    def _name(self, partition: TopicPartition) -> int:
        number = self._next_id
        self._next_id += 1
        self._ids[partition] = number
        self._values[number] = [NONE] * len(Kind)
        self._unnamed.append(partition)
        return number

    def is_durable(self, kind: Kind, partition: TopicPartition, at_least: int = NONE) -> bool:
        """Whether what was put last is on the disk, and reaches that far; so is what was never put."""
        number = self._ids.get(partition)
        if number is None:
            return at_least <= 0
        if max(self._values[number][kind], 0) < at_least:
            return False
        return (number, kind) not in self._pending and (number, kind) not in self._on_its_way

    def partitions(self) -> list[TopicPartition]:
        return list(self._ids)

    @property
    def dirty(self) -> bool:
        return bool(self._pending)

    # -- to the disk -----------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Make all that was put so far durable, off the loop. OSError: it is not, and stays pending."""
        async with self._one_at_a_time:
            on_its_way = frozenset(self._pending)
            file = self._append_pending() if self._pending else None
            if file is None:
                return
            self._syncing, self._on_its_way = True, on_its_way
            try:
                await self.env.disk.sync((file,))
            except OSError:
                self._distrust(file)
                raise
            finally:
                self._syncing, self._on_its_way = False, frozenset()

    def lower(self, kind: Kind, offsets: Mapping[TopicPartition, int]) -> None:
        """Take back what was claimed, durably, before the log is changed. Blocks for one sync."""
        for partition, offset in offsets.items():
            if (self.get(kind, partition) or 0) > offset:
                self.put(kind, partition, offset)
        # Whatever is lower here already may be so in memory alone: the disk was full the first time.
        if not all(self.is_durable(kind, partition) for partition in offsets):
            self.flush_now()

    def forget(self, partitions: Iterable[TopicPartition], *, but: Collection[Kind] = ()) -> None:
        """Their logs are about to be removed. Blocks for one sync."""
        for partition in partitions:
            if partition in self._ids:
                for kind in Kind:
                    if kind not in but:
                        self.put(kind, partition, NONE)
        self.flush_now()

    def flush_now(self) -> None:
        if not (self._pending or self._on_its_way):
            return
        file = self._file
        try:
            if self._syncing and file is not None:
                file.sync()  # the frame that another flush waits for comes first
            file = self._append_pending() if self._pending else None
            if file is not None:
                file.sync()
        except OSError:
            if file is not None:
                self._distrust(file)
            raise

    def confirm_boot(self) -> None:
        """All logs are open and whole: from now on a crash on this boot leaves what was written. Blocks."""
        if self.boot_id != self.env.boot_id:
            before, self.boot_id = self.boot_id, self.env.boot_id
            try:
                self.rewrite()
            except OSError:
                self.boot_id = before
                raise

    def rewrite(self) -> None:
        """A new file of just the current values. Blocks for as long as writing it takes."""
        live = {
            partition: number
            for partition, number in self._ids.items()
            if any(value != NONE for value in self._values[number])
        }
        names = b"".join(_name_entry(number, partition) for partition, number in live.items())
        values = b"".join(
            VALUE.pack(number, kind, value)
            for number in live.values()
            for kind, value in enumerate(self._values[number])
            if value != NONE
        )
        data = MAGIC + _frame(b"B", self.boot_id.encode()) + _frame(b"N", names)
        self.close()
        self.env.disk.replace(self.path, data + _frame(b"V", values))
        self._pending.clear()
        self._unnamed.clear()
        self._ids = live
        self._values = {number: self._values[number] for number in live.values()}
        self.intact = True

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _append_pending(self) -> File | None:
        """Write what waits; the file that must be synced, or None when all is durable already."""
        file = self._file
        if file is None or file.size() > REWRITE_AT:
            self.rewrite()
            self._file = self.env.disk.open(self.path)
            return None
        values = b"".join(VALUE.pack(*key, self._values[key[0]][key[1]]) for key in self._pending)
        frame = _frame(b"V", values)
        if self._unnamed:
            names = b"".join(_name_entry(self._ids[each], each) for each in self._unnamed)
            frame = _frame(b"M", LENGTH.pack(len(names)) + names + values)
        try:
            file.append([frame])
        except OSError as error:
            if error.errno == errno.EBADF:  # it had half a frame that could not be cut off
                self.close()
            raise
        self._pending.clear()
        self._unnamed.clear()
        return file

    def _distrust(self, file: File) -> None:
        """Its sync failed: nothing tells what of it is on the disk. The next write makes a new one."""
        if self._file is file:
            self.close()
        for number, values in self._values.items():
            for kind in range(len(values)):  # those too that are none now: the disk may have them
                self._pending[number, kind] = None

    # -- from the disk ---------------------------------------------------------------------------------

    def load(self) -> None:
        """Once, at the start. A missing file is `intact` only to a node that has no logs: the caller knows."""
        data = read_if_there(self.env.disk, self.path)
        if data == UNREADABLE:  # perhaps not the next time, and what it knows nobody else does
            data = read_if_there(self.env.disk, self.path)
        if data is None:
            return
        position = len(MAGIC)
        self.intact = data.startswith(MAGIC)
        while self.intact and position < len(data):
            body = _frame_at(data, position)
            if body is None:
                self.intact = not _good_frame_behind(data, position)
                break
            self._take(body)
            position += FRAME.size + len(body)
        self._pending.clear()
        self._unnamed.clear()
        if not self.intact:
            # What is not read may say that these were of another topic of that name.
            for values in self._values.values():
                for kind in (Kind.LOG_START, Kind.HIGH_WATERMARK, Kind.CLEANED):
                    values[kind] = NONE
                if values[Kind.RECOVERY_POINT] != NONE:  # of one without a folder, too
                    values[Kind.RECOVERY_POINT] = UNKNOWN
            self.env.log.error("partition_offsets_damaged", path=self.path, position=position)

    def _take(self, body: memoryview) -> None:
        kind, rest = bytes(body[:1]), body[1:]
        if kind == b"B":
            self.boot_id = bytes(rest).decode()
        elif kind == b"N":
            self._take_names(rest)
        elif kind == b"V":
            self._take_values(rest)
        elif kind == b"M":
            start = LENGTH.size + LENGTH.unpack_from(rest)[0]
            self._take_names(rest[LENGTH.size : start])
            self._take_values(rest[start:])

    def _take_names(self, names: memoryview) -> None:
        position = 0
        while position < len(names):
            number, partition, length = NAME.unpack_from(names, position)
            position += NAME.size
            topic = bytes(names[position : position + length]).decode()
            position += length
            self._ids[TopicPartition(topic, partition)] = number
            self._values[number] = [NONE] * len(Kind)
            self._next_id = max(self._next_id, number + 1)

    def _take_values(self, values: memoryview) -> None:
        for number, which, offset in VALUE.iter_unpack(values):
            self._values[number][which] = offset


def _name_entry(number: int, partition: TopicPartition) -> bytes:
    topic = partition.topic.encode()
    return NAME.pack(number, partition.partition, len(topic)) + topic


def _frame(kind: bytes, body: bytes) -> bytes:
    body = kind + body
    return FRAME.pack(len(body), zlib.crc32(body)) + body


def _frame_at(data: bytes, position: int) -> memoryview | None:
    if position + FRAME.size > len(data):
        return None
    length, checksum = FRAME.unpack_from(data, position)
    start = position + FRAME.size
    if not 0 < length <= len(data) - start or data[start] not in TYPES:
        return None
    body = memoryview(data)[start : start + length]
    return body if zlib.crc32(body) == checksum else None


def _good_frame_behind(data: bytes, position: int) -> bool:
    """Whether any whole frame lies behind a bad one, whose length may be wrong too."""
    return any(_frame_at(data, at) is not None for at in range(position + 1, len(data)))
