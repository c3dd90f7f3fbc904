"""JoinGroup to a classic group: who may come in, and what it sets in motion.

The rows are those of GroupMetadataManager.classicGroupJoin* in Kafka 4.3; the tables in
tests/txn/test_classic_join.py go through them one by one.
"""

from typing import Final

from fencepost.cluster.base.errors import ErrorCode

from ..runtime.decision import Answer, Decision, Parked, SetTimer
from .classic_group import NOT_READ, ClassicGroup, Member, Phase
from .classic_turn import Turn, join_fields, session_timer, sync_fields
from .commands import JoinGroup
from .config import GroupConfig

P = Phase
# Ids that were handed out and not used. Clients that ask and never join would fill memory, for a session each, and slow
# down whatever their group does: it is copied for each decision. Kafka knows no bound.
PENDING_MAX: Final = 10_000


def decide_join(
    group: ClassicGroup, command: JoinGroup, config: GroupConfig, now_ms: int, *, is_new_group: bool
) -> Decision:
    """`group` is an empty one that nobody knows yet when `is_new_group`; it becomes known by being logged."""
    turn = Turn(group, config, now_ms)
    if not _has_room(group, command.member_id, config):
        return _turn_away(turn, command)
    refusal = _refusal(group, command)
    if refusal is not ErrorCode.none:
        return Decision(reply=join_fields(refusal, command.member_id))
    reply: object
    if command.member_id:
        reply = _join_known(turn, command)
    else:
        reply = _join_unknown(turn, command)
    if is_new_group and not turn.records:
        # Kafka logs a group before it answers anyone about it: DescribeGroups must find it after a restart.
        turn.records.append(ClassicGroup(command.group_id, now_ms).record())
    return turn.decision(reply)


def _refusal(group: ClassicGroup, command: JoinGroup) -> ErrorCode:
    if not group.supports(command.protocol_type, command.protocols):
        return ErrorCode.inconsistent_group_protocol
    if not command.member_id or command.member_id in group.pending_joins:
        return ErrorCode.none
    return group.refuse_member(command.member_id, command.group_instance_id)


def _has_room(group: ClassicGroup, member_id: str, config: GroupConfig) -> bool:
    """While a group gathers, those who have come count, so that a limit made smaller throws out the last."""
    member = group.members.get(member_id)
    if group.phase is P.EMPTY:
        return True
    if group.phase is P.PREPARING_REBALANCE:
        has_come = member is not None and member.join_ticket is not None
        return has_come or group.awaiting_joins < config.group_max_size
    return member is not None or len(group.members) < config.group_max_size


def _turn_away(turn: Turn, command: JoinGroup) -> Decision:
    """The group is full. A member that is told so has lost its place."""
    reply = join_fields(ErrorCode.group_max_size_reached)
    if not command.member_id:
        return Decision(reply=reply)
    turn.drop(command.member_id)
    turn.maybe_complete_join()
    return turn.decision(reply)


def _join_unknown(turn: Turn, command: JoinGroup) -> object:
    instance_id = command.group_instance_id
    prefix = command.client_id if instance_id is None else instance_id
    member_id = f"{prefix}-{command.fresh_id}"
    if instance_id is not None:
        old_id = turn.group.static_members.get(instance_id)
        if old_id is not None:
            return _replace_static(turn, command, turn.group.members[old_id], member_id)
        return _add(turn, command, member_id)
    if not command.requires_known_member_id:
        return _add(turn, command, member_id)
    # KIP-394: the client must know its id before it counts, or each retry would leave a ghost behind.
    pending = turn.group.pending_joins
    if len(pending) >= PENDING_MAX:
        turn.drop(next(iter(pending)))  # should it join after all, it is told to ask for an id anew
    pending[member_id] = None
    key = session_timer(command.group_id, member_id)
    turn.effects.append(SetTimer(key, command.session_timeout_ms))
    return join_fields(ErrorCode.member_id_required, member_id)


