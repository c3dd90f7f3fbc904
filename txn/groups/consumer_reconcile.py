"""One step of a member towards its target: first it gives up, then it gets.

INVARIANT  a partition is given to a member only when no other member owns it or may still hold it.
PREVENTS   two members reading one partition, each committing offsets over the other's.
PROVED BY  tests/txn/test_consumer_simulation.py::test_no_partition_has_two_owners_whatever_members_do

A member's epoch moves to that of the target only when it has given up what it must (KIP-848, "Member
Reconciliation"; Kafka's CurrentAssignmentBuilder). Until then it stays where it is and keeps the rest, so a slow
member holds back nobody but those who wait for its partitions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from .consumer_member import NO_EPOCHS, NOTHING_OWNED, Epochs, Member, MemberState, Owned, is_held

# What a member says it holds; None when it said nothing.
Holding = Mapping[UUID, frozenset[int]] | None
Target = Mapping[UUID, frozenset[int]]
EMPTY_TARGET: Final[Target] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """All that the next step of a member depends on."""

    target_epoch: int
    target: Target
    holding: Holding
    subscription_changed: bool
    is_subscribed: Callable[[UUID], bool]
    is_owned: Callable[[UUID, int], bool]  # by any member, this one too


class MustRejoin(ValueError):
    """The member is in a state that cannot be continued; it has to give up everything and join again."""


def reconcile(member: Member, facts: Reconciliation) -> Member:
    """The member after this heartbeat; itself when nothing changes."""
    match member.state:
        case MemberState.STABLE:
            if member.member_epoch != facts.target_epoch:
                return _next(member, facts, member.member_epoch)
            return _unsubscribe(member, facts) if facts.subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS:
            if not _may_hold(member.pending_revocation, facts.holding):
                return _next(member, facts, member.member_epoch)
            return _unsubscribe(member, facts) if facts.subscription_changed else member
        case MemberState.UNRELEASED_PARTITIONS:
            return _next(member, facts, member.member_epoch)
        case MemberState.UNKNOWN:
            if facts.holding is None or facts.holding:
                raise MustRejoin
            return _next(member, facts, facts.target_epoch)


def _may_hold(partitions: Owned, holding: Holding) -> bool:
    """Whether the member still holds any of these, as far as it said; silence means that it may."""
    if holding is None:
        return True
    return any(is_held(partitions, topic, p) for topic, held in holding.items() for p in held)


def _unsubscribe(member: Member, facts: Reconciliation) -> Member:
    """Take away, before there is a new target, what the member no longer wants: it may not keep it."""
    kept = {topic: held for topic, held in member.assigned.items() if facts.is_subscribed(topic)}
    if len(kept) == len(member.assigned):
        return member
    pending = {topic: dict(held) for topic, held in member.pending_revocation.items()}
    for topic, held in member.assigned.items():
        if topic not in kept:
            pending.setdefault(topic, {}).update(held)
    if pending and _may_hold(pending, facts.holding):
        return member.moved(member.member_epoch, MemberState.UNREVOKED_PARTITIONS, kept, pending)
    # What was pending before stays: whether it is given up is decided by the state, which stays too.
    return member.moved(member.member_epoch, member.state, kept, member.pending_revocation)


def _next(member: Member, facts: Reconciliation, epoch_until_revoked: int) -> Member:
    keeps: dict[UUID, Epochs] = {}
    gives_up: dict[UUID, Epochs] = {}
    gets: dict[UUID, set[int]] = {}
    waits = False
    for topic in sorted(facts.target.keys() | member.assigned.keys()):
        # Wishes reach the coordinator before the target follows them.
        wanted = facts.target.get(topic, frozenset()) if facts.is_subscribed(topic) else frozenset()
        has = member.assigned.get(topic, NO_EPOCHS)
        kept = {partition: epoch for partition, epoch in has.items() if partition in wanted}
        if kept:
            keeps[topic] = kept
        if len(kept) < len(has):
            gives_up[topic] = {p: epoch for p, epoch in has.items() if p not in wanted}
        free = {p for p in wanted if p not in has and _is_free(member, facts, topic, p)}
        if free:
            gets[topic] = free
        waits = waits or len(kept) + len(free) < len(wanted)
    if gives_up and _may_hold(gives_up, facts.holding):
        state = MemberState.UNREVOKED_PARTITIONS
        return member.moved(epoch_until_revoked, state, keeps, gives_up)
    for topic, partitions in gets.items():
        owned = dict(keeps.get(topic, NO_EPOCHS))
        owned.update((partition, facts.target_epoch) for partition in sorted(partitions))
        keeps[topic] = owned
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return member.moved(facts.target_epoch, state, keeps, NOTHING_OWNED)


def _is_free(member: Member, facts: Reconciliation, topic: UUID, partition: int) -> bool:
    # What it is itself about to give up it may as well keep.
    return not facts.is_owned(topic, partition) or is_held(
        member.pending_revocation, topic, partition
    )
