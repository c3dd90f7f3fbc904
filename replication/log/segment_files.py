"""What is done to a segment's files by name."""

import errno
from typing import Final

from fencepost.cluster.base.errors import DISK_FULL_ERRNOS, NO_DESCRIPTOR_ERRNOS
from fencepost.cluster.base.ports import Disk, File

from .names import SEGMENT_FILES, file_name

UNREADABLE: Final = b"\xff"  # no index, list or snapshot says that


class NamesLost(OSError):
    """The sync of a folder failed: no later one proves anything of the names in it, whoever has made them (`sync.lose`)."""


def sync_folder(disk: Disk, folder: str) -> None:
    """Of a log. Blocks. Where it could not be opened for want of a descriptor nothing has failed."""
    try:
        disk.sync_folder(folder)
    except OSError as error:
        if error.errno in NO_DESCRIPTOR_ERRNOS:
            raise
        raise NamesLost(*error.args) from error


def read_if_there(disk: Disk, path: str) -> bytes | None:
    """Of a file that can be made anew from the log. Where the disk can't read it, it is as good as damaged."""
    try:
        return disk.read_all(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return UNREADABLE


def extend(disk: Disk, path: str, at: int, data: bytes) -> bool:
    """Make the file hold `data` from `at` on; False when it is shorter than that. Closed afterwards."""
    file = disk.open(path, create=True)
    try:
        size = file.size()
        if size < at:
            return False
        if size > at:
            file.truncate(at)
        if data:
            file.append((data,))
        return True
    finally:
        file.close()


def remove_if_there(disk: Disk, path: str) -> None:
    try:
        disk.remove(path)
    except FileNotFoundError:
        return


def rename_if_there(disk: Disk, source: str, target: str) -> bool:
    try:
        disk.rename(source, target)
    except FileNotFoundError:
        return False
    return True


def rename_all(disk: Disk, folder: str, base_offset: int, old: str, new: str) -> None:
    """Change what stands behind the names of a segment's files, the log's last."""
    for suffix in SEGMENT_FILES:
        path = f"{folder}/{file_name(base_offset, suffix)}"
        rename_if_there(disk, path + old, path + new)


def remove_all(disk: Disk, folder: str, base_offset: int, extra: str) -> None:
    for suffix in SEGMENT_FILES:
        remove_if_there(disk, f"{folder}/{file_name(base_offset, suffix)}{extra}")


def sync_if_there(disk: Disk, path: str) -> None:
    """Make what was written to a file that nobody has open durable; blocks."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return
    try:
        file.sync()
    finally:
        file.close()


def cut_again(file: File) -> None:
    """So that the next sync makes its end durable, whoever has cut it, and though he may have seen a sync of that fail: the kernel has
    the cut for done, and on the disk there is more yet. A byte behind the end of a log that is not synced is torn off."""
    size = file.size()
    try:
        file.append((b"\0",))
    except OSError as error:
        if error.errno not in DISK_FULL_ERRNOS:
            raise
    else:
        file.truncate(size)


def write_again(disk: Disk, path: str) -> None:
    """Make it durable, whoever wrote it, and though he may have seen a sync of it fail: the kernel has such pages for clean, and another
    sync passes them over (fsyncgate). Blocks. The file is opened once: another one may have its name in between."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return
    try:
        file.write_at(0, file.read(0, file.size()))
        file.sync()
    finally:
        file.close()
