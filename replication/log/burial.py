"""Files of segments that are out of the log: renamed at once, removed when nobody can want them any more."""

from typing import TYPE_CHECKING

from .names import DELETED
from .segment import Segment
from .segment_files import remove_all, rename_all

if TYPE_CHECKING:
    from .log import Log


class Burial:
    """A segment's files under their `.deleted` names, until nobody can want them."""

    __slots__ = ("log", "segment", "timer")

    def __init__(self, log: "Log", segment: Segment) -> None:
        """OSError when the files can't be renamed."""
        self.log = log
        self.segment = segment
        log.shared.pool.close(segment)
        rename_all(log.env.disk, segment.folder, segment.base_offset, segment.extra, DELETED)
        delay_s = log.config.file_delete_delay_ms / 1000
        self.timer = log.env.clock.call_later(delay_s, self.finish)
        log.burials[segment] = self

    def finish(self) -> None:
        self.timer.cancel()
        self.log.burials.pop(self.segment, None)
        segment = self.segment
        try:
            remove_all(self.log.env.disk, segment.folder, segment.base_offset, DELETED)
        except OSError as error:  # the next start removes what is left
            self.log.env.log.warn("segment_not_removed", path=segment.path, cause=str(error))


def bury(log: "Log", segments: list[Segment]) -> None:
    """Their log start offset is durable."""
    for segment in segments:
        try:
            Burial(log, segment)
        except OSError as error:
            log.env.log.warn("segment_not_removed", path=segment.path, cause=str(error))


def bury_now(log: "Log", segment: Segment) -> None:
    """One that truncation takes: a failure is the caller's to handle, for the file would come back."""
    Burial(log, segment)
    log.folder_version += 1