def _add(turn: Turn, command: JoinGroup, member_id: str) -> Parked:
    group = turn.group
    if group.phase is P.PREPARING_REBALANCE and group.initial_wait is not None:
        group.new_member_added = True
    if not group.members:
        group.protocol_type = command.protocol_type
    member = Member(
        member_id=member_id,
        group_instance_id=command.group_instance_id,
        client_id=command.client_id,
        client_host=command.client_host,
        rebalance_timeout_ms=command.rebalance_timeout_ms,
        session_timeout_ms=command.session_timeout_ms,
        protocols=command.protocols,
        join_ticket=command.ticket,
        is_new=True,
    )
    group.put(member)
    # It can't send heartbeats before it knows its id, and we can't tell a dead client from one that waits.
    # Without an end to that, clients that give up and retry would fill the rebalance with ghosts.
    turn.keep_session(member, turn.config.new_member_join_timeout_ms)
    turn.rebalance_or_complete()
    return Parked(command.ticket)


def _join_known(turn: Turn, command: JoinGroup) -> object:
    group = turn.group
    if command.member_id in group.pending_joins:
        return _add(turn, command, command.member_id)
    member = group.members[command.member_id]
    is_leader = group.leader_id == member.member_id
    same = member.protocols == command.protocols
    # A leader that joins again wants a rebalance: it may have seen new partitions.
    if group.phase is P.PREPARING_REBALANCE or not same or (group.phase is P.STABLE and is_leader):
        _update(turn, command, member)
        turn.rebalance_or_complete()
        return Parked(command.ticket)
    # It lost the answer to its JoinGroup, or wants nothing new: here is the generation again.
    return join_fields(
        ErrorCode.none,
        member.member_id,
        group=group,
        with_members=is_leader and group.phase is P.COMPLETING_REBALANCE,
    )


def _update(turn: Turn, command: JoinGroup, member: Member) -> Member:
    if member.join_ticket is not None and member.join_ticket != command.ticket:
        # The member has given up on its earlier JoinGroup; whoever still waits for it must not for ever.
        turn.effects.append(
            Answer(member.join_ticket, join_fields(ErrorCode.rebalance_in_progress))
        )
    return turn.group.change(
        member,
        protocols=command.protocols,
        rebalance_timeout_ms=command.rebalance_timeout_ms,
        session_timeout_ms=command.session_timeout_ms,
        join_ticket=command.ticket,
    )


def _replace_static(turn: Turn, command: JoinGroup, old: Member, member_id: str) -> object:
    """KIP-345: the same instance is back under a new member id; the old one, if it lives, is fenced."""
    group = turn.group
    old_leader = group.leader_id
    fenced = ErrorCode.fenced_instance_id
    old = turn.answer_join(old, join_fields(fenced, old.member_id))
    old = turn.answer_sync(old, sync_fields(fenced))
    turn.end_session(old.member_id)
    new = Member(
        member_id=member_id,
        group_instance_id=command.group_instance_id,
        client_id=old.client_id,
        client_host=old.client_host,
        rebalance_timeout_ms=command.rebalance_timeout_ms,
        session_timeout_ms=command.session_timeout_ms,
        protocols=command.protocols,
        assignment=old.assignment,
        join_ticket=command.ticket,
    )
    group.replace_static(old, new)
    turn.keep_session(new, old.session_timeout_ms)
    if group.phase is P.PREPARING_REBALANCE:
        turn.maybe_complete_join()
        return Parked(command.ticket)
    if group.phase is P.COMPLETING_REBALANCE or group.selected_protocol() != group.protocol_name:
        # The leader may be assigning to the old id right now, or the agreed protocol no longer fits.
        turn.prepare_rebalance()
        return Parked(command.ticket)
    group.change(new, join_ticket=None)
    group.topics_in_use = NOT_READ
    turn.records.append(group.record())
    is_leader = group.leader_id == member_id
    if command.can_skip_assignment:
        return join_fields(
            ErrorCode.none,
            member_id,
            group=group,
            with_members=is_leader,
            skip_assignment=is_leader,
        )
    # An older client that is told it leads would assign anew; the id of the leader it replaces stops it.
    return join_fields(ErrorCode.none, member_id, group=group, leader=old_leader)
