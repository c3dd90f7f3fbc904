"""A snapshot of producers as a file: twice, the second in blocks of its own.

INVARIANT  what damages one block of the file, or flips one bit of it, leaves a whole copy.
PREVENTS   a replica whose snapshot has rotted, that knows nobody whose records were deleted, and writes a retry of theirs again
           when it leads: where segments are gone, snapshots alone tell who wrote them.
PROVED BY  tests/replication/log/test_snapshot_file.py::test_whichever_bit_flips_who_wrote_what_was_deleted_is_known

A file of an older build is one copy, and is read as that.
"""

from collections.abc import Iterator
from typing import Final

BLOCK: Final = 4096  # of nearly all disks and file systems


def twice(snapshot: bytes) -> bytes:
    return b"".join((snapshot, bytes(-len(snapshot) % BLOCK), snapshot))


def copies(data: bytes) -> Iterator[bytes]:
    """What may be whole: its checksum says which is."""
    second = -(-len(data) // (2 * BLOCK)) * BLOCK
    size = len(data) - second
    if size > 0:
        yield data[:size]
        yield data[second:]
    yield data
