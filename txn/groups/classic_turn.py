"""One command's change to one classic group, worked out on a copy of it.

INVARIANT  a rebalance ends: every wait it begins has a timer, and every parked reply is answered or replaced.
PREVENTS   a consumer that hangs in poll() because a colleague died while both were joining.
PROVED BY  tests/txn/test_classic_model.py::test_every_parked_reply_is_answered_when_time_goes_on

A rebalance, step by step (KIP-62's protocol, GroupMetadataManager in Kafka 4.3):

    1. someone joins, leaves or changes: `prepare_rebalance`; syncs that wait are answered
       REBALANCE_IN_PROGRESS, members hear the same at their next heartbeat and join again
    2. all have joined, or the rebalance timeout is over: `complete_join` throws out who did not, raises the
       generation and answers every JoinGroup; the leader's answer lists the members
    3. the leader's SyncGroup brings the assignment: logged, then every SyncGroup is answered
    4. whoever does not sync within the rebalance timeout is thrown out: back to 1
"""

from collections.abc import Sequence
from typing import Any

from fencepost.cluster.base.errors import ErrorCode

from ..runtime.decision import (
    Answer,
    CancelTimer,
    Decision,
    Effect,
    Fields,
    LogRecord,
    SetTimer,
    TimerKey,
)
from .classic_group import GENERATION_MAX, NOT_READ, ClassicGroup, Member, Phase
from .config import GroupConfig

P = Phase


def session_timer(group_id: str, member_id: str) -> TimerKey:
    return ("session", group_id, member_id)


def join_timer(group_id: str) -> TimerKey:
    return ("join", group_id)


def sync_timer(group_id: str) -> TimerKey:
    return ("sync", group_id)


def join_fields(
    error: ErrorCode,
    member_id: str = "",
    *,
    group: ClassicGroup | None = None,
    leader: str | None = None,
    with_members: bool = False,
    skip_assignment: bool = False,
) -> Fields:
    """An answer to JoinGroup; about a generation when `group` is given."""
    fields: Fields = {
        "error_code": error,
        "generation_id": -1,
        "protocol_type": None,
        "protocol_name": None,
        "leader": "",
        "skip_assignment": skip_assignment,
        "member_id": member_id,
        "members": [],
    }
    if group is not None:
        fields["generation_id"] = group.generation_id
        fields["protocol_type"] = group.protocol_type
        fields["protocol_name"] = group.protocol_name
        fields["leader"] = leader or group.leader_id or ""
    if group is not None and with_members:
        fields["members"] = [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "metadata": member.metadata(group.protocol_name or ""),
            }
            for member in group.members.values()
        ]
    return fields


def sync_fields(
    error: ErrorCode, group: ClassicGroup | None = None, assignment: bytes = b""
) -> Fields:
    return {
        "error_code": error,
        "protocol_type": None if group is None else group.protocol_type,
        "protocol_name": None if group is None else group.protocol_name,
        "assignment": assignment,
    }


class GroupChanged:
    """A step: the group as it is from now on. Not logged: what must survive has a record beside it."""

    __slots__ = ("group",)

    def __init__(self, group: ClassicGroup) -> None:
        self.group = group


