"""Bugs of fetch sessions, and of replicas that follow and are read from, planted."""

from collections.abc import Mapping
from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.replication.fetch_sessions import Cached, FetchSessions, Key, Outcome, Wanted
from fencepost.replication.log.log import Log
from fencepost.replication.partition_machine import PartitionMachine, Role
from fencepost.replication.partition_reads import ReadablePartition

from .bugs import Patch, bug

FAULTS = "kill reset kill-controller pause"


def _sessions_take(patch: Patch, *, known: bool) -> None:
    """Of what a session is asked for again only what it knows, or only what it does not know."""
    right = FetchSessions.begin

    def begin(self: FetchSessions, *, wanted: Mapping[Key, Wanted], **more: Any) -> Any:
        session = self._sessions.get(more["session_id"])
        if session is not None and more["session_epoch"] > 0:
            there = session.partitions
            wanted = {key: each for key, each in wanted.items() if (key in there) is known}
        return right(self, wanted=wanted, **more)

    patch.put(FetchSessions, "begin", begin)


@bug(seen_by="no-progress", campaign="cluster", faults=FAULTS, workloads="sessions", seeds=60)
def sessions_hide_errors(patch: Patch) -> None:
    """A session leaves out what a partition refuses: whoever asks a node that leads it no more waits for ever."""
    right = Cached.tell

    def tell(self: Cached, outcome: Outcome) -> bool:
        is_told = right(self, outcome)
        return is_told and outcome.error is ErrorCode.none

    patch.put(Cached, "tell", tell)


@bug(seen_by="no-progress", campaign="cluster", faults=FAULTS, workloads="sessions")
def sessions_keep_the_first_offset(patch: Patch) -> None:
    """What is asked for again of a session's partition does not count: it is read from where it was first asked for."""
    _sessions_take(patch, known=False)


@bug(seen_by="no-progress", campaign="cluster", faults=FAULTS, workloads="sessions")
def sessions_take_no_newcomers(patch: Patch) -> None:
    """A partition that comes to a node under a session, as its leader dies, is not taken into it."""
    _sessions_take(patch, known=True)


@bug(
    seen_by="unread dead-client moved reordered",
    campaign="cluster",
    faults="kill delay at-a-moment cut slow-disk",
    workloads="followers",
    seeds=60,
)
def followers_show_what_is_not_committed(patch: Patch) -> None:
    """A replica that follows shows all that it has copied, committed or not."""
    right = ReadablePartition.read

    def read(self: ReadablePartition, *asked: Any, **how: Any) -> Any:
        if self.machine.role is not Role.FOLLOWER:
            return right(self, *asked, **how)
        held = self.machine.high_watermark
        self.machine.high_watermark = self.log.log_end_offset
        try:
            return right(self, *asked, **how)
        finally:
            self.machine.high_watermark = held

    patch.put(ReadablePartition, "read", read)


@bug(
    seen_by="G1a precommitted-read",
    campaign="transactions",
    faults="reset kill",
    workloads="bank append followers",
)
def followers_show_open_transactions(patch: Patch) -> None:
    """A replica that follows shows readers at read_committed what open transactions have written."""
    right = PartitionMachine.last_stable_offset

    def last_stable_offset(self: PartitionMachine, unstable: int | None) -> int:
        return right(self, None if self.role is Role.FOLLOWER else unstable)

    patch.put(PartitionMachine, "last_stable_offset", last_stable_offset)


@bug(seen_by="G1a", campaign="transactions", faults="reset", workloads="bank followers")
def followers_name_no_aborted(patch: Patch) -> None:
    """A replica that follows names no aborted transactions in what it returns."""
    right, reading = ReadablePartition.read, Log.aborted_between
    following: list[Log] = []

    def read(self: ReadablePartition, *asked: Any, **how: Any) -> Any:
        if self.machine.role is Role.FOLLOWER:
            following.append(self.log)
        try:
            return right(self, *asked, **how)
        finally:
            following.clear()

    def aborted_between(self: Log, *asked: Any, **how: Any) -> Any:
        return [] if self in following else reading(self, *asked, **how)

    patch.put(ReadablePartition, "read", read)
    patch.put(Log, "aborted_between", aborted_between)
