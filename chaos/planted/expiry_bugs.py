"""Bugs of what goes from a log by its age or its size, and of what is found there by its time, planted."""

from collections.abc import Callable
from typing import Any

from fencepost.cluster.wire.batch import BatchHeader
from fencepost.replication.log import retention
from fencepost.replication.log.log import Log
from fencepost.replication.log.search import Found, Seek
from fencepost.replication.log.segment import Segment
from fencepost.replication.rounds import Rounds

from .bugs import Patch, bug

FAULTS = "kill reset stop"


@bug(seen_by="expired-early", campaign="cluster", faults=FAULTS, workloads="expiring")
def retention_takes_the_young(patch: Patch) -> None:
    """A segment is as old as its first record: what was written to it just now goes, too."""

    def by_its_first(log: Any, now_ms: int) -> Callable[[Segment, int], bool]:
        limit = log.config.retention_ms
        return lambda segment, _: 0 <= limit < now_ms - segment.timestamp_of_first()

    patch.put(retention, "_is_too_old", by_its_first)


@bug(seen_by="expired-early", campaign="cluster", faults=FAULTS, workloads="expiring")
def retention_keeps_too_little(patch: Patch) -> None:
    """Segments go until a log is below its size, not as long as it stays above."""

    def below(log: Any) -> Callable[[Segment, int], bool]:
        limit = log.config.retention_bytes
        over = log.size_bytes - limit if limit >= 0 else 0

        def rule(segment: Segment, _: int) -> bool:
            nonlocal over
            if over <= 0:
                return False
            over -= segment.size
            return True

        return rule

    patch.put(retention, "_is_over_size", below)


@bug(seen_by="never-expired", campaign="cluster", faults=FAULTS, workloads="expiring")
def nothing_expires_by_age(patch: Patch) -> None:
    """The age of segments is not looked at."""
    patch.put(retention, "_is_too_old", lambda *_: lambda *_: False)


@bug(seen_by="never-expired", campaign="cluster", faults=FAULTS, workloads="expiring")
def nothing_expires_by_size(patch: Patch) -> None:
    """The size of logs is not looked at."""
    patch.put(retention, "_is_over_size", lambda *_: lambda *_: False)


@bug(seen_by="never-expired", campaign="cluster", faults=FAULTS, workloads="expiring")
def the_last_segment_stays(patch: Patch) -> None:
    """A log's last segment never goes, however old it is: of a topic that nobody writes to any more some records stay for ever."""
    right = retention._is_too_old

    def but_the_last(log: Any, now_ms: int) -> Callable[[Segment, int], bool]:
        rule = right(log, now_ms)
        return lambda segment, next_base: next_base >= 0 and rule(segment, next_base)

    patch.put(retention, "_is_too_old", but_the_last)


@bug(seen_by="expired-early", campaign="cluster", faults=FAULTS, workloads="expiring")
def followers_expire_on_their_own(patch: Patch) -> None:
    """A follower lets go of all segments that it has full and committed, behind or beyond where its leader's log begins."""
    right = Rounds._retain_one

    async def eager(self: Any, partition: Any, now_ms: int) -> None:
        if not partition.is_leader:
            partition.log.delete_records_before(
                min(partition.high_watermark, partition.log.bases[-1])
            )
        await right(self, partition, now_ms)

    patch.put(Rounds, "_retain_one", eager)


@bug(
    seen_by="duplicate moved reordered producer-state dead-client",
    campaign="cluster",
    faults=FAULTS,
    workloads="expiring sleepers",
)
def producers_expire_with_their_records(patch: Patch) -> None:
    """Who has no record left in a log is not known there any more: a retry of what has expired is written again."""
    right = retention.advance_start

    def forgetful(log: Any, offset: int) -> None:
        right(log, offset)
        gone = [
            each.producer_id
            for each in log.producers.states()
            if each.batches and each.batches[-1].last_offset < log.log_start_offset
        ]
        log.producers.forget(gone)

    patch.put(retention, "advance_start", forgetful)


@bug(seen_by="wrong-time", campaign="cluster", faults=FAULTS, workloads="times")
def times_are_of_batches(patch: Patch) -> None:
    """Who asks for the offset of a time is told of the first record of a batch that has one as young."""

    def look(self: Seek, batch: bytes, header: BatchHeader, timestamp: int, start: int) -> None:
        self.found = Found(header.base_offset, header.max_timestamp, header.leader_epoch)

    patch.put(Seek, "look", look)


@bug(seen_by="wrong-time", campaign="cluster", faults=FAULTS, workloads="times")
def times_are_taken_to_rise(patch: Patch) -> None:
    """A segment is passed by whose last batch is older, as if none before it could be younger."""
    right = Log.search

    def search(self: Log, seek: Seek, limit: int, *, block: bool = True) -> Found | None:
        found = right(self, seek, limit, block=block)
        if found is None or seek.timestamp < 0:
            return found
        behind = self.segments[self.index_of(found.offset) :]
        if len(behind) > 1 and behind[1].size and behind[1].timestamp_of_first() < seek.timestamp:
            seek.done_to, seek.found = behind[1].base_offset, None
            return right(self, seek, limit, block=block)
        return found

    patch.put(Log, "search", search)
