"""Group commit: what was appended to any number of logs becomes durable with one wait.

INVARIANT  `recovery_point` moves only when the bytes below it, and the names of the files that hold them, are
           durable; after a sync that failed it never moves again until the log is opened anew.
PREVENTS   an acknowledged batch that a power cut takes back; believing a second fsync after a failed one, which
           succeeds without having written anything (fsyncgate).
PROVED BY  tests/replication/log/test_durability.py::test_no_append_is_believed_after_a_failed_sync
           tests/replication/log/test_durability.py::test_a_sync_that_fails_fails_every_log_that_waited_for_it

Where no file can be opened (`NO_DESCRIPTOR_ERRNOS`) nothing was synced, and nothing has failed: it is to be done again.
"""

import asyncio
import errno
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from fencepost.cluster.base.errors import NO_DESCRIPTOR_ERRNOS, LogDamaged
from fencepost.cluster.base.ports import Disk, Env, File

from .segment_files import sync_if_there

if TYPE_CHECKING:
    from .log import Log

# New files and folders of a group are synced side by side: the file system's journal takes them together. A thousand
# new partitions take 0.2 s with 8 threads, 0.55 s with one (ext4, `fsync` of two names and `fdatasync` of one each).
SHARES_MAX: Final = 8
NAMES_A_SHARE: Final = 8


class SyncTicket:
    """What one log needs synced now, and how far that takes it."""

    __slots__ = (
        "cuts", "end_offset", "files", "folder_version", "folders", "log", "paths", "sizes",
    )  # fmt: skip

    def __init__(self, log: "Log") -> None:
        self.log = log
        if log.folder_synced == 0 < log.folder_version:  # not since a clean stop
            _take_inherited(log)
        self.cuts = log.cuts
        self.end_offset = log.log_end_offset
        self.sizes = [(segment, segment.size, segment.syncs_wanted) for segment in log.dirty]
        self.paths = log.extra_paths[:]
        self.files: list[File] = [segment.file() for segment in log.dirty]
        self.folder_version = log.folder_version
        self.folders: list[str] = []
        if log.folder_synced < log.folder_version:
            self.folders.append(log.folder)
            if log.folder_synced == 0:  # the folder itself may be new
                self.folders.append(log.folder.rpartition("/")[0])

    def done(self) -> None:
        """All of it is durable."""
        log = self.log
        if self.paths:
            log.extra_paths = [path for path in log.extra_paths if path not in self.paths]
        log.folder_synced = max(log.folder_synced, self.folder_version)
        if self.cuts != log.cuts:
            return  # truncated meanwhile: the offsets below the old end may not be the same batches
        log.cut_unsynced = False
        for segment, size, wanted in self.sizes:
            # Another sync, begun later, may have come further.
            segment.synced_size = max(segment.synced_size, size)
            segment.dirty = segment.size > segment.synced_size or segment.syncs_wanted > wanted
        log.dirty = [segment for segment in log.dirty if segment.dirty]
        if self.end_offset > log.recovery_point:
            log.recovery_point = self.end_offset
            log.unsettled()


def _take_inherited(log: "Log") -> None:
    """What the process before this one cut off may be in the page cache only, of the last file or of the one that it had just
    sealed: what is written now stands behind it, and a clean stop will tell its size."""
    for segment in log.segments[-2:]:
        if not segment.fresh:
            log.want_sync(segment)


def needs_sync(log: "Log") -> bool:
    return log.failed is None and bool(
        log.dirty or log.extra_paths or log.folder_synced < log.folder_version
    )


async def sync_logs(env: Env, logs: Iterable["Log"]) -> None:
    """Make everything appended so far durable. OSError: every log that was waiting for it has failed, or is to be synced again.

    Which file's sync failed does not matter: the disk that holds them all can't be trusted with any.
    """
    tickets, unopened = _take(logs)
    files = [file for ticket in tickets for file in ticket.files]
    paths = [path for ticket in tickets for path in ticket.paths]
    folders = sorted({folder for ticket in tickets for folder in ticket.folders})
    try:
        await _sync_all_names(env.disk, paths, folders)
        if files:
            await env.disk.sync(files)
    except OSError as error:
        if error.errno not in NO_DESCRIPTOR_ERRNOS:
            for ticket in tickets:
                lose(ticket.log, error)
        else:
            env.log.warn("sync_put_off", logs=len(tickets), cause=str(error))
        raise
    for ticket in tickets:
        ticket.done()
    if unopened is not None:
        raise unopened


def sync_now(log: "Log") -> None:
    """Blocks, where nothing may come before it: what was cut off must not be back behind what is written now."""
    try:
        ticket = _ticket_of(log)
        _sync_names(log.env.disk, [(path, False) for path in ticket.paths])
        _sync_names(log.env.disk, [(folder, True) for folder in ticket.folders])
        for file in ticket.files:
            file.sync()
    except OSError as error:
        if error.errno not in NO_DESCRIPTOR_ERRNOS:
            lose(log, error)
        raise
    ticket.done()


def lose(log: "Log", error: OSError) -> None:
    """No later sync proves anything of it: neither of its files, nor of their names."""
    log.names_lost = True
    log.fail(error)


def _ticket_of(log: "Log") -> SyncTicket:
    """OSError too where one of its files, of which nobody has asked before, is not what was written."""
    try:
        return SyncTicket(log)
    except LogDamaged as damage:
        raise OSError(errno.EIO, str(damage)) from damage


def _take(logs: Iterable["Log"]) -> tuple[list[SyncTicket], OSError | None]:
    """And why some of them can't be synced now; what can't be opened for another reason than too many open files has failed."""
    tickets: list[SyncTicket] = []
    unopened: OSError | None = None
    for log in logs:
        if not needs_sync(log):
            continue
        try:
            tickets.append(_ticket_of(log))
        except OSError as error:
            unopened = error
            if error.errno not in NO_DESCRIPTOR_ERRNOS:
                log.fail(error)
            else:
                log.env.log.warn("sync_put_off", logs=1, cause=str(error))
    return tickets, unopened


async def _sync_all_names(disk: Disk, paths: list[str], folders: list[str]) -> None:
    """Of several failures one of a sync counts more than that nothing could be opened."""
    names = [(path, False) for path in paths] + [(folder, True) for folder in folders]
    if not names:
        return
    shares = min(SHARES_MAX, 1 + len(names) // NAMES_A_SHARE)
    found = await asyncio.gather(
        *(disk.run(_sync_names, disk, names[at::shares]) for at in range(shares)),
        return_exceptions=True,
    )
    failures = [each for each in found if each is not None]
    if failures:
        raise min(failures, key=_is_of_descriptors)


def _is_of_descriptors(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in NO_DESCRIPTOR_ERRNOS


def _sync_names(disk: Disk, names: list[tuple[str, bool]]) -> None:
    """Files and folders (True); either may be gone, when its topic was deleted meanwhile."""
    for name, is_folder in names:
        if not is_folder:
            sync_if_there(disk, name)
            continue
        try:
            disk.sync_folder(name)
        except FileNotFoundError:
            continue
