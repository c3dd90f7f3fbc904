"""Bugs of fetch sessions, planted: what a consumer is not told, and waits for."""

from collections.abc import Mapping
from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.replication.fetch_sessions import Cached, FetchSessions, Key, Outcome, Wanted

from .bugs import Patch, bug

FAULTS = "kill reset kill-controller pause"


@bug(seen_by="no-progress", campaign="cluster", faults=FAULTS, workloads="sessions", seeds=20)
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
    right = FetchSessions.begin

    def begin(self: FetchSessions, *, wanted: Mapping[Key, Wanted], **more: Any) -> Any:
        session = self._sessions.get(more["session_id"])
        if session is not None and more["session_epoch"] > 0:
            wanted = {key: each for key, each in wanted.items() if key not in session.partitions}
        return right(self, wanted=wanted, **more)

    patch.put(FetchSessions, "begin", begin)


@bug(seen_by="no-progress", campaign="cluster", faults=FAULTS, workloads="sessions")
def sessions_take_no_newcomers(patch: Patch) -> None:
    """A partition that comes to a node under a session, as its leader dies, is not taken into it."""
    right = FetchSessions.begin

    def begin(self: FetchSessions, *, wanted: Mapping[Key, Wanted], **more: Any) -> Any:
        session = self._sessions.get(more["session_id"])
        if session is not None and more["session_epoch"] > 0:
            wanted = {key: each for key, each in wanted.items() if key in session.partitions}
        return right(self, wanted=wanted, **more)

    patch.put(FetchSessions, "begin", begin)
