"""A large file goes piece by piece, from its end, before it is removed.

INVARIANT  while a node runs, no more than `PIECE_BYTES` of a file go at once where the disk may be cut so finely, and there is a
           pause behind each piece.
PREVENTS   acknowledgements that come 0.2 to 0.3 s late a minute after a topic was deleted: to unlink 1 GiB is one step of
           ext4's journal, for which all other writers wait, on every node of the cluster in the same moment.
PROVED BY  tests/replication/log/test_shrinking.py::test_a_large_file_goes_in_pieces_with_pauses

INVARIANT  a file is cut where two of the kernel's pages meet, however large it keeps them.
PREVENTS   a reader that is handed zeros: what `sendfile` has taken is on its way as the page itself, and who cuts a file inside
           of one makes zeros of the rest, in the reader's answer as well, which nobody here holds any more.
PROVED BY  tests/replication/log/test_shrinking_in_flight.py

A file that somebody still reads is left whole: it is removed at once, as its bytes stay until it is closed.
"""

from typing import Final

from fencepost.cluster.base.ports import Disk, Env

from .pool import FilePool
from .segment_files import sync_folder

PIECE_BYTES: Final = 8 << 20  # 3 ms
PAUSE_S: Final = 0.02  # 350 MB/s


async def shrink(env: Env, path: str, folder: str, pool: FilePool) -> None:
    """Until one piece is left. `folder` is where the log was that it belonged to. OSError."""
    disk = env.disk
    piece = max(PIECE_BYTES // disk.cut_bytes, 1) * disk.cut_bytes
    if not disk.exists(path) or disk.size(path) <= piece or pool.is_read(folder):
        return
    # What was renamed away must not come back after a crash, shorter than it was.
    await disk.run(sync_folder, disk, path.rpartition("/")[0])
    for size in range((disk.size(path) - 1) // piece * piece, 0, -piece):
        if not await disk.run(_cut, disk, path, size):
            return
        await env.clock.sleep(PAUSE_S)


def _cut(disk: Disk, path: str, size: int) -> bool:
    """False: it is gone, with its folder or at a stop."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return False
    try:
        file.truncate(size)
    finally:
        file.close()
    return True
