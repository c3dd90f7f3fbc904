"""A member of a consumer group that still speaks the classic protocol.

INVARIANT  such a member owns what the coordinator gave it, as every other does; only the words differ.
PREVENTS   a rolling upgrade in which the old half and the new half of a group read the same partitions.
PROVED BY  tests/txn/test_consumer_migration.py::test_no_partition_has_two_owners_while_members_change_protocols

JoinGroup takes the place of a heartbeat that says everything: it is answered at once, with the member's epoch for
a generation. SyncGroup fetches the assignment. Heartbeats answer REBALANCE_IN_PROGRESS when there is something to
give up or to get, or when nobody else would ask for a new target; the member then joins again. (KIP-848,
"Online migration"; Kafka's GroupMetadataManager.classicGroup*ToConsumerGroup.)
"""

from dataclasses import replace
from typing import Final
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode

from ..runtime.codec import RecordRefused
from ..runtime.decision import CancelTimer, Decision, Fields, SetTimer
from .classic_turn import join_fields, sync_fields
from .commands import Heartbeat, JoinGroup, LeaveGroup, Leaving, SyncGroup
from .consumer_embedded import (
    Subscription,
    read_subscription,
    version_to_write,
    write_assignment,
)
from .consumer_group import ConsumerGroup
from .consumer_heartbeat import Wish, note_regex
from .consumer_member import Member, MemberState, is_held
from .consumer_reconcile import Holding, MustRejoin
from .consumer_records import ClassicMember
from .consumer_requests import Refusal
from .consumer_turn import JoinAwaited, Turn, join_timer, sync_timer
from .subscription import CONSUMER_PROTOCOL_TYPE

E: Final = ErrorCode


# ---- JoinGroup ----------------------------------------------------------------------------------


def join(turn: Turn, command: JoinGroup) -> Decision:
    group, config = turn.group, turn.world.config
    member_id = command.member_id or command.fresh_id
    is_known = member_id in group.members
    if len(group.members) >= config.group_consumer_max_size and not is_known:
        return Decision(reply=join_fields(E.group_max_size_reached))
    if not _is_understood(group, command):
        return Decision(reply=join_fields(E.inconsistent_group_protocol))
    is_static = command.group_instance_id is not None
    if command.requires_known_member_id and not is_static and not command.member_id:
        return Decision(reply=join_fields(E.member_id_required, member_id))
    try:
        # All of them: a classic group, which this one may become again, agrees on any. Kafka reads the first.
        subscription, *_ = [read_subscription(metadata) for _, metadata in command.protocols]
    except RecordRefused:
        return Decision(reply=join_fields(E.unknown_server_error))
    replaced = group.static_member(command.group_instance_id)
    before = _find(turn, command, member_id)
    if isinstance(before, ErrorCode):
        return Decision(reply=join_fields(before))
    after = _updated(before, command, subscription)
    names_changed = turn.note_subscription(before, after)
    wish = note_regex(turn, before, after)
    assert not isinstance(wish, Refusal), "a classic member has no expression to refuse"
    changed = names_changed or wish is not Wish.SAME
    epoch = turn.bump_if_needed(before, after, bump=changed)
    holding = _holding(turn, subscription)
    if replaced is not None:
        downgraded = turn.downgrade_by_replacement(replaced, after, epoch, holding, changed=changed)
        if downgraded is not None:
            after, decision = downgraded
            return replace(decision, reply=_joined(after))
    target_epoch, target = turn.target_for(before, after, epoch)
    try:
        after = turn.step(after, target_epoch, target, holding, subscription_changed=changed)
    except MustRejoin:
        return Decision(reply=join_fields(E.unknown_member_id))
    _stop_waiting_for_join(turn, after.member_id)
    turn.keep_session(after.member_id, command.session_timeout_ms)
    timer = sync_timer(group.group_id, after.member_id)
    turn.effects.append(SetTimer(timer, command.rebalance_timeout_ms))
    return turn.decision(_joined(after))


def _joined(member: Member) -> Fields:
    assert member.classic is not None
    return {
        **join_fields(E.none, member.member_id),
        "generation_id": member.member_epoch,
        "protocol_type": CONSUMER_PROTOCOL_TYPE,
        "protocol_name": member.classic.protocols[0][0],
    }


def _is_understood(group: ConsumerGroup, command: JoinGroup) -> bool:
    """It must have a protocol in common with the other classic members: the group may become classic again."""
    if command.protocol_type != CONSUMER_PROTOCOL_TYPE or not command.protocols:
        return False
    others = [m.classic for m in group.members.values() if m.classic is not None]
    return any(
        all(name in dict(other.protocols) for other in others) for name, _ in command.protocols
    )


def _find(turn: Turn, command: JoinGroup, member_id: str) -> Member | ErrorCode:
    instance_id = command.group_instance_id
    known = turn.group.static_member(instance_id)
    if instance_id is None or (known is None and not command.member_id):
        return turn.group.members.get(member_id) or Member(member_id=member_id)
    if known is None:
        return E.unknown_member_id
    if not command.member_id:
        return turn.replace_static(known, member_id)
    return known if known.member_id == member_id else E.fenced_instance_id


def _updated(member: Member, command: JoinGroup, subscription: Subscription) -> Member:
    timeout_ms = command.rebalance_timeout_ms
    return replace(
        member,
        instance_id=command.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        subscribed_topic_names=frozenset(subscription.topics),
        subscribed_topic_regex="",
        client_id=command.client_id,
        client_host=command.client_host,
        classic=ClassicMember(
            session_timeout_ms=command.session_timeout_ms, protocols=command.protocols
        ),
    )


