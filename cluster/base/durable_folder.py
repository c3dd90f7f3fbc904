"""A folder that an end of power leaves where it is.

INVARIANT  when `make_durable_folder` returns, the names of the folder and of all above it are on the disk.
PREVENTS   a node that comes back with nothing of what it had acknowledged, and takes itself for new: whoever made the
           folder (its own process, killed before it synced the name; an administrator; a mount) need not have synced it.
PROVED BY  tests/cluster/base/test_durable_folder.py::test_a_folder_that_a_killed_process_made_outlives_the_power
"""

import errno
from typing import Final

from .ports import Disk

# Of folders above that are not ours to open, or not to be written at all: their names don't change while we run.
NOT_OURS: Final = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL)


def make_durable_folder(disk: Disk, folder: str) -> None:
    """Blocks for a sync of each folder above it, whether or not it was there."""
    disk.make_folders(folder)
    above = folder.rstrip("/")
    while above not in ("", "."):
        above = above.rpartition("/")[0] or ("" if folder.startswith("/") else ".")
        try:
            disk.sync_folder(above or "/")
        except OSError as error:
            if error.errno not in NOT_OURS:
                raise
