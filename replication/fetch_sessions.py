"""Fetch sessions (KIP-227): what a consumer asked for last time need not be said again, nor what did not change.

INVARIANT  a client that applies every reply knows of each partition of its session the error, high watermark and log
           start that were last read for it; one that missed a reply is told so and starts anew.
PREVENTS   a consumer of a thousand idle partitions sending and receiving all of them twice a second; and one that
           waits for ever on a partition whose change was left out.
PROVED BY  tests/replication/test_fetch_sessions.py::test_a_client_that_applies_every_reply_knows_what_was_read

The rules are Kafka's FetchManager, FetchContext and FetchSessionCache. Followers do not fetch here (they have the peer
door), so its privileged sessions are left out. Nothing here reads a clock or rolls dice.

    context = sessions.begin(…)                      # an ErrorCode: answer just that
    for key, wanted in context.partitions(): …read…
    reply = context.finish([(key, Outcome(…)), …])   # which of them go into the reply
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from fencepost.cluster.base.errors import ErrorCode

SLOTS_MAX: Final = 1000  # Kafka's max.incremental.fetch.session.cache.slots
# Of all sessions: some 300 MB. Who comes later goes without a session, or begins anew. Kafka bounds the slots alone.
PARTITIONS_MAX: Final = 1_000_000
EVICTION_MS: Final = 120_000  # FetchSession's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS
NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0  # start a session
FINAL_EPOCH: Final = -1  # and have none afterwards
EPOCH_MAX: Final = 2**31 - 1

Key = Hashable  # a topic's name or id, and a partition; the handler's business
K = TypeVar("K", bound=Hashable)


class Wanted(NamedTuple):
    """What a client wants of one partition; -1 where it says nothing."""

    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


class Outcome(NamedTuple):
    """What was read for it, as far as it decides whether it must be told."""

    error: ErrorCode
    high_watermark: int
    log_start_offset: int
    size: int = 0
    must_tell: bool = False  # a diverging epoch, or another replica to read from


class Reply(NamedTuple):
    """The head of the reply, and which of the partitions that were read go into it, in order."""

    error: ErrorCode
    session_id: int
    told: Sequence[int]


class Cached:
    """One partition of one session."""

    __slots__ = ("high_watermark", "log_start_offset", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start_offset = -1

    def tell(self, outcome: Outcome) -> bool:
        """Whether the client must be told, remembering that it was."""
        changed = (
            outcome.size > 0
            or outcome.must_tell
            or outcome.error is not ErrorCode.none
            or self.high_watermark != outcome.high_watermark
            or self.log_start_offset != outcome.log_start_offset
        )
        self.log_start_offset = outcome.log_start_offset
        # After an error the next good answer is told whatever it is.
        failed = outcome.error is not ErrorCode.none
        self.high_watermark = -1 if failed else outcome.high_watermark
        return changed


class Session:
    __slots__ = (
        "cached_size",
        "created_ms",
        "epoch",
        "id",
        "partitions",
        "used_ms",
        "uses_topic_ids",
    )

    def __init__(
        self, id_: int, partitions: dict[Key, Cached], now_ms: int, *, uses_topic_ids: bool
    ) -> None:
        self.id = id_
        self.partitions = partitions
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.epoch = 1
        self.cached_size = len(partitions)


def next_epoch(epoch: int) -> int:
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == EPOCH_MAX else epoch + 1


class SessionlessContext:
    """The client wants no session, or the last partition of its session was forgotten."""

    def __init__(self, wanted: Mapping[Key, Wanted]) -> None:
        self._wanted = wanted

    def partitions(self) -> Iterable[tuple[Key, Wanted]]:
        return self._wanted.items()

    def finish(self, answers: Sequence[tuple[Key, Outcome]], now_ms: int) -> Reply:
        return Reply(ErrorCode.none, NO_SESSION, range(len(answers)))


class FullContext:
    """Everything is asked for and answered; a session begins, if there is room."""

    def __init__(
        self, sessions: "FetchSessions", wanted: Mapping[Key, Wanted], *, uses_topic_ids: bool
    ) -> None:
        self._sessions = sessions
        self._wanted = wanted
        self._uses_topic_ids = uses_topic_ids

    def partitions(self) -> Iterable[tuple[Key, Wanted]]:
        return self._wanted.items()

    def finish(self, answers: Sequence[tuple[Key, Outcome]], now_ms: int) -> Reply:
        session_id = NO_SESSION
        if self._sessions.make_room(len(answers), now_ms):
            partitions = {}
            for key, outcome in answers:
                cached = partitions[key] = Cached(self._wanted[key])
                # As Kafka: an error too leaves what the reply carries, -1.
                cached.high_watermark = outcome.high_watermark
                cached.log_start_offset = outcome.log_start_offset
            session_id = self._sessions.add(partitions, now_ms, uses_topic_ids=self._uses_topic_ids)
        return Reply(ErrorCode.none, session_id, range(len(answers)))


class IncrementalContext:
    """Only what changed is asked for and answered."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._epoch = session.epoch

    def partitions(self) -> Iterable[tuple[Key, Wanted]]:
        """A copy: while this one waits, a retry of the same client may change the session."""
        return [(key, cached.wanted) for key, cached in self._session.partitions.items()]

    def finish(self, answers: Sequence[tuple[Key, Outcome]], now_ms: int) -> Reply:
        session = self._session
        if session.epoch != self._epoch:  # another request came in between: a duplicate, perhaps
            return Reply(ErrorCode.invalid_fetch_session_epoch, session.id, ())
        told = []
        for place, (key, outcome) in enumerate(answers):
            cached = session.partitions[key]
            if cached.tell(outcome):
                told.append(place)
                if outcome.size > 0:
                    # To the end of the queue: with small replies, everyone gets a turn.
                    del session.partitions[key]
                    session.partitions[key] = cached
        return Reply(ErrorCode.none, session.id, told)


