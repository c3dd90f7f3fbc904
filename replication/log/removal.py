"""Whole partitions that go: what the checkpoint says of them is forgotten, their folder is renamed, and removed later.

INVARIANT  nothing is written under a partition's name while the checkpoint on the disk may speak of an older log there.
PREVENTS   a topic that was made again, or a replica moved back, being refused for offsets that it never had; and a
           full disk that stays full because nothing of it may go before something is written.
PROVED BY  tests/replication/log/test_logs_on_a_full_disk.py::test_a_crash_at_any_step_of_a_deletion_leaves_all_or_nothing

Otherwise the numbers go first, durably: a folder without them is read from its start. A disk that is too full for that
must get room first, so there the steps are

1. The folder is renamed, to a name that says that the numbers are still there.   crash: the next two at the start
2. Its files go; it stays itself.
3. A checkpoint is written without the numbers.           crash: the start forgets them again, there are none
4. The folder gets the name of all that is removed.       crash: it is removed
"""

import functools
from collections.abc import Callable, Sequence
from typing import Final

from fencepost.cluster.base.errors import DISK_FULL_ERRNOS
from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.base.ports import Disk, Env

from .checkpoint import Kind, PartitionOffsets
from .names import DELETED, LOG
from .pool import FilePool
from .segment_files import remove_if_there, rename_if_there
from .shrinking import shrink

DELETE_SUFFIX: Final = "-delete"  # a folder that is being removed
UNFORGOTTEN: Final = "-forget-delete"  # and the checkpoint may still have the partition's numbers
FOLDER_NAME_MAX: Final = 200  # of the partition's own name, before a suffix
NUMBER_DIGITS: Final = 16


class Removal:
    """Of all partitions of a node."""

    def __init__(self, env: Env, data_dir: str, offsets: PartitionOffsets, pool: FilePool) -> None:
        self._env = env
        self._data_dir = data_dir
        self._offsets = offsets
        self._pool = pool
        self._unforgotten: dict[TopicPartition, list[str]] = {}  # their folders, as they are now

    def start(self, names: Sequence[str]) -> None:
        """Finish what a crash, or a stop, has left. Blocks. Where others have taken the room, step 3 waits for some, as it does in a run."""
        disk = self._env.disk
        unforgotten: dict[str, TopicPartition] = {}
        for name in names:
            path = f"{self._data_dir}/{name}"
            partition = _partition_unforgotten(name)
            if partition is not None:
                unforgotten[path] = partition
                self._try(_empty, path)
            elif name.endswith(DELETE_SUFFIX):
                self._try(_remove_tree, path)
        if unforgotten and self.forget(list(unforgotten.values())) == UNFORGOTTEN:
            for path, partition in unforgotten.items():
                self._unforgotten.setdefault(partition, []).append(path)
        elif unforgotten:
            graves = [_forgotten(path) for path in unforgotten]
            for path, grave in zip(unforgotten, graves, strict=True):
                disk.rename(path, grave)
            disk.sync_folder(self._data_dir)  # or a later start forgets those of another log
            for grave in graves:
                self._try(_remove_tree, grave)

    def _try(self, work: Callable[[Disk, str], None], folder: str) -> None:
        """What can't be removed is in nobody's way."""
        try:
            work(self._env.disk, folder)
        except OSError as error:
            self._say_not_removed(folder, error)

    def _say_not_removed(self, folder: str, error: OSError) -> None:
        """The next start tries again."""
        self._env.log.warn("folder_not_removed", folder=folder, cause=str(error))

    def forget(self, partitions: Sequence[TopicPartition]) -> str:
        """Durably, if the disk has room. The suffix for their folders."""
        try:
            self._offsets.forget(partitions)
        except OSError as error:
            is_too_long = any(len(str(partition)) > FOLDER_NAME_MAX for partition in partitions)
            if error.errno not in DISK_FULL_ERRNOS or is_too_long:
                raise
            return UNFORGOTTEN  # in memory they are forgotten: every checkpoint tries to write it
        return DELETE_SUFFIX

    def bury(self, partition: TopicPartition, delay_s: float, suffix: str) -> None:
        """Rename the folder, if there is one; durable with the sync of the folder above."""
        disk = self._env.disk
        folder = f"{self._data_dir}/{partition}"
        if not disk.exists(folder):
            return
        number = f"{self._env.rng.getrandbits(4 * NUMBER_DIGITS):0{NUMBER_DIGITS}x}"
        kept = folder[: len(self._data_dir) + 1 + FOLDER_NAME_MAX]
        grave = f"{kept}.{number}{suffix}"
        disk.rename(folder, grave)
        if suffix == UNFORGOTTEN:
            self._unforgotten.setdefault(partition, []).append(grave)
        self._env.clock.call_later(delay_s, functools.partial(self._remove_soon, grave, folder))

    def flushed(self) -> None:
        """The checkpoint was written: step 4 for those that it forgot. Blocks for a sync, if there are any."""
        offsets = self._offsets
        forgotten = [
            partition
            for partition in self._unforgotten
            if all(offsets.is_durable(kind, partition) for kind in Kind)
        ]
        for partition in forgotten:
            self._rename(partition)
        if forgotten:
            self._env.disk.sync_folder(self._data_dir)

    def before_writing(self, partition: TopicPartition) -> None:
        """A log gets a folder of that name. Blocks for syncs, but only where the disk was full. OSError: it still is."""
        if partition in self._unforgotten:
            self._offsets.flush_now()
            self._rename(partition)
            self._env.disk.sync_folder(self._data_dir)

    def _rename(self, partition: TopicPartition) -> None:
        graves = self._unforgotten[partition]
        while graves:
            grave = _forgotten(graves[-1])
            is_there = rename_if_there(self._env.disk, graves[-1], grave)  # or a person made room
            graves.pop()
            if is_there:
                self._remove_soon(grave, f"{self._data_dir}/{partition}")
        del self._unforgotten[partition]

    def _remove_soon(self, folder: str, was: str) -> None:
        self._env.tasks.spawn(self._remove(folder, was), name=f"remove {folder}")

    async def _remove(self, folder: str, was: str) -> None:
        """`was` is what it was called while it was a partition's."""
        disk = self._env.disk
        try:
            if not disk.exists(folder):
                return  # it got its second name before its time came
            for name in disk.list(folder):
                if name.removesuffix(DELETED).endswith(LOG):
                    await shrink(self._env, f"{folder}/{name}", was, self._pool)
            if not disk.exists(folder):
                return  # it got its second name meanwhile
            await disk.run(_empty if folder.endswith(UNFORGOTTEN) else _remove_tree, disk, folder)
        except OSError as error:
            self._say_not_removed(folder, error)


def _remove_tree(disk: Disk, folder: str) -> None:
    disk.remove_tree(folder)


def _empty(disk: Disk, folder: str) -> None:
    for name in disk.list(folder):
        remove_if_there(disk, f"{folder}/{name}")


def _forgotten(grave: str) -> str:
    """The name of one whose partition the checkpoint has forgotten."""
    return f"{grave.removesuffix(UNFORGOTTEN)}{DELETE_SUFFIX}"


def partition_of(name: str) -> TopicPartition | None:
    """Whose folder it is, by its name."""
    topic, dash, number = name.rpartition("-")
    if not (dash and topic and number.isascii() and number.isdigit()):
        return None
    return TopicPartition(topic, int(number))


def _partition_unforgotten(name: str) -> TopicPartition | None:
    if not name.endswith(UNFORGOTTEN):
        return None
    return partition_of(name[: -len(UNFORGOTTEN) - NUMBER_DIGITS - 1])
