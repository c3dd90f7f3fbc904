"""What a start has trusted without reading it is checked before it is served, until the scrub has been there.

INVARIANT  of what was in a log at the start nobody is shown a batch that has not been checked since, here or by the scrub.
PREVENTS   a reader that is quicker than the first pass being served what has rotted.
PROVED BY  tests/replication/test_scrubber.py::test_a_reader_that_is_quicker_than_the_scrub_is_served_nothing_damaged

The check is work off the loop, like a read that must wait for the disk. Followers check for themselves.
"""

from typing import Final

from fencepost.cluster.base.ports import FileSlice
from fencepost.cluster.wire.batch import BatchRefused, check_batch, headers_of

from .log.finding import ReadResult
from .log.log import Log
from .log.walk import Cold

REMEMBERED_MAX: Final = 8  # ranges a log, until whoever asked for them comes again


class NotAsWritten(Exception):
    """The batches between these offsets are not what they were."""


class FirstReads:
    """Of one log. Made when somebody reads what is unread."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], bool] = {}

    def check(self, log: Log, found: ReadResult, *, block: bool) -> None:
        """Cold: not yet. NotAsWritten: it is damaged, or can't be told."""
        if log.unread is None or not found.size:
            return
        first, end = log.unread
        if found.next_offset <= first or found.first_offset >= end:
            return
        place = found.first_offset, found.next_offset

        def work() -> None:
            self._remember(place, whole=_is_whole(found))

        if place not in self._known:
            if not block:
                raise Cold(work, aside=True)
            work()
        if not self._known.pop(place):
            log.shared.on_suspicion(log.topic_partition, *place)
            raise NotAsWritten(f"{log.topic_partition} is not what was written, from {place[0]} on")

    def _remember(self, place: tuple[int, int], *, whole: bool) -> None:
        while len(self._known) >= REMEMBERED_MAX:
            del self._known[next(iter(self._known))]
        self._known[place] = whole


def _is_whole(found: ReadResult) -> bool:
    """By checksums, and by offsets, which have none."""
    offset = found.first_offset
    for piece in found.slices:
        assert isinstance(piece, FileSlice), "what is read of a log is in a file"
        data = piece.file.read(piece.position, piece.length)
        try:
            for position, header in headers_of(data):
                check_batch(data, position, header)
                if header.base_offset < offset:
                    return False
                offset = header.next_offset
        except BatchRefused:
            return False
        if len(data) < piece.length:
            return False
    return offset == found.next_offset
