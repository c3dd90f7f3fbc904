"""Bugs of consumer groups, planted: their positions, in transactions and out of them, and who may store them."""

from dataclasses import replace
from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.groups import consumer_machine, consumer_reconcile
from fencepost.txn.groups.classic_group import ClassicGroup
from fencepost.txn.groups.commands import OffsetFetch
from fencepost.txn.groups.config import GroupConfig
from fencepost.txn.groups.offsets_machine import OffsetsMachine
from fencepost.txn.groups.service import GroupService
from fencepost.txn.runtime.loader import Loader
from fencepost.txn.runtime.shard import Shard

from .bugs import Patch, bug


@bug(
    seen_by="torn-offset doubled left-out torn",
    campaign="transactions",
    faults="reset kill-coordinator",
    workloads="append",
)
def offsets_outside_the_transaction(patch: Patch) -> None:
    """TxnOffsetCommit stores positions at once, whatever becomes of the transaction."""
    right = OffsetsMachine.commit_in_transaction

    def at_once(self: OffsetsMachine, command: Any, now_ms: int) -> Any:
        return replace(right(self, command, now_ms), producer=None)

    patch.put(OffsetsMachine, "commit_in_transaction", at_once)


@bug(
    seen_by="marker-undecided marker-late torn-offset",
    campaign="transactions",
    faults="reset",
    workloads="append",
)
def offsets_of_aborted_count(patch: Patch) -> None:
    """Positions that were stored in a transaction count, though it was aborted."""
    right = GroupService.end_transaction

    async def committing(self: GroupService, *place: Any, commit: bool, **others: Any) -> Any:
        del commit
        return await right(self, *place, commit=True, **others)

    patch.put(GroupService, "end_transaction", committing)


@bug(
    seen_by="doubled torn-offset",
    campaign="transactions",
    faults="pause-client",
    workloads="pipeline",
    seconds=12.0,
    seeds=20,
)
def generation_not_checked(patch: Patch) -> None:
    """A worker whose partitions the group has given to another stores positions for them all the same (KIP-447)."""
    patch.put(ClassicGroup, "refuse_commit", lambda *_, **__: ErrorCode.none)
    patch.put(ClassicGroup, "refuse_older", lambda *_, **__: ErrorCode.none)


@bug(
    seen_by="doubled torn-offset",
    campaign="transactions",
    faults="pause-client at-a-decision",
    workloads="pipeline",
    seconds=12.0,
    seeds=40,
)
def undecided_positions_are_told(patch: Patch) -> None:
    """OffsetFetch tells the position of before, though a transaction that may move it is under way (require_stable)."""
    right = OffsetsMachine.fetch

    def at_once(self: OffsetsMachine, command: Any) -> Any:
        return right(self, replace(command, require_stable=False))

    patch.put(OffsetsMachine, "fetch", at_once)


@bug(
    seen_by="group-repeat group-skip torn-offset",
    campaign="transactions",
    faults="pause-client kill reset",
    workloads="consumers",
    seconds=12.0,
    seeds=20,
)
def members_of_before_store_positions(patch: Patch) -> None:
    """A member of the new protocol whose partitions the group has given to another stores positions for them all the same (KIP-848)."""
    patch.put(consumer_machine, "refuse_commit", lambda *_: ErrorCode.none)


@bug(
    seen_by="held-by-two",
    campaign="transactions",
    faults="pause-client kill reset",
    workloads="consumers",
    seconds=12.0,
    seeds=20,
)
def partitions_are_given_before_they_are_given_up(patch: Patch) -> None:
    """A member of the new protocol is given a partition that another was only told to give up."""
    patch.put(consumer_reconcile, "_may_hold", lambda *_: False)


@bug(seen_by="offset-back", campaign="cluster", faults="kill stop power-one", seeds=30)
def positions_lost_at_failover(patch: Patch) -> None:
    """A coordinator that takes over reads only the first half of its log."""
    right = Loader._replay

    async def half(self: Loader, name: str, replay: Any, log: Any, end: Any, wanted: Any) -> Any:
        start = log.log_start_offset
        return await right(self, name, replay, log, type(end)(start + (end - start) // 2), wanted)

    patch.put(Loader, "_replay", half)


@bug(
    seen_by="offset-back phantom",
    campaign="cluster",
    faults="unheard-write",
    seconds=8.0,
)
def uncommitted_positions_are_told(patch: Patch) -> None:
    """OffsetFetch tells a position as soon as it is written: the next coordinator may never have heard of it."""
    right = Shard.execute

    async def at_once(self: Shard, command: Any) -> Any:
        if isinstance(command, OffsetFetch) and not self.is_lost and self._unread is None:
            return self.machine.decide(command, self._env.clock.now_ms()).reply
        return await right(self, command)

    patch.put(Shard, "execute", at_once)


@bug(
    seen_by="offset-back",
    campaign="cluster",
    faults="kill stop",
    config="offsets.retention.check.interval.ms=200",
)
def positions_expire_early(patch: Patch) -> None:
    """A group's position expires a second after it was committed, whatever its retention."""
    patch.put(GroupConfig, "offsets_retention_ms", property(lambda _: 1_000))
