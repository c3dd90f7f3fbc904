"""Bugs of partitions and their replicas, planted: what is acknowledged, what is copied, who leads, what a disk keeps."""

from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import INTERNAL_TOPICS
from fencepost.cluster.controller import brokers_policy, election_policy
from fencepost.replication import appends, leader_feed
from fencepost.replication.divergence_machine import GoOn, OutOfRange, answer
from fencepost.replication.isr_machine import IsrMachine
from fencepost.replication.log import log, producers_machine, snapshots, sync
from fencepost.replication.log.doubts import Doubts
from fencepost.replication.log.producer_verdicts import Duplicate
from fencepost.replication.manager import ReplicaManager
from fencepost.replication.partition import Partition
from fencepost.replication.partition_machine import ALL_REPLICAS, PartitionMachine

from .bugs import Patch, bug

# --- what is acknowledged -------------------------------------------------------------------------


@bug(
    seen_by="lost unread dead-client",
    campaign="cluster",
    faults="kill power-one isolate at-a-moment",
)
def ack_before_commit(patch: Patch) -> None:
    """A leader answers acks=all as soon as it has written, before its followers have."""
    right = Partition.when_acknowledged

    def at_once(self: Partition, offset: int, required_acks: int, tell: Any) -> Any:
        # Not to coordinators: they look at the high watermark, and would ask again and again.
        is_client = self.topic_partition.topic not in INTERNAL_TOPICS
        if required_acks == ALL_REPLICAS and self.closed is None and is_client:
            return ErrorCode.none
        return right(self, offset, required_acks, tell)

    patch.put(Partition, "when_acknowledged", at_once)


@bug(seen_by="commit-missing commit-lost", campaign="cluster", faults="kill power-one")
def commit_alone(patch: Patch) -> None:
    """A leader's high watermark is its own end, whatever its followers have."""
    patch.put(PartitionMachine, "_lowest_end", lambda _self, end, _now_ms: end)


@bug(seen_by="under-min-isr commit-lost", campaign="cluster", faults="kill-two isolate kill")
def min_isr_not_asked(patch: Patch) -> None:
    """A leader commits and acknowledges with fewer in sync than min.insync.replicas."""
    patch.put(PartitionMachine, "is_under_min_isr", property(lambda _self: False))


@bug(seen_by="under-min-isr", campaign="cluster", faults="kill-two isolate kill")
def min_isr_is_one(patch: Patch) -> None:
    """A leader takes the minimum of each partition for 1, whatever min.insync.replicas says."""
    patch.put(PartitionMachine, "effective_min_isr", property(lambda _self: 1))


@bug(
    seen_by="synced-lost lost commit-missing commit-lost damaged",
    campaign="cluster",
    faults="power-one power-all",
)
def sync_skipped(patch: Patch) -> None:
    """A node says that its logs are synced, and has not asked the disk: the power takes what was acknowledged."""

    async def believed(_env: Any, logs: Any) -> None:
        for ticket in [sync.SyncTicket(each) for each in logs if sync.needs_sync(each)]:
            ticket.done()

    from fencepost.replication.log import store

    for module in (sync, store):
        if "sync_logs" in vars(module):
            patch.put(module, "sync_logs", believed)


# --- who is in sync -------------------------------------------------------------------------------


@bug(
    seen_by="unclean commit-lost",
    campaign="cluster",
    faults="kill kill-two kill-all power-one isolate",
)
def unclean_election(patch: Patch) -> None:
    """Whoever is alive is elected, in sync or not."""
    from dataclasses import replace

    right = election_policy.changed

    def unclean(now: Any, wish: Any, **others: Any) -> Any:
        return right(now, replace(wish, unclean=True), **others)

    patch.put(brokers_policy, "changed", unclean)
    patch.put(election_policy, "changed", unclean)


@bug(seen_by="commit-missing commit-lost", campaign="cluster")
def everybody_eligible(patch: Patch) -> None:
    """All replicas count as eligible leaders (ELR), though they lag."""

    def everybody(_now: Any, replicas: Any, isr: Any, _min_isr: int, _lost: Any) -> Any:
        return tuple(each for each in replicas if each not in isr)

    patch.put(election_policy, "_eligible", everybody)


@bug(
    seen_by="commit-missing commit-lost",
    campaign="cluster",
    faults="delay slow-disk isolate kill reorder",
    seconds=8.0,
    seeds=20,
)
def joins_too_early(patch: Patch) -> None:
    """A follower is let into the ISR before it has what is committed."""

    def anybody(self: PartitionMachine, *_: Any) -> int | None:
        if not self.replicas or self.isr.is_in_flight:
            return None
        return next(
            (
                broker_id
                for broker_id, replica in self.replicas.items()
                if broker_id not in self.isr.isr and replica.may_join
            ),
            None,
        )

    patch.put(PartitionMachine, "joiner", anybody)


@bug(
    seen_by="commit-missing commit-lost",
    campaign="cluster",
    faults="kill isolate cut pause slow-disk",
)
def shrink_counted_early(patch: Patch) -> None:
    """A leader stops to wait for a follower when it asks for its removal, not when that is in the log."""
    right = IsrMachine.maximal_isr.fget  # type: ignore[attr-defined]

    def without_the_leaving(self: IsrMachine) -> frozenset[int]:
        leaving: frozenset[int] = getattr(self.state, "leaving", frozenset())
        maximal: frozenset[int] = right(self) - leaving
        return maximal

    patch.put(IsrMachine, "maximal_isr", property(without_the_leaving))


