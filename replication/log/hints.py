"""What a clean stop leaves for the next start: enough to open every log without touching its folder.

INVARIANT  hints are believed only while the marker is there, and it is removed, durably, before the first write.
PREVENTS   a start that trusts sizes and offsets of files that were written to since.
PROVED BY  tests/replication/log/test_store.py::test_hints_are_not_believed_twice

One file: magic, crc32 of the rest, then msgpack. A file that does not check is no marker.
"""

import errno
import struct
import zlib
from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

import msgpack
from fencepost.cluster.base.errors import DISK_FULL_ERRNOS
from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.base.ports import Disk

from .segment_files import read_if_there, remove_if_there

FILE_NAME: Final = "clean-shutdown"
MAGIC: Final = b"FPCS\x01"
CHECKSUM: Final = struct.Struct(">I")


class SegmentHint(NamedTuple):
    base_offset: int
    size: int
    max_timestamp: int
    offset_of_max: int
    first_timestamp: int
    has_aborted: bool


class LogHint(NamedTuple):
    """`unstable` is the first unstable offset or -1. Producer state is in the hint itself when it is small, else in
    the snapshot file at `producers_at`; -1 and nothing when nobody was known.
    """

    topic_id: bytes  # of the topic; empty when it was not told
    log_start_offset: int
    log_end_offset: int
    segments: list[SegmentHint]
    epochs: list[tuple[int, int]]
    unstable: int
    snapshots: list[int]  # offsets of the snapshot files that are there
    producers_at: int
    producers: bytes

    def is_of(self, topic_id: UUID | None) -> bool:
        return topic_id is None or self.topic_id == topic_id.bytes


def save(disk: Disk, folder: str, hints: Mapping[TopicPartition, LogHint]) -> None:
    """The last act of a clean stop: all that the hints speak of is durable already."""
    body = msgpack.packb([[*partition, hint] for partition, hint in hints.items()])
    disk.replace(f"{folder}/{FILE_NAME}", MAGIC + CHECKSUM.pack(zlib.crc32(body)) + body)


def load(disk: Disk, folder: str) -> dict[TopicPartition, LogHint] | None:
    """None when the last stop was not a clean one."""
    data = read_if_there(disk, f"{folder}/{FILE_NAME}")
    if data is None:
        return None
    start = len(MAGIC) + CHECKSUM.size
    if len(data) < start or not data.startswith(MAGIC):
        return None
    (checksum,) = CHECKSUM.unpack_from(data, len(MAGIC))
    body = memoryview(data)[start:]
    if zlib.crc32(body) != checksum:
        return None
    return {
        TopicPartition(topic, partition): _hint(*fields)
        for topic, partition, fields in msgpack.unpackb(body)
    }


def _hint(
    topic_id: bytes,
    log_start_offset: int,
    log_end_offset: int,
    segments: list[tuple[int, int, int, int, int, bool]],
    epochs: list[list[int]],
    unstable: int,
    snapshots: list[int],
    producers_at: int,
    producers: bytes,
) -> LogHint:
    return LogHint(
        topic_id,
        log_start_offset,
        log_end_offset,
        [SegmentHint(*segment) for segment in segments],
        [(epoch, start) for epoch, start in epochs],
        unstable,
        snapshots,
        producers_at,
        producers,
    )


def remove(disk: Disk, folder: str) -> None:
    """Durably; blocks for one sync of the folder, also where it is gone: its removal may not be on the disk yet.

    A file system that copies on write may have no room even for that (ZFS, btrfs), and yet to empty the file, which is then no marker.
    Where neither can be done the node must not go on, as it may on a disk that is only too full to be written.
    """
    path = f"{folder}/{FILE_NAME}"
    try:
        try:
            remove_if_there(disk, path)
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                raise
            _empty(disk, path)
        disk.sync_folder(folder)
    except OSError as error:
        if error.errno not in DISK_FULL_ERRNOS:
            raise
        why = "the marker of the last clean stop can't be removed, so nothing may be written"
        raise OSError(errno.EIO, why, path) from error


def _empty(disk: Disk, path: str) -> None:
    file = disk.open(path)
    try:
        file.truncate(0)
        file.sync()
    finally:
        file.close()