class Turn:
    """Collects the Decision while `group`, a copy, is changed. Used once."""

    __slots__ = ("config", "effects", "group", "now_ms", "records")

    def __init__(self, group: ClassicGroup, config: GroupConfig, now_ms: int) -> None:
        self.group = group.copy()
        self.config = config
        self.now_ms = now_ms
        self.records: list[LogRecord] = []
        self.effects: list[Effect] = []

    def decision(self, reply: Any = None) -> Decision:
        return Decision(
            reply=reply,
            records=tuple(self.records),
            steps=(GroupChanged(self.group),),
            effects=tuple(self.effects),
        )

    # -- members ---------------------------------------------------------------------------------

    def keep_session(self, member: Member, timeout_ms: int | None = None) -> None:
        key = session_timer(self.group.group_id, member.member_id)
        delay_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self.effects.append(SetTimer(key, delay_ms))

    def end_session(self, member_id: str) -> None:
        self.effects.append(CancelTimer(session_timer(self.group.group_id, member_id)))

    def answer_join(self, member: Member, fields: Fields) -> Member:
        if member.join_ticket is None:
            return member
        self.effects.append(Answer(member.join_ticket, fields))
        return self.group.change(member, join_ticket=None)

    def answer_sync(self, member: Member, fields: Fields) -> Member:
        if member.sync_ticket is None:
            return member
        self.effects.append(Answer(member.sync_ticket, fields))
        return self.group.change(member, sync_ticket=None)

    def drop(self, member_id: str, error: ErrorCode = ErrorCode.unknown_member_id) -> None:
        """Take a member out. What it waits for is answered, so that it may come back if it lives."""
        member = self.group.members.get(member_id)
        if member is not None:
            member = self.answer_join(member, join_fields(error))
            self.answer_sync(member, sync_fields(error))
        self.group.remove(member_id)
        self.end_session(member_id)

    # -- the rebalance ---------------------------------------------------------------------------

    def rebalance_or_complete(self) -> None:
        """Begin a rebalance; in one that is under way, see whether it is complete."""
        if self.group.phase is P.PREPARING_REBALANCE:
            self.maybe_complete_join()
        else:
            self.prepare_rebalance()

    def maybe_complete_join(self) -> None:
        """The first rebalance of a group is left to its timer: more members are likely to come."""
        group = self.group
        if group.phase is P.PREPARING_REBALANCE and group.initial_wait is None and group.all_joined:
            self.complete_join()

    def prepare_rebalance(self) -> None:
        group = self.group
        if group.phase is P.COMPLETING_REBALANCE:
            for member in list(group.members.values()):
                self._rejoin(group.change(member, assignment=b""))
        group.pending_syncs.clear()
        self.effects.append(CancelTimer(sync_timer(group.group_id)))
        is_initial = group.phase is P.EMPTY
        group.become(P.PREPARING_REBALANCE, self.now_ms)
        if is_initial:
            delay_ms = self.config.group_initial_rebalance_delay_ms
            group.initial_wait = (delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
            self.effects.append(SetTimer(join_timer(group.group_id), delay_ms))
        elif group.all_joined:
            self.complete_join()
        else:
            self.effects.append(SetTimer(join_timer(group.group_id), group.rebalance_timeout_ms))

    def _rejoin(self, member: Member) -> None:
        if member.sync_ticket is not None:
            self.answer_sync(member, sync_fields(ErrorCode.rebalance_in_progress))
            self.keep_session(member)

    def initial_wait_is_over(self) -> None:
        """KIP-134: as long as members keep coming the first rebalance waits on, up to its timeout."""
        group = self.group
        assert group.initial_wait is not None, "no first rebalance is under way"
        delay_ms, remaining_ms = group.initial_wait
        if not group.new_member_added or remaining_ms == 0:
            self.complete_join()
            return
        group.new_member_added = False
        next_ms = min(self.config.group_initial_rebalance_delay_ms, remaining_ms)
        group.initial_wait = (next_ms, max(remaining_ms - delay_ms, 0))
        self.effects.append(SetTimer(join_timer(group.group_id), next_ms))

    def complete_join(self) -> None:
        """Go on without whoever has not come. A static member keeps its place until its session ends."""
        group = self.group
        group.initial_wait = None
        group.new_member_added = False
        self.effects.append(CancelTimer(join_timer(group.group_id)))
        for member in list(group.members.values()):
            if member.join_ticket is None and member.group_instance_id is None:
                self.drop(member.member_id)
        if group.members and not self._elect():
            # Only static members are left and none has come back: wait for them, or their sessions' end.
            self.effects.append(SetTimer(join_timer(group.group_id), group.rebalance_timeout_ms))
            return
        self._next_generation()
        if group.phase is P.EMPTY:
            self.records.append(group.record())
            return
        for member in list(group.members.values()):
            is_leader = member.member_id == group.leader_id
            fields = join_fields(
                ErrorCode.none, member.member_id, group=group, with_members=is_leader
            )
            answered = self.answer_join(group.change(member, is_new=False), fields)
            self.keep_session(answered)
            group.pending_syncs.add(member.member_id)
        self.effects.append(SetTimer(sync_timer(group.group_id), group.rebalance_timeout_ms))

    def _elect(self) -> bool:
        """The leader must have joined; if it has not, the first who has leads from now on."""
        group = self.group
        if group.leader_id is not None and group.members[group.leader_id].join_ticket is not None:
            return True
        for member in group.members.values():
            if member.join_ticket is not None:
                group.leader_id = member.member_id
                return True
        return False

    def _next_generation(self) -> None:
        group = self.group
        group.generation_id = (
            0 if group.generation_id == GENERATION_MAX else group.generation_id + 1
        )
        group.protocol_name = group.selected_protocol() if group.members else None
        group.topics_in_use = NOT_READ
        group.become(P.COMPLETING_REBALANCE if group.members else P.EMPTY, self.now_ms)
        group.pending_syncs.clear()

    def synced(self, member_id: str) -> None:
        self.group.pending_syncs.discard(member_id)
        if not self.group.pending_syncs:
            self.effects.append(CancelTimer(sync_timer(self.group.group_id)))

    def stabilise(self, assignments: Sequence[tuple[str, bytes]]) -> None:
        """The leader has spoken. Whom it forgot gets nothing to read, which is an assignment too."""
        group = self.group
        given = dict(assignments)
        group.become(P.STABLE, self.now_ms)
        for member in list(group.members.values()):
            group.change(member, assignment=given.get(member.member_id, b""))
        self.records.append(group.record())
        for member in list(group.members.values()):
            if member.sync_ticket is not None:
                self.answer_sync(member, sync_fields(ErrorCode.none, group, member.assignment))
                self.keep_session(member)