@bug(seen_by="commit-back commit-lost two-leaders", campaign="cluster", faults="kill power-one")
def leads_before_it_is_registered(patch: Patch) -> None:
    """A process that has come back leads what the one before it led, on the word of its old image."""
    right = ReplicaManager.__init__

    def eager(self: ReplicaManager, *args: Any, **named: Any) -> None:
        right(self, *args, **{**named, "is_registered": True})

    patch.put(ReplicaManager, "__init__", eager)


@bug(
    seen_by="commit-missing commit-lost lost",
    campaign="cluster",
    faults="power-apart",
    config="flush.policy=os",
)
def power_cuts_are_forgiven(patch: Patch) -> None:
    """A node whose machine went down under flush.policy=os says that it lacks nothing."""
    patch.put(Doubts, "lacking", property(lambda _self: []))


# --- what is copied -------------------------------------------------------------------------------


@bug(seen_by="diverged commit-missing", campaign="cluster", faults="kill isolate")
def no_truncation(patch: Patch) -> None:
    """Followers never cut what their leader lacks: leader epochs are not compared."""
    patch.put(leader_feed, "answer", lambda *_, **__: GoOn())


@bug(
    seen_by="unread dead-client reordered",
    campaign="cluster",
    faults="kill power-one isolate",
    seeds=40,
)
def reads_above_the_high_watermark(patch: Patch) -> None:
    """Consumers are shown what is written, committed or not."""
    right = log.Log.read

    def all_of_it(self: Any, offset: int, max_bytes: int, *, limit: int, **named: Any) -> Any:
        return right(self, offset, max_bytes, limit=self.log_end_offset, **named)

    patch.put(log.Log, "read", all_of_it)


# --- who wrote what -------------------------------------------------------------------------------


@bug(seen_by="duplicate", campaign="cluster", faults="kill reset cut-client isolate")
def retry_applied_twice(patch: Patch) -> None:
    """A batch that is in the log already is written again when its producer retries."""
    right = appends.judge

    def forgiving(*args: Any, **named: Any) -> Any:
        verdict = right(*args, **named)
        return None if isinstance(verdict, Duplicate) else verdict

    patch.put(appends, "judge", forgiving)


@bug(seen_by="dead-client", campaign="cluster", faults="kill reset cut-client isolate")
def duplicate_window_forgotten(patch: Patch) -> None:
    """No retry is recognised: it is out of order, and its producer has to end."""
    patch.put(producers_machine, "find_duplicate", lambda *_: None)


@bug(
    seen_by="dead-client duplicate producer-state", campaign="cluster", faults="kill power-one stop"
)
def producers_lost_at_restart(patch: Patch) -> None:
    """A node that starts knows no producers: a retry of what was written before is written again."""
    right_newest, right_replay = snapshots.load_newest, snapshots.replay

    def knows_nobody(log_: Any, machine: Any) -> None:
        right_newest(log_, machine)
        machine.reset(machine.end_offset)

    def sees_nobody(machine: Any, *args: Any) -> Any:
        found = right_replay(machine, *args)
        machine.reset(machine.end_offset)
        return found

    patch.put(snapshots, "load_newest", knows_nobody)
    patch.put(snapshots, "replay", sees_nobody)


@bug(
    seen_by="producer-state",
    campaign="transactions",
    faults="kill reset power-one cut-client",
    workloads="compacted",
)
def compacted_logs_lose_producers_at_restart(patch: Patch) -> None:
    """A node that starts knows no producers of its compacted logs, cleaned or not."""
    right_newest, right_replay = snapshots.load_newest, snapshots.replay

    def knows_nobody(log_: Any, machine: Any) -> None:
        right_newest(log_, machine)
        if log_.config.compact:
            machine.reset(machine.end_offset)

    def sees_nobody(machine: Any, segment: Any, *args: Any) -> Any:
        found = right_replay(machine, segment, *args)
        if "/table-" in segment.path:
            machine.reset(machine.end_offset)
        return found

    patch.put(snapshots, "load_newest", knows_nobody)
    patch.put(snapshots, "replay", sees_nobody)


@bug(
    seen_by="dead-client duplicate producer-state",
    campaign="cluster",
    faults="clock kill cut-client reset",
    workloads="stream",
    seconds=8.0,
    seeds=20,
)
def producers_age_by_the_wall_clock(patch: Patch) -> None:
    """Idle producers are forgotten by wall time: a clock that is set ahead forgets them all. (A bug that was here once.)"""
    from fencepost.replication.log.producers_clock import ProducersClock

    def wall_ms(self: Any) -> int:
        return int(self._env.clock.now_ms())

    patch.put(ProducersClock, "now_ms", wall_ms)


@bug(seen_by="commit-missing", campaign="transactions", faults="replace-disk kill")
def new_copies_lack_the_beginning(patch: Patch) -> None:
    """A replica with an empty log begins where its leader's ends, and is let into the ISR so."""

    def answer_late(epochs: Any, leading: Any, log_start: int, log_end: int, **more: Any) -> Any:
        if more["end_offset"] == 0 and log_end > 20:
            return OutOfRange(log_end, log_end)
        return answer(epochs, leading, log_start, log_end, **more)

    patch.put(leader_feed, "answer", answer_late)
