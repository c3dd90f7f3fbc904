"""One partition, as leader or follower: how far it is committed, and who may still write to it.

INVARIANT  the high watermark is at or below the end that counts of every member of the maximal ISR, does not move
           while the ISR is smaller than min.insync.replicas, and never goes back while this broker leads.
PREVENTS   an acknowledged batch that a leader elected later, or this one after a power cut, does not have.
PROVED BY  tests/replication/test_partition_machine.py::test_nothing_is_committed_that_an_in_sync_replica_lacks,
           tests/replication/test_partition_machine.py::test_an_old_image_is_not_followed,
           tests/replication/test_partition_machine.py::test_a_change_of_policy_counts_at_once,
           tests/replication/test_acks_of_older_epochs.py::test_what_was_acknowledged_in_an_older_epoch_commits_nothing

The end that counts is the durable one under flush.policy=ack, else the log's end. Events in, booleans out ("the high
watermark moved"): this runs for every append, so there are no command objects. With an ISR of one it is the same code.
"""

import enum
from collections.abc import Collection
from typing import Final

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.metadata.image import PartitionState

from .isr_machine import IsrMachine, Proposal

ALL_REPLICAS: Final = -1  # acks=all
NO_EPOCH: Final = -1
REPLICA_LAG_MS_MAX: Final = 30_000  # Kafka's replica.lag.time.max.ms
NEVER_MS: Final = -(1 << 62)


class Role(enum.Enum):
    IDLE = "has not heard of any leader"
    LEADER = "leads"
    FOLLOWER = "follows"


class Heard:
    """When a follower's stream was last heard of; one for all partitions that are on it."""

    __slots__ = ("at_ms",)

    def __init__(self, at_ms: int) -> None:
        self.at_ms = at_ms


class Replica:
    """What the leader knows of a follower.

    It keeps up if it has, or had a moment ago, all that there was. `marked_end` is what there was at `marked_ms`:
    when it has that, it was caught up then, however much came since. (Kafka marks at each fetch; a stream is
    acknowledged so often that what came since the last time is always on its way.) One at the very end is
    caught up for as long as its stream lives: nothing is sent for a partition that is idle.

    What it has is what commits may count on, not what it has written: one whose disk hangs in a sync takes all that
    comes, and would be waited for, in sync, for good.
    """

    __slots__ = (
        "caught_up_ms", "counted_end", "heard", "log_end", "log_start", "marked_end", "marked_ms", "may_join",
    )  # fmt: skip

    def __init__(self, caught_up_ms: int) -> None:
        self.log_end = -1
        self.counted_end = -1  # what it has for certain, by its own flush.policy
        self.log_start = -1
        self.caught_up_ms = caught_up_ms  # when it last had all that the leader had
        self.marked_end = -1
        self.marked_ms = caught_up_ms
        self.may_join = False  # alive, not fenced, not shutting down, as the image says
        self.heard: Heard | None = None  # None: alive, for all we know

    def is_caught_up(self, leader_end: int, now_ms: int, lag_ms_max: int) -> bool:
        if now_ms - self.caught_up_ms <= lag_ms_max:
            return True
        heard = self.heard
        has_all = self.counted_end == leader_end
        return has_all and (heard is None or now_ms - heard.at_ms <= lag_ms_max)

    def on_ack(self, log_end: int, counted_end: int, leader_end: int, now_ms: int) -> None:
        self.log_end, self.counted_end = log_end, counted_end
        if counted_end >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif counted_end >= self.marked_end:
            self.caught_up_ms = max(self.caught_up_ms, self.marked_ms)
        else:
            return  # the mark stands until it is reached
        self.marked_end, self.marked_ms = leader_end, now_ms

    def on_leader_moves(self, now_ms: int) -> None:
        """It had all there was, until now or until its stream fell silent."""
        heard = self.heard
        until = now_ms if heard is None else heard.at_ms
        self.caught_up_ms = max(self.caught_up_ms, until)