FetchContext = SessionlessContext | FullContext | IncrementalContext


class FetchSessions:
    """The sessions of one node, in a bounded number of slots.

    When all are taken, a newcomer gets the slot of one that nobody used for two minutes, else that of the one with
    the fewest partitions, if that is old enough and has fewer than the newcomer: big sessions save most.
    """

    def __init__(
        self,
        *,
        draw_id: Callable[[], int],
        slots_max: int = SLOTS_MAX,
        eviction_ms: int = EVICTION_MS,
    ) -> None:
        self._draw_id = (
            draw_id  # a random number from 1 to 2^31-1: ids can't be guessed from others
        )
        self._slots_max = slots_max
        self._eviction_ms = eviction_ms
        self._sessions: dict[int, Session] = {}  # in order of last use
        self._evictable: list[tuple[int, int]] = []  # (partitions, id), rising; old enough ones
        self.partition_count = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        *,
        session_id: int,
        session_epoch: int,
        wanted: Mapping[Key, Wanted],
        forgotten: Iterable[Key],
        uses_topic_ids: bool,
        now_ms: int,
    ) -> FetchContext | ErrorCode:
        """Before version 7 of the request there are no sessions: pass NO_SESSION and FINAL_EPOCH."""
        if session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            known = self._sessions.get(session_id)
            if known is not None:
                self._remove(known)
            if session_epoch == FINAL_EPOCH:
                return SessionlessContext(wanted)
            return FullContext(self, wanted, uses_topic_ids=uses_topic_ids)
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.fetch_session_id_not_found
        if session.epoch != session_epoch:
            return ErrorCode.invalid_fetch_session_epoch
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.fetch_session_topic_id_error
        partitions = session.partitions
        new = sum(key not in partitions for key in wanted)
        if new and self.partition_count + new > PARTITIONS_MAX:
            self._remove(session)
            session.epoch = next_epoch(session.epoch)  # for one that waits at another connection
            return ErrorCode.fetch_session_id_not_found
        for key, each in wanted.items():
            cached = partitions.get(key)
            if cached is None:
                partitions[key] = Cached(each)
            else:
                cached.wanted = each
        for key in forgotten:
            partitions.pop(key, None)
        if not partitions:
            session.epoch = next_epoch(session.epoch)  # for one that waits at another connection
            self._remove(session)
            return SessionlessContext(wanted)
        self._touch(session, now_ms)
        session.epoch = next_epoch(session.epoch)
        return IncrementalContext(session)

    # -- slots -----------------------------------------------------------------------------------------

    def make_room(self, size: int, now_ms: int) -> bool:
        """Whether there is a slot for a session of so many partitions, evicting another if need be."""
        while self.partition_count + size > PARTITIONS_MAX:
            if size > PARTITIONS_MAX or not self._evict_unused(now_ms):
                return False
        if len(self._sessions) < self._slots_max or self._evict_unused(now_ms):
            return True
        if not self._evictable or (size, 0) < self._evictable[0]:
            return False
        self._remove(self._sessions[self._evictable[0][1]])
        self.evictions += 1
        return True

    def _evict_unused(self, now_ms: int) -> bool:
        """Whether the session that was used longest ago was not for long enough, and has gone."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.used_ms <= self._eviction_ms:
            return False
        self._remove(oldest)
        self.evictions += 1
        return True

    def add(self, partitions: dict[Key, Cached], now_ms: int, *, uses_topic_ids: bool) -> int:
        id_ = self._draw_id()
        while id_ in self._sessions or id_ == NO_SESSION:
            id_ = self._draw_id()
        self._sessions[id_] = Session(id_, partitions, now_ms, uses_topic_ids=uses_topic_ids)
        self.partition_count += len(partitions)
        return id_

    def _touch(self, session: Session, now_ms: int) -> None:
        del self._sessions[session.id]
        self._sessions[session.id] = session
        self._unlist(session)
        self.partition_count += len(session.partitions) - session.cached_size
        session.used_ms = now_ms
        session.cached_size = len(session.partitions)
        if now_ms - session.created_ms > self._eviction_ms:
            insort(self._evictable, (session.cached_size, session.id))

    def _remove(self, session: Session) -> None:
        del self._sessions[session.id]
        self._unlist(session)
        self.partition_count -= session.cached_size

    def _unlist(self, session: Session) -> None:
        key = (session.cached_size, session.id)
        at = bisect_left(self._evictable, key)
        if at < len(self._evictable) and self._evictable[at] == key:
            del self._evictable[at]