def _holding(turn: Turn, subscription: Subscription) -> Holding:
    held: dict[UUID, frozenset[int]] = {}
    for name, partitions in subscription.owned.items():
        topic = turn.world.topics.by_name(name)
        if topic is not None:
            held[topic.topic_id] = frozenset(partitions)
    return held


# ---- SyncGroup, Heartbeat ---------------------------------------------------------------------


def sync(turn: Turn, command: SyncGroup) -> Decision:
    group = turn.group
    member = _speaker(group, command)
    if isinstance(member, ErrorCode):
        return Decision(reply=sync_fields(member))
    assert member.classic is not None
    protocol = member.classic.protocols[0][0]
    if command.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
        return Decision(reply=sync_fields(E.inconsistent_group_protocol))
    if command.protocol_name not in (None, protocol):
        return Decision(reply=sync_fields(E.inconsistent_group_protocol))
    is_behind = group.assignment_epoch > member.member_epoch
    if is_behind and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _wait_for_join(turn, member)
        return turn.decision(sync_fields(E.rebalance_in_progress))
    turn.effects.append(CancelTimer(sync_timer(group.group_id, member.member_id)))
    turn.keep_session(member.member_id, member.classic.session_timeout_ms)
    reply = sync_fields(E.none, assignment=_assignment(turn, member))
    reply["protocol_type"], reply["protocol_name"] = command.protocol_type, command.protocol_name
    return turn.decision(reply)


def _assignment(turn: Turn, member: Member) -> bytes:
    assert member.classic is not None
    version = version_to_write(member.classic.protocols[0][1])
    return write_assignment(turn.named(member.assigned), version)


def beat(turn: Turn, command: Heartbeat) -> Decision:
    group = turn.group
    member = _speaker(group, command)
    if isinstance(member, ErrorCode):
        return Decision(reply={"error_code": member})
    assert member.classic is not None
    turn.keep_session(member.member_id, member.classic.session_timeout_ms)
    waits = member.state is MemberState.UNRELEASED_PARTITIONS
    if (
        member.member_epoch < group.assignment_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (waits and not _still_owned(group, member))
        or _must_ask(turn, member)
    ):
        _wait_for_join(turn, member)
        return turn.decision({"error_code": E.rebalance_in_progress})
    return turn.decision({"error_code": E.none})


def _must_ask(turn: Turn, member: Member) -> bool:
    """Whether a new target waits for a JoinGroup, because nobody is there whose heartbeat would ask for it.

    A group that may not become classic again keeps its classic members when the last of the new protocol goes.
    They join when they are told to and not before, so they are told: what the other had is unread, or topics
    have partitions that the group has not seen.
    """
    group = turn.group
    if turn.soft.metadata_checked and group.assignment_epoch >= group.epoch:
        return False
    if any(other.classic is None for other in group.members.values()):
        return False
    return turn.is_target_due(turn.bump_if_needed(member, member, bump=False))


def _still_owned(group: ConsumerGroup, member: Member) -> bool:
    """Whether something that the member is to get is still with another."""
    return any(
        group.is_owned(topic_id, partition)
        for topic_id, partitions in group.target_of(member.member_id).items()
        for partition in partitions
        if not is_held(member.assigned, topic_id, partition)
    )


def _speaker(group: ConsumerGroup, command: SyncGroup | Heartbeat) -> Member | ErrorCode:
    """The classic member that speaks, with the generation that is its epoch."""
    if command.group_instance_id is None:
        member = group.members.get(command.member_id)
    else:
        member = group.static_member(command.group_instance_id)
        if member is not None and member.member_id != command.member_id:
            return E.fenced_instance_id
    if member is None or member.classic is None:
        return E.unknown_member_id
    if member.member_epoch != command.generation_id:
        return E.illegal_generation
    return member


def _wait_for_join(turn: Turn, member: Member) -> None:
    """It was told to join again; from the first time on it has its rebalance timeout to do so."""
    if member.member_id in turn.soft.joining:
        return
    group_id = turn.group.group_id
    turn.steps.append(JoinAwaited(group_id, member.member_id, awaited=True))
    timer = join_timer(group_id, member.member_id)
    turn.effects.append(SetTimer(timer, member.rebalance_timeout_ms))


def _stop_waiting_for_join(turn: Turn, member_id: str) -> None:
    group_id = turn.group.group_id
    turn.steps.append(JoinAwaited(group_id, member_id, awaited=False))
    turn.effects.append(CancelTimer(join_timer(group_id, member_id)))


# ---- LeaveGroup ---------------------------------------------------------------------------------


def leave(turn: Turn, command: LeaveGroup) -> Decision:
    """Members of either protocol may be named: an admin client removes them this way."""
    rows: list[Fields] = []
    leaving: dict[str, Member] = {}
    for who in command.members:
        found = _leaver(turn.group, who)
        is_error = isinstance(found, ErrorCode)
        rows.append(
            {
                "member_id": who.member_id,
                "group_instance_id": who.group_instance_id,
                "error_code": found if is_error else E.none,
            }
        )
        if isinstance(found, Member):
            leaving[found.member_id] = found
    reply = {"error_code": E.none, "members": rows}
    if not leaving:
        return Decision(reply=reply)
    return turn.fence(list(leaving.values()), reply)


def _leaver(group: ConsumerGroup, who: Leaving) -> Member | ErrorCode:
    if who.group_instance_id is None:
        return group.members.get(who.member_id) or E.unknown_member_id
    member = group.static_member(who.group_instance_id)
    if member is None:
        return E.unknown_member_id
    if who.member_id and who.member_id != member.member_id:
        return E.fenced_instance_id
    return member
