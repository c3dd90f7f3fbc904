"""What a node had synced is there again when it is back, byte for byte, whatever ended it.

INVARIANT  a log that is opened has every byte that the node called synced before it went down, but for what was cut by the protocol,
           deleted, cleaned, or refused by name.
PREVENTS   a synced tail that goes with a crash and comes back from a leader, so that no other checker misses it: until all replicas
           lose it at once.
PROVED BY  tests/sim/test_synced_watch.py::test_a_synced_tail_that_is_gone_after_a_kill_is_seen

It costs a copy of a log's bytes for each time that its node goes down. A disk that was replaced, or has rotted, owes nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.wire.batch import headers_of
from fencepost.node.broker import Broker
from fencepost.replication.log.log import Log
from fencepost.replication.log.segment import Segment

from ..checkers.history import Anomaly
from .file_node import FileNode
from .filesystem import Folder
from .world import World

CLEANING: Final = (".cleaned", ".swap")


class Kept(NamedTuple):
    """A log as it was when its node went down: below `end` all was synced. Segments by their base offsets."""

    topic_id: UUID | None
    log_start: int
    end: int
    segments: tuple[tuple[int, bytes], ...]


class Opened(NamedTuple):
    """A log of this life. Until it is cut it owes what was synced in the life before, too, up to `end`."""

    log: Log
    topic_id: UUID | None
    cuts: int
    end: int


class SyncedWatch:
    def __init__(self, world: World) -> None:
        self.world = world
        self.compared = 0  # bytes
        self._names: dict[str, int] = {}  # of machines
        self._opened: dict[int, dict[TopicPartition, Opened]] = {}
        self._kept: dict[tuple[int, TopicPartition], Kept] = {}
        world.on_down.append(self._went_down)
        world.on_emptied.append(self._was_emptied)

    def hook(self, node_id: int, machine: str, broker: Broker) -> None:
        """Before it starts. Who watches calls `opened` for each of its logs."""
        self._names[machine] = node_id
        self._opened[node_id] = {}
        removal: Any = broker.replicas.store.removal
        forget = removal.forget

        def forgets(partitions: Sequence[TopicPartition]) -> Any:
            for name in partitions:
                self._opened[node_id].pop(name, None)
                self._kept.pop((node_id, name), None)
            return forget(partitions)

        removal.forget = forgets

    def forget(self, node_id: int, name: TopicPartition) -> None:
        """The node owes nothing of this partition any more."""
        self._kept.pop((node_id, name), None)

    def _was_emptied(self, machine: str) -> None:
        """It owes nothing any more."""
        node_id = self._names.get(machine)
        if node_id is not None:
            self._opened[node_id] = {}
            for key in [key for key in self._kept if key[0] == node_id]:
                del self._kept[key]

    def opened(
        self, node_id: int, name: TopicPartition, topic_id: UUID | None, log: Log
    ) -> list[Anomaly]:
        """What this log lacks."""
        before = self._opened[node_id].get(name)
        if before is not None:
            self._keep(node_id, name, before)
        kept = self._kept.pop((node_id, name), None)
        if kept is not None and kept.topic_id != topic_id:
            kept = None  # another life of the topic
        found = "" if kept is None else self._compare(node_id, kept, log)
        end = 0 if kept is None else kept.end
        self._opened[node_id][name] = Opened(log, topic_id, log.cuts, end)
        return [Anomaly("synced-lost", str(name), f"node {node_id}: {found}")] if found else []

    def _went_down(self, machine: str) -> None:
        node_id = self._names.get(machine)
        if node_id is not None:
            for name, opened in self._opened[node_id].items():
                self._keep(node_id, name, opened)
            self._opened[node_id] = {}

    def _keep(self, node_id: int, name: TopicPartition, opened: Opened) -> None:
        log = opened.log
        self._kept.pop((node_id, name), None)
        if log.removed or self._may_be_cleaned(node_id, log):
            return
        end = log.recovery_point
        if log.cuts == opened.cuts:
            end = max(end, opened.end)
        segments, reached = [], 0
        for segment in log.segments:
            if segment.base_offset >= end or not segment.size:
                break
            content, reached = synced_part(self._find(node_id), segment, end)
            segments.append((segment.base_offset, content))
        # A log that was beginning anew may have its first file already, and its old start in memory yet.
        start = max(log.log_start_offset, log.segments[0].base_offset if log.segments else 0)
        self._kept[node_id, name] = Kept(opened.topic_id, start, reached, tuple(segments))

    def _may_be_cleaned(self, node_id: int, log: Log) -> bool:
        """Compaction has rewritten it, or the next start ends what one has begun."""
        if not log.config.compact:
            return False
        folder = self._find(node_id)(log.folder)  # none while nothing was written
        names = folder.names if isinstance(folder, Folder) else ()
        return log.cleaned_to > 0 or any(name.endswith(CLEANING) for name in names)

    def _compare(self, node_id: int, kept: Kept, log: Log) -> str:
        if log.log_start_offset > kept.log_start:
            return f"its log began at {kept.log_start}, and begins at {log.log_start_offset}"
        if log.log_end_offset < kept.end:
            return f"synced up to {kept.end}, and its log ends at {log.log_end_offset}"
        find = self._find(node_id)
        there = {segment.base_offset: segment for segment in log.segments}
        first = log.segments[0].base_offset
        ends = [*(base for base, _ in kept.segments[1:]), kept.end]
        for (base, content), end in zip(kept.segments, ends, strict=False):
            if base < first and end <= log.log_start_offset:
                continue  # of what was deleted files may be there, or not
            segment = there.get(base)
            if segment is None:
                return f"synced up to {kept.end}, and nothing begins at {base}"
            file = find(segment.path)
            found = b"" if not isinstance(file, FileNode) else file.as_written()[: segment.size]
            if found[: len(content)] != content:
                return f"other bytes from {base} on, of which {len(content)} were synced"
            self.compared += len(content)
        return ""

    def _machine(self, node_id: int) -> str:
        return next(name for name, id_ in self._names.items() if id_ == node_id)

    def _find(self, node_id: int) -> Callable[[str], Any]:
        return self.world.disk(self._machine(node_id)).files.find


def synced_part(find: Callable[[str], Any], segment: Segment, end: int) -> tuple[bytes, int]:
    """The batches of a file that are below `end`, and where they end. Its node may have died while it cut the file."""
    file = find(segment.path)
    content = file.as_written()[: segment.size] if isinstance(file, FileNode) else b""
    if segment.next_offset <= end and len(content) == segment.size:
        return content, segment.next_offset
    size, reached = 0, segment.base_offset
    for at, header in headers_of(content):
        if header.next_offset > end:
            break
        size, reached = at + header.size, header.next_offset
    return content[:size], reached