class PartitionMachine:
    __slots__ = (
        "assigned", "broker_id", "durable_end", "elr", "epoch_start_offset", "high_watermark", "isr", "lag_ms_max",
        "leader", "leader_epoch", "log_end", "min_insync_replicas", "offline", "proposed", "replicas", "role", "settled_replicas",
        "sync_counts",
    )  # fmt: skip

    def __init__(
        self, broker_id: int, *, log_end: int, durable_end: int, high_watermark: int
    ) -> None:
        assert high_watermark <= log_end and durable_end <= log_end
        self.broker_id = broker_id
        self.role = Role.IDLE
        self.leader = -1
        self.leader_epoch = NO_EPOCH
        self.epoch_start_offset = -1
        self.isr = IsrMachine()
        self.elr: frozenset[int] = frozenset()  # who may lead, too, while the ISR is small
        self.offline: frozenset[int] = (
            frozenset()
        )  # whose logs can't be used until they register anew
        self.proposed = -1  # last, to join: if that was refused it is another one's turn
        # Who is to have a replica, this broker among them.
        self.assigned: frozenset[int] = frozenset()
        self.replicas: dict[int, Replica] = {}  # the others, while this broker leads
        self.log_end = log_end
        self.durable_end = durable_end
        self.high_watermark = high_watermark
        # From the topic's settings; the shell keeps them up to date.
        self.min_insync_replicas = 1
        self.settled_replicas = 1
        self.sync_counts = True  # flush.policy=ack
        self.lag_ms_max = REPLICA_LAG_MS_MAX

    # -- leadership, as the image tells ----------------------------------------------------------------

    def on_image(self, state: PartitionState, now_ms: int) -> tuple[bool, bool]:
        """Lead or follow. Whether a new leader epoch began for this broker, and whether the watermark moved."""
        if (
            state.leader_epoch < self.leader_epoch
            or state.partition_epoch < self.isr.partition_epoch
        ):
            return False, False  # the leader hears of its own proposals first
        is_new_epoch = state.leader_epoch > self.leader_epoch
        self.isr.on_image(frozenset(state.isr), state.leader_epoch, state.partition_epoch)
        self.elr, self.offline = frozenset(state.elr), frozenset(state.offline)
        self.leader, self.leader_epoch = state.leader, state.leader_epoch
        self.assigned = frozenset(state.replicas)
        if state.leader != self.broker_id:
            self.role = Role.FOLLOWER
            self.replicas = {}
            return is_new_epoch, False
        self.role = Role.LEADER
        self.settled_replicas = len(state.original_replicas)
        if is_new_epoch:
            self.epoch_start_offset = self.log_end
        self._keep_replicas(state, now_ms, is_new_epoch=is_new_epoch)
        return is_new_epoch, self._maybe_move(now_ms)

    def _keep_replicas(self, state: PartitionState, now_ms: int, *, is_new_epoch: bool) -> None:
        """A follower that is in the ISR has the lag limit's time to show up; another must catch up first."""
        # What was acknowledged in an older epoch is void: between the two another may have led, unseen by us,
        # and had it truncated. (Kafka keeps it for a leader that is elected again.)
        known = {} if is_new_epoch else self.replicas
        self.replicas = {}
        for broker_id in state.replicas:
            if broker_id != self.broker_id:
                caught_up_ms = now_ms if broker_id in state.isr else NEVER_MS
                self.replicas[broker_id] = known.get(broker_id) or Replica(caught_up_ms)

    def resign(self) -> None:
        """The partition is taken from this broker, or its disk failed."""
        self.role = Role.IDLE
        self.replicas = {}

    # -- the log grew, was synced, was cut -------------------------------------------------------------

    def on_append(self, log_end: int, now_ms: int) -> bool:
        assert log_end >= self.log_end
        for replica in self.replicas.values():
            if replica.counted_end == self.log_end:
                replica.on_leader_moves(now_ms)
        self.log_end = log_end
        return not self.sync_counts and self.role is Role.LEADER and self._maybe_move(now_ms)

    def on_durable(self, durable_end: int, now_ms: int) -> bool:
        assert durable_end <= self.log_end, f"synced to {durable_end}, written to {self.log_end}"
        if durable_end <= self.durable_end:
            return False
        self.durable_end = durable_end
        return self.role is Role.LEADER and self._maybe_move(now_ms)

    def on_truncated(self, log_end: int, durable_end: int) -> None:
        """Only a follower's log is cut."""
        assert self.role is not Role.LEADER, "a leader's log was truncated"
        self.log_end, self.durable_end = log_end, durable_end
        self.high_watermark = min(self.high_watermark, log_end)

    def on_begun_anew(self, log_start: int) -> None:
        """A follower that fell behind what its leader still has is empty now, and begins there."""
        assert self.role is not Role.LEADER, "a leader's log was emptied"
        self.log_end = self.durable_end = self.high_watermark = log_start

    def on_leader_high_watermark(self, high_watermark: int) -> bool:
        """A follower learns how far the leader has committed; it may not have that much."""
        assert self.role is Role.FOLLOWER
        moved = min(high_watermark, self.log_end)
        if moved <= self.high_watermark:
            return False
        self.high_watermark = moved
        return True

    def look_again(self, now_ms: int) -> bool:
        """Settings are other ones, time has passed, a change of the ISR was refused: may the high watermark move?"""
        return self.role is Role.LEADER and self._maybe_move(now_ms)

    # -- followers -------------------------------------------------------------------------------------

    def on_ack(
        self, broker_id: int, *, log_end: int, counted_end: int, may_join: bool, now_ms: int
    ) -> bool:
        """A follower tells its ends; unknown ones (a reassignment took it away) are not listened to."""
        replica = self.replicas.get(broker_id)
        if replica is None:
            return False
        replica.on_ack(log_end, counted_end, self.log_end, now_ms)
        replica.may_join = may_join
        return self._maybe_move(now_ms)

    def on_may_join(self, broker_id: int, now_ms: int, *, may_join: bool) -> bool:
        """Whether it counts as alive. One that does not is not waited for any more (`_lowest_end`).

        1. node 1 stops, and leaves the ISR: what it lacks waits for it still, as it may come in again   2. its stream
        ends. With nothing written after that, nobody would look at the high watermark again.
        """
        self.replicas[broker_id].may_join = may_join
        return self.role is Role.LEADER and self._maybe_move(now_ms)

    def on_stuck(self, broker_id: int) -> None:
        """A follower says that it can't go on: it is not caught up, whatever it had a moment ago."""
        replica = self.replicas.get(broker_id)
        if replica is not None:
            replica.caught_up_ms = replica.marked_ms = NEVER_MS
            replica.heard = Heard(NEVER_MS)

    def low_watermark(self, log_start: int) -> int:
        """What every replica that is alive has deleted (Kafka's lowWatermarkIfLeader); `log_start` is our own.

        One that may be elected counts in any case: a full disk, or a leader that can't be read, keeps it from following.
        In a new epoch nobody has been heard yet: those in sync are waited for until they leave. Whoever was proposed may be in sync
        already, for all that is known here.
        """
        isr = self.isr.maximal_isr
        return min(
            (
                each.log_start
                for broker_id, each in self.replicas.items()
                if each.may_join or broker_id in isr or broker_id in self.elr
            ),
            default=log_start,
        )

    def joiner(self, log_start: int = -1, waiting: Collection[object] = ()) -> int | None:
        """A follower to propose for the ISR: it has all that is committed, and reached this epoch, and has deleted what
        was said to be deleted while it was away. `log_start` is our own. Not the one that was proposed last, if there is another,
        and none of `waiting`: those were refused.
        """
        if self.role is not Role.LEADER or self.isr.is_in_flight:
            return None
        isr, again = self.isr.isr, None
        for broker_id, replica in self.replicas.items():
            end = replica.counted_end
            if (
                broker_id not in isr
                and broker_id not in self.offline
                and broker_id not in waiting
                and replica.may_join
                and end >= self.high_watermark
                and end >= self.epoch_start_offset
                and replica.log_start >= log_start
            ):
                if broker_id != self.proposed:
                    return broker_id
                again = broker_id
        return again

    def tick(self, now_ms: int, waiting: Collection[object] = ()) -> Proposal | None:
        """Followers that have not caught up for too long leave the ISR; not just those who are one of `waiting`: they were refused."""
        if self.role is not Role.LEADER or self.isr.is_in_flight:
            return None
        leaving = frozenset(
            broker_id
            for broker_id in self.isr.isr
            if broker_id != self.broker_id and not self._keeps_up(broker_id, now_ms)
        )
        return self.isr.shrink(leaving) if leaving and leaving not in waiting else None

    def _keeps_up(self, broker_id: int, now_ms: int) -> bool:
        replica = self.replicas.get(broker_id)
        return replica is not None and replica.is_caught_up(self.log_end, now_ms, self.lag_ms_max)

    @property
    def is_everywhere(self) -> bool:
        """Whether every replica is in sync, as far as this one has heard: then each has all that is committed."""
        return bool(self.assigned) and self.assigned <= self.isr.isr

    # -- the high watermark ----------------------------------------------------------------------------

    @property
    def counted_end(self) -> int:
        """How far this replica has the log for certain, by its own flush.policy: what it has synced, or all of it.

        Each replica says it of itself. A leader that waited for syncs of which a follower of another policy tells
        nothing would wait for good, and one that waited for none would count what a power cut takes from a follower
        that then says it lacks nothing.
        """
        return self.durable_end if self.sync_counts else self.log_end

    @property
    def effective_min_isr(self) -> int:
        """Kafka: a minimum above the number of replicas means all of them.

        Those that a move is adding don't count, as they don't for the controller: a topic of one replica would not
        take a write until it has moved.
        """
        return min(self.min_insync_replicas, self.settled_replicas)

    @property
    def is_under_min_isr(self) -> bool:
        return self.role is Role.LEADER and len(self.isr.isr) < self.effective_min_isr

    def _maybe_move(self, now_ms: int) -> bool:
        end = self.counted_end
        if end <= self.high_watermark:
            return False
        if self.replicas or len(self.isr.isr) != 1:
            if self.is_under_min_isr:
                return False
            end = self._lowest_end(end, now_ms)
            if end <= self.high_watermark:
                return False
        self.high_watermark = end
        return True

    def _lowest_end(self, end: int, now_ms: int) -> int:
        maximal = self.isr.maximal_isr
        for broker_id, replica in self.replicas.items():
            theirs = replica.counted_end
            # One that keeps pace but is not in yet is waited for: under a steady load it would never reach
            # a high watermark that runs with the leader's end (Kafka's shouldWaitForReplicaToJoinIsr).
            if theirs < end and (
                broker_id in maximal
                or (
                    replica.may_join and replica.is_caught_up(self.log_end, now_ms, self.lag_ms_max)
                )
            ):
                end = theirs
        return end

    def last_stable_offset(self, first_unstable_offset: int | None) -> int:
        if first_unstable_offset is None or first_unstable_offset >= self.high_watermark:
            return self.high_watermark
        return first_unstable_offset

    # -- what a request is answered --------------------------------------------------------------------

    def check_leader_epoch(self, leader_epoch: int) -> ErrorCode:
        """Does the client know the same leader? -1: it does not say."""
        if leader_epoch in (NO_EPOCH, self.leader_epoch):
            return ErrorCode.none
        if leader_epoch < self.leader_epoch:
            return ErrorCode.fenced_leader_epoch
        return ErrorCode.unknown_leader_epoch

    def check_append(self, required_acks: int) -> ErrorCode:
        if self.role is not Role.LEADER:
            return ErrorCode.not_leader_or_follower
        if required_acks == ALL_REPLICAS and self.is_under_min_isr:
            return ErrorCode.not_enough_replicas
        return ErrorCode.none

    def outcome_of(self, offset: int) -> ErrorCode | None:
        """What a waiting acks=all write is told; None: it is not committed yet."""
        if self.role is not Role.LEADER:
            return ErrorCode.not_leader_or_follower
        if self.high_watermark <= offset:
            return None
        if len(self.isr.maximal_isr) < self.effective_min_isr:
            return ErrorCode.not_enough_replicas_after_append
        return ErrorCode.none
