"""The files that are open and the indexes that are loaded, of all logs of a node together.

INVARIANT  no file is closed while it holds bytes that were not synced, or while anyone else still holds it
           (a reply on its way to a socket, a read or sync on another thread).
PREVENTS   ten thousand partitions needing thirty thousand descriptors; a failed sync that nobody hears of, because
           the descriptor that would have told was closed; a fetch cut off because its segment was deleted.
PROVED BY  tests/replication/log/test_pool.py::test_a_file_that_someone_holds_is_not_closed

Who holds a file is read from its reference count: whatever keeps the object alive keeps it open.
"""

import sys
from collections import OrderedDict
from typing import Final, Protocol

from fencepost.cluster.base.errors import NO_DESCRIPTOR_ERRNOS
from fencepost.cluster.base.ports import Disk, File

OPEN_MAX: Final = 1000
INDEX_BYTES_MAX: Final = 64 * 1024 * 1024
# Counted while only the segment's attribute and the call itself refer to the file.
REFERENCES_OF_AN_IDLE_FILE: Final = 2
REFERENCES_OF_A_RETIRED_FILE: Final = 3  # the list, the loop's variable, the call
LOOK_AT_MAX: Final = 64  # how many candidates one opening examines before it gives up


class Pooled(Protocol):
    """A segment, as the pool sees it."""

    open_file: File | None
    used: bool  # since the pool last looked
    dirty: bool  # has bytes that were not synced

    @property
    def path(self) -> str: ...
    def index_bytes(self) -> int: ...
    def forget_index(self) -> None: ...


class FilePool:
    """Second-chance queues: touching a file costs one attribute, the rest is paid when one is opened."""

    def __init__(
        self, disk: Disk, *, open_max: int = OPEN_MAX, index_bytes_max: int = INDEX_BYTES_MAX
    ) -> None:
        self.disk = disk
        self.open_max = open_max
        self.index_bytes_max = index_bytes_max
        self._open: OrderedDict[Pooled, None] = OrderedDict()
        self._retired: list[File] = []
        self._indexed: OrderedDict[Pooled, int] = OrderedDict()
        self._index_bytes = 0

    def __len__(self) -> int:
        return len(self._open) + len(self._retired)

    def open(self, segment: Pooled, *, create: bool = False) -> File:
        file = segment.open_file
        if file is None:
            self._close_retired()
            if len(self._open) >= self.open_max:
                self._make_room()
            try:
                file = self.disk.open(segment.path, create=create)
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR_ERRNOS:
                    raise
                self.open_max = max(1, len(self._open) // 2)  # others need descriptors too
                self._make_room()
                file = self.disk.open(segment.path, create=create)
            segment.open_file = file
            self._open[segment] = None
        segment.used = True
        return file

    def _make_room(self) -> None:
        for _ in range(min(LOOK_AT_MAX, 2 * len(self._open))):
            if len(self._open) < self.open_max:
                return
            segment = next(iter(self._open))
            if segment.used or segment.dirty or not _is_idle(segment):
                segment.used = False
                self._open.move_to_end(segment)
            else:
                self.close(segment)
        # All are in use: one more than wished for beats a write refused.

    def close(self, segment: Pooled) -> None:
        """Close its file as soon as nobody else holds it; the segment may open it again."""
        file = segment.open_file
        if file is None:
            return
        self._open.pop(segment, None)
        if _is_idle_but(segment, extra=1):
            file.close()
        else:
            self._retired.append(file)
        segment.open_file = None

    def _close_retired(self) -> None:
        if not self._retired:
            return
        held = []
        for file in self._retired:
            if sys.getrefcount(file) <= REFERENCES_OF_A_RETIRED_FILE:
                file.close()
            else:
                held.append(file)
        self._retired = held

    def is_read(self, folder: str) -> bool:
        """Whether somebody still reads a file of this folder that is out of its log."""
        self._close_retired()
        return any(file.path.startswith(f"{folder}/") for file in self._retired)

    def index_loaded(self, segment: Pooled) -> None:
        """A segment that is not written any more has its index in memory."""
        self._index_bytes += segment.index_bytes() - self._indexed.pop(segment, 0)
        self._indexed[segment] = segment.index_bytes()
        while self._index_bytes > self.index_bytes_max and len(self._indexed) > 1:
            oldest, size = self._indexed.popitem(last=False)
            if oldest.used:
                oldest.used = False
                self._indexed[oldest] = size
                continue
            self._index_bytes -= size
            oldest.forget_index()

    def index_gone(self, segment: Pooled) -> None:
        self._index_bytes -= self._indexed.pop(segment, 0)

    def close_all(self) -> None:
        """At the end of the node: nobody is served any more."""
        for segment in list(self._open):
            if segment.open_file is not None:
                segment.open_file.close()
                segment.open_file = None
        self._open.clear()
        for file in self._retired:
            file.close()
        self._retired.clear()


def _is_idle(segment: Pooled) -> bool:
    return sys.getrefcount(segment.open_file) <= REFERENCES_OF_AN_IDLE_FILE


def _is_idle_but(segment: Pooled, *, extra: int) -> bool:
    return sys.getrefcount(segment.open_file) <= REFERENCES_OF_AN_IDLE_FILE + extra
