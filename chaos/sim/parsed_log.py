"""Logs as they lie on simulated disks, read past all faults of those: headers of batches, and what they say of producers."""

from collections.abc import Callable, Iterator
from typing import Any

from fencepost.cluster.wire.batch import BatchHeader, headers_of, parse_header
from fencepost.cluster.wire.records import read_control, read_records
from fencepost.replication.log.log import Log

from ..checkers import producer_state
from ..checkers.observations import NOBODYS, Batch, Marker
from ..checkers.producer_state import Known
from .file_node import FileNode


class ParsedLog:
    """The headers of one log; only what is new is parsed."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._batches: list[Batch] = []
        self._cuts = log.cuts
        self._at: tuple[int, int] | None = None  # base offset of the segment, position behind
        self._producers: dict[int, Known] = {}
        self._replayed = 0  # batches

    def up_to_now(self, find: Callable[[str], Any]) -> list[Batch]:
        log = self.log
        if self._cuts != log.cuts:
            self._cuts, self._at = log.cuts, None
        first = log.segments[0].base_offset
        if self._at is None or self._at[0] < first:
            self._at = (first, 0)
            self._batches = []
            self._producers, self._replayed = {}, 0
        for segment in log.segments:
            if segment.base_offset < self._at[0] or segment.size == 0:
                continue
            position = self._at[1] if segment.base_offset == self._at[0] else 0
            if position < segment.size:
                content = memoryview(content_of(find, segment.path))
                while position < segment.size:
                    position += self._take(content, position)
                content.release()
            self._at = (segment.base_offset, position)
        return self._batches

    def producers(self) -> dict[int, Known]:
        """What its batches say of their producers."""
        news = self._batches[self._replayed :]
        self._replayed = len(self._batches)
        return producer_state.replay(news, self._producers)

    def _take(self, content: memoryview, position: int) -> int:
        header = parse_header(content, position)
        self._batches.append(
            Batch(
                header.base_offset,
                header.next_offset,
                header.leader_epoch,
                header.crc,
                header.size,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.is_transactional,
                _marker(content, position) if header.is_control else None,
            )
        )
        return header.size


def _marker(content: memoryview, position: int) -> Marker | None:
    records = read_records(content, position)
    if not records:
        return Marker(commit=False, coordinator_epoch=NOBODYS)
    marker = read_control(records[0])
    return None if marker is None else Marker(marker.commit, marker.coordinator_epoch)


def batches_between(
    find: Callable[[str], Any], log: Log, start: int, end: int
) -> Iterator[tuple[bytes, int, BatchHeader]]:
    """Content of a segment, position in it and header, of each batch."""
    segments = log.segments
    for place, segment in enumerate(segments):
        behind = segments[place + 1].base_offset if place + 1 < len(segments) else end
        if behind <= start or segment.base_offset >= end or not segment.size:
            continue
        content = content_of(find, segment.path)[: segment.size]
        for at, header in headers_of(content):
            if start <= header.base_offset and header.next_offset <= end:
                yield content, at, header


def content_of(find: Callable[[str], Any], path: str) -> bytes:
    """As it was written: what a node makes of a bit that has flipped is judged by what was there before."""
    node = find(path)
    assert isinstance(node, FileNode), f"{path} is gone"
    return node.as_written()
