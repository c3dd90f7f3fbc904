"""One partition that follows: it asks, cuts where it is told that the logs part, asks again, follows.

INVARIANT  nothing is appended but in FOLLOWING, from the slot of the last asking, at the very end of the log.
PREVENTS   batches of two leaders, or of one leader twice, one behind the other.
PROVED BY  tests/replication/test_follower_machine.py::test_what_is_late_finds_nobody

A partition whose disk refuses, or whose leader does, rests and asks again later; the others of its stream go on.
"""

import enum
from typing import Final
from uuid import UUID

from .stream_frames import UNLIMITED, Follow

NO_SLOT: Final = -1
REST_MS: Final = 250  # the first rest; the next is twice as long, and so on
REST_MS_MAX: Final = 2_000


class Phase(enum.Enum):
    WAITING = "no stream to its leader is open"
    ASKING = "the leader was told what is here"
    FOLLOWING = "the leader sends what it appends"
    RESTING = "something was refused: ask again later"


P = Phase
# What each phase may become. ASKING to itself: the logs part, so cut and ask again. From FOLLOWING to ASKING: retention
# on the leader has overtaken us.
MAY_BECOME: Final[dict[Phase, frozenset[Phase]]] = {
    P.WAITING: frozenset({P.ASKING, P.WAITING}),
    P.ASKING: frozenset({P.ASKING, P.FOLLOWING, P.RESTING, P.WAITING}),
    P.FOLLOWING: frozenset({P.ASKING, P.RESTING, P.WAITING}),
    P.RESTING: frozenset({P.ASKING, P.WAITING}),
}


class FollowerMachine:
    """Of one partition, in one leader epoch."""

    __slots__ = (
        "_rest_ms",
        "leader_epoch",
        "partition",
        "phase",
        "rests_until",
        "slot",
        "topic_id",
    )

    def __init__(self, topic_id: UUID, partition: int, leader_epoch: int) -> None:
        self.topic_id = topic_id
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.phase = P.WAITING
        self.slot = NO_SLOT
        self.rests_until = 0
        self._rest_ms = REST_MS

    def ask(
        self,
        slot: int,
        *,
        last_epoch: int,
        log_end: int,
        counted_end: int,
        log_start: int = 0,
        granted: int = UNLIMITED,
    ) -> Follow:
        assert slot > self.slot, "a slot is given once"
        self._become(P.ASKING)
        self.slot = slot
        return Follow(
            slot, self.topic_id, self.partition, self.leader_epoch, last_epoch, log_end, counted_end,
            log_start, granted,
        )  # fmt: skip

    def expects(self, slot: int) -> bool:
        """Is an answer of this slot for us, now?"""
        return slot == self.slot and self.phase in (P.ASKING, P.FOLLOWING)

    def followed(self) -> None:
        """The leader goes on from our end."""
        if self.phase is not P.FOLLOWING:
            self._become(P.FOLLOWING)

    def progressed(self) -> None:
        """Something was appended: whatever was wrong is over."""
        self._rest_ms = REST_MS

    def rest(self, now_ms: int) -> None:
        self._become(P.RESTING)
        self.rests_until = now_ms + self._rest_ms
        self._rest_ms = min(2 * self._rest_ms, REST_MS_MAX)

    def has_rested(self, now_ms: int) -> bool:
        return self.phase is P.RESTING and now_ms >= self.rests_until

    def lose_stream(self) -> None:
        """The stream ended, and with it every slot."""
        self._become(P.WAITING)
        self.slot = NO_SLOT

    def _become(self, phase: Phase) -> None:
        assert phase in MAY_BECOME[self.phase], f"{self.phase} -> {phase}"
        self.phase = phase
