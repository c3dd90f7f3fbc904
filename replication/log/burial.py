"""Files of segments that are out of the log: renamed at once, removed when nobody can want them any more.

INVARIANT  while a node runs, a file is removed on a thread of the disk's, one segment after another.
PREVENTS   a loop that stands still for seconds when a round of retention took ten segments: to remove one of 1 GiB
           takes ext4 200 to 320 ms.
PROVED BY  tests/replication/log/test_burial.py::test_segments_are_removed_off_the_loop_one_after_another
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fencepost.cluster.base.errors import LogDamaged
from fencepost.cluster.base.ports import Env

from .names import DELETED, LOG, SEGMENT_FILES, file_name, split
from .segment import Segment
from .segment_files import NamesLost, remove_all, rename_all
from .shrinking import shrink
from .sync import lose

if TYPE_CHECKING:
    from .log import Log


class Burial:
    """A segment's files under their `.deleted` names, until nobody can want them."""

    __slots__ = ("log", "segment", "timer")

    def __init__(self, log: "Log", segment: Segment) -> None:
        """OSError when the files can't be renamed."""
        self.log = log
        self.segment = segment
        never_synced(log, segment)
        log.shared.pool.close(segment)
        rename_all(log.env.disk, segment.folder, segment.base_offset, segment.extra, DELETED)
        if (other := log.burials.get(segment.base_offset)) is not None:
            other.forget()  # the name is this one's grave now, and its time begins
        delay_s = log.config.file_delete_delay_ms / 1000
        self.timer = log.env.clock.call_later(delay_s, self._is_due)
        log.burials[segment.base_offset] = self

    def _is_due(self) -> None:
        self.log.shared.graves.add(self)

    def finish(self) -> None:
        """Blocks."""
        self.forget()
        try:
            self.unlink()
        except OSError as error:
            tell(self.log, self.segment, error)

    def unlink(self) -> None:
        """Blocks. May run on a thread."""
        segment = self.segment
        remove_all(self.log.env.disk, segment.folder, segment.base_offset, DELETED)

    @property
    def is_open(self) -> bool:
        return self.log.burials.get(self.segment.base_offset) is self

    def forget(self) -> None:
        self.timer.cancel()
        if self.is_open:
            del self.log.burials[self.segment.base_offset]


class Graves:
    """The burials of a node that are due."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._due: deque[Burial] = deque()
        self._digs = False

    def add(self, burial: Burial) -> None:
        self._due.append(burial)
        if not self._digs:
            self._digs = True
            self._env.tasks.spawn(self._dig(), name="remove segments")

    async def _dig(self) -> None:
        try:
            while self._due:
                await self._remove(self._due.popleft())
        finally:
            self._digs = False

    async def finish(self, logs: Sequence["Log"]) -> None:
        """At a stop, due or not: a start from hints does not look for what is left."""
        for log in logs:
            for burial in list(log.burials.values()):
                await self._remove(burial, slowly=False)

    async def _remove(self, burial: Burial, *, slowly: bool = True) -> None:
        if not burial.is_open:
            return  # its log was closed meanwhile
        try:
            if slowly:
                await self._shrink(burial)
            if burial.is_open:
                await self._env.disk.run(burial.unlink)
        except OSError as error:
            tell(burial.log, burial.segment, error)
        burial.forget()

    async def _shrink(self, burial: Burial) -> None:
        log, segment = burial.log, burial.segment
        name = file_name(segment.base_offset, LOG)
        await shrink(self._env, f"{segment.folder}/{name}{DELETED}", log.folder, log.shared.pool)


def tell(log: "Log", segment: Segment, error: OSError | LogDamaged) -> None:
    """The next start removes what is left."""
    log.env.log.warn("segment_not_removed", path=segment.path, cause=str(error))
    if isinstance(error, NamesLost):
        lose(log, error)


def never_synced(log: "Log", segment: Segment) -> None:
    """By the next sync: its file has another name by then."""
    if segment in log.dirty:
        log.dirty.remove(segment)
    segment.dirty = False


def bury(log: "Log", segments: Sequence[Segment]) -> None:
    """Their log start offset is durable. Those whose name is another's by now went when the log began anew (`bury_rest`)."""
    for segment in segments:
        if not log.bases or segment.base_offset >= log.bases[0]:
            continue
        try:
            bury_now(log, segment)
        except OSError as error:
            tell(log, segment, error)


def bury_now(log: "Log", segment: Segment) -> None:
    """One that truncation takes: a failure is the caller's to handle, for the file would come back."""
    Burial(log, segment)
    log.folder_version += 1


def bury_rest(log: "Log") -> None:
    """All that has a segment's name yet, of a log that begins anew: what a checkpoint that is under way is to bury, and what could
    not be renamed when its time came. Below the log start it was harmless; where the start goes back it would count again."""
    disk = log.env.disk
    for segment in log.dirty[:]:
        never_synced(log, segment)
    for name in disk.list(log.folder):
        parts = split(name)
        if parts is not None and parts[1] in SEGMENT_FILES:
            disk.rename(f"{log.folder}/{name}", f"{log.folder}/{name}{DELETED}")
            log.folder_version += 1
