"""Bugs of what is deleted on request, and of what a start makes of what was synced, planted."""

from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TopicPartition
from fencepost.replication import streams_leader
from fencepost.replication.log import aborted, handed_on, retention
from fencepost.replication.log.checkpoint import Kind
from fencepost.replication.log.log import Log
from fencepost.replication.log.store import LogStore
from fencepost.replication.log.txn_index import AbortedIndex
from fencepost.replication.partition_copies import CopiedPartition

from .bugs import Patch, bug


@bug(
    seen_by="undeleted",
    campaign="cluster",
    faults="delay kill kill-two",
    workloads="deletions",
    seeds=60,
)
def deletions_are_answered_at_once(patch: Patch) -> None:
    """DeleteRecords is answered as soon as the leader has done it: who leads next has what was deleted."""

    async def at_once(_self: Any, _offset: int) -> ErrorCode:
        return ErrorCode.none

    patch.put(CopiedPartition, "deleted", at_once)


@bug(
    seen_by="undeleted",
    campaign="cluster",
    faults="kill-all kill-two power-all",
    workloads="deletions",
)
def log_starts_are_not_kept(patch: Patch) -> None:
    """Where a log begins is known in memory only: after a start it begins with its first file again."""
    right = LogStore.open

    def forgetful(self: Any, partition: TopicPartition, *others: Any) -> Log:
        self.offsets.put(Kind.LOG_START, partition, 0)
        return right(self, partition, *others)

    patch.put(LogStore, "open", forgetful)


@bug(
    seen_by="duplicate moved reordered producer-state",
    campaign="cluster",
    faults="kill reset",
    workloads="sleepers",
)
def copies_are_told_of_nobody(patch: Patch) -> None:
    """A leader hands on what is left of a log, and not who wrote what was deleted: a new replica takes a retry of that for new."""
    patch.put(streams_leader, "below", lambda *_: b"")
    patch.put(handed_on, "below", lambda *_: b"")


@bug(seen_by="over-deleted", campaign="cluster", faults="reset kill", workloads="deletions")
def deletions_take_whole_files(patch: Patch) -> None:
    """A log begins at a file's beginning only: what is asked to be deleted goes with the rest of its file."""
    right = retention.advance_start

    def rounded(log: Any, offset: int) -> None:
        behind = [base for base in log.bases if base >= offset]
        right(log, behind[0] if behind else offset)

    patch.put(retention, "advance_start", rounded)


@bug(seen_by="synced-lost", campaign="cluster", faults="kill kill-two power-one")
def starts_keep_what_a_checkpoint_has(patch: Patch) -> None:
    """After a crash a log is cut where the last checkpoint says that it was synced, though more was by then."""
    right = LogStore.open

    def cut(self: Any, partition: TopicPartition, *others: Any) -> Log:
        is_clean = partition in self._hints
        point = self.offsets.recovery_point_of(partition)
        log = right(self, partition, *others)
        if not is_clean and point is not None:
            log.truncate_to(max(point, log.log_start_offset))
        return log

    patch.put(LogStore, "open", cut)


@bug(
    seen_by="G1a",
    campaign="transactions",
    faults="kill kill-coordinator reset stop",
    workloads="cut",
    seconds=8.0,
)
def deletions_take_the_aborted_along(patch: Patch) -> None:
    """Where a log's beginning is deleted, the aborted transactions that had begun there are forgotten, whose records may go on behind it."""
    right = retention.advance_start

    def forgetful(log: Log, offset: int) -> None:
        right(log, offset)
        for segment in log.segments:
            index = aborted.load(log, segment)
            segment.aborted = AbortedIndex(
                each for each in index if each.first_offset >= log.log_start_offset
            )

    patch.put(retention, "advance_start", forgetful)
