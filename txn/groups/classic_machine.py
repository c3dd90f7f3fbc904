"""All classic groups of one partition of `__consumer_offsets`.

INVARIANT  what is answered about a group follows from its records; what follows from less can be lost.
PREVENTS   two coordinators of one group handing out different generations under one number.
PROVED BY  tests/txn/test_classic_machine.py::test_a_coordinator_built_from_the_log_knows_every_stable_group

Deciding a JoinGroup is in `classic_join.py`, the course of a rebalance in `classic_turn.py`.
"""

from collections.abc import Callable, Mapping
from typing import Final, assert_never

from fencepost.cluster.base.errors import ErrorCode

from ..runtime.decision import NOTHING, Decision, Effect, Fields, Parked, SetTimer, TimerKey
from ..runtime.moments import Moment
from .classic_group import ClassicGroup, Phase
from .classic_join import decide_join
from .classic_turn import GroupChanged, Turn, join_fields, join_timer, session_timer, sync_fields
from .commands import Heartbeat, JoinGroup, LeaveGroup, Leaving, SyncGroup
from .config import GroupConfig
from .records import GroupForgotten, GroupMetadata

P = Phase
ClassicCommand = JoinGroup | SyncGroup | Heartbeat | LeaveGroup


class ClassicMachine:
    def __init__(self, config: GroupConfig, elapsed: Callable[[], float]) -> None:
        self.config = config
        # Looked at when something is applied, to remember when: nothing is decided by it.
        self._elapsed = elapsed
        self._begun_s = elapsed()
        self.groups: dict[str, ClassicGroup] = {}

    # -- decide ----------------------------------------------------------------------------------

    def decide(self, command: ClassicCommand, now_ms: int) -> Decision:
        match command:
            case JoinGroup():
                return self._join(command, now_ms)
            case SyncGroup():
                return self._sync(command, now_ms)
            case Heartbeat():
                return self._heartbeat(command)
            case LeaveGroup():
                return self._leave(command, now_ms)
        assert_never(command)

    def _join(self, command: JoinGroup, now_ms: int) -> Decision:
        group = self.groups.get(command.group_id)
        if group is None and command.member_id:
            return Decision(reply=join_fields(ErrorCode.unknown_member_id, command.member_id))
        return decide_join(
            group or ClassicGroup(command.group_id, now_ms),
            command,
            self.config,
            now_ms,
            is_new_group=group is None,
        )

    def _sync(self, command: SyncGroup, now_ms: int) -> Decision:
        group = self.groups.get(command.group_id)
        refusal = _refuse_sync(group, command)
        if group is None or refusal is not ErrorCode.none:
            return Decision(reply=sync_fields(refusal))
        turn = Turn(group, self.config, now_ms)
        group = turn.group
        turn.synced(command.member_id)
        member = group.members[command.member_id]
        if group.phase is P.STABLE:
            return turn.decision(sync_fields(ErrorCode.none, group, member.assignment))
        assert group.phase is P.COMPLETING_REBALANCE
        if member.sync_ticket is not None:  # sent twice: only the later one can still be waited for
            turn.answer_sync(member, sync_fields(ErrorCode.rebalance_in_progress))
        group.change(member, sync_ticket=command.ticket)
        if group.leader_id == command.member_id:
            turn.stabilise(command.assignments)
        return turn.decision(Parked(command.ticket))

    def _heartbeat(self, command: Heartbeat) -> Decision:
        group = self.groups.get(command.group_id)
        if group is None:
            return Decision(reply={"error_code": ErrorCode.unknown_member_id})
        refusal = group.refuse_member(command.member_id, command.group_instance_id)
        if refusal is ErrorCode.none and command.generation_id != group.generation_id:
            refusal = ErrorCode.illegal_generation
        if refusal is not ErrorCode.none:
            return Decision(reply={"error_code": refusal})
        # After the answer to JoinGroup a consumer may send heartbeats before it syncs: those count too.
        error = ErrorCode.none
        if group.phase is P.PREPARING_REBALANCE:
            error = ErrorCode.rebalance_in_progress
        return Decision(
            reply={"error_code": error}, effects=self.keep_alive(group, command.member_id)
        )

    def keep_alive(self, group: ClassicGroup, member_id: str) -> tuple[SetTimer, ...]:
        """What a sign of life from a member leads to; nothing from whoever is none."""
        member = group.members.get(member_id)
        if member is None:
            return ()
        return (SetTimer(session_timer(group.group_id, member_id), member.session_timeout_ms),)

    def _leave(self, command: LeaveGroup, now_ms: int) -> Decision:
        group = self.groups.get(command.group_id)
        if group is None:
            gone = [_leave_fields(who, ErrorCode.unknown_member_id) for who in command.members]
            return Decision(reply={"error_code": ErrorCode.none, "members": gone})
        turn = Turn(group, self.config, now_ms)
        answers = [_leave_fields(who, _leave_one(turn, who)) for who in command.members]
        reply = {"error_code": ErrorCode.none, "members": answers}
        if not any(answer["error_code"] is ErrorCode.none for answer in answers):
            return Decision(reply=reply)
        if len(turn.group.members) < len(group.members):
            turn.rebalance_or_complete()
        else:  # of those who have yet to join: they have no part in the generation
            turn.maybe_complete_join()
        return turn.decision(reply)

    # -- time ------------------------------------------------------------------------------------

    def tick(self, key: TimerKey, now_ms: int) -> Decision:
        kind, group_id = key[0], key[1]
        group = self.groups.get(str(group_id))
        if group is None:
            return NOTHING
        turn = Turn(group, self.config, now_ms)
        return turn.decision() if _ON_TIMER[str(kind)](turn, key) else NOTHING

    def loaded(self, now_ms: int) -> Decision:
        """Every member gets a full session to show itself; a group over the limit shrinks by a rebalance."""
        effects: list[Effect] = []
        steps: list[GroupChanged] = []
        for group in self.groups.values():
            self._found(group, now_ms, effects, steps)
        return Decision(steps=tuple(steps), effects=tuple(effects))

    def woken(self, group_id: str, now_ms: int) -> Decision:
        """`loaded`, of a group that was read later."""
        effects: list[Effect] = []
        steps: list[GroupChanged] = []
        group = self.groups.get(group_id)
        if group is not None:
            self._found(group, now_ms, effects, steps)
        return Decision(steps=tuple(steps), effects=tuple(effects))

    def _found(
        self, group: ClassicGroup, now_ms: int, effects: list[Effect], steps: list[GroupChanged]
    ) -> None:
        for member in group.members.values():
            key = session_timer(group.group_id, member.member_id)
            effects.append(SetTimer(key, member.session_timeout_ms))
        if group.phase is P.PREPARING_REBALANCE:
            effects.append(SetTimer(join_timer(group.group_id), group.rebalance_timeout_ms))
        elif len(group.members) > self.config.group_max_size:
            turn = Turn(group, self.config, now_ms)
            turn.prepare_rebalance()
            assert not turn.records, "nobody has joined yet"
            effects.extend(turn.effects)
            steps.append(GroupChanged(turn.group))

    # -- apply -----------------------------------------------------------------------------------

    def apply(self, change: GroupMetadata | GroupForgotten | GroupChanged) -> None:
        match change:
            case GroupChanged(group=group):
                if group.since is None:
                    group.since = Moment.of(self._elapsed())
                self.groups[group.group_id] = group
            case GroupMetadata():
                # Of a log, whenever that is read: others wrote it, before this one began. What is written here has its moment
                # by a GroupChanged that follows, or is yet to become a generation (`consumer_migration.py`).
                group = ClassicGroup.from_record(change)
                group.since = Moment.before(self._begun_s)
                self.groups[change.group_id] = group
            case GroupForgotten():
                known = self.groups.pop(change.group_id, None)
                if known is not None:
                    known.become(P.DEAD, known.since_ms)
            case _:
                assert_never(change)

    def ensure_simple(self, group_id: str) -> None:
        """Whoever stores offsets is a group from then on, if only by name."""
        if group_id not in self.groups:
            self.groups[group_id] = ClassicGroup(group_id)


def _refuse_sync(group: ClassicGroup | None, command: SyncGroup) -> ErrorCode:
    if group is None or group.phase is P.EMPTY:
        return ErrorCode.unknown_member_id
    refusal = group.refuse_member(command.member_id, command.group_instance_id)
    if refusal is not ErrorCode.none:
        return refusal
    if command.generation_id != group.generation_id:
        return ErrorCode.illegal_generation
    if _differs(command.protocol_type, group.protocol_type):
        return ErrorCode.inconsistent_group_protocol
    if _differs(command.protocol_name, group.protocol_name):
        return ErrorCode.inconsistent_group_protocol
    if group.phase is P.PREPARING_REBALANCE:
        return ErrorCode.rebalance_in_progress
    return ErrorCode.none


def _differs(said: str | None, known: str | None) -> bool:
    return said is not None and known is not None and said != known


def _leave_one(turn: Turn, who: Leaving) -> ErrorCode:
    group = turn.group
    member_id = who.member_id
    if not member_id:  # an admin client names static members by their instance (KIP-345)
        member_id = group.static_members.get(who.group_instance_id or "", "")
        if not member_id:
            return ErrorCode.unknown_member_id
    elif member_id not in group.pending_joins:
        refusal = group.refuse_member(member_id, who.group_instance_id)
        if refusal is not ErrorCode.none:
            return refusal
    turn.drop(member_id)
    return ErrorCode.none


def _leave_fields(who: Leaving, error: ErrorCode) -> Fields:
    return {
        "member_id": who.member_id,
        "group_instance_id": who.group_instance_id,
        "error_code": error,
    }


def _session_ended(turn: Turn, key: TimerKey) -> bool:
    group, member_id = turn.group, str(key[2])
    member = group.members.get(member_id)
    if member_id in group.pending_joins:
        turn.drop(member_id)
        turn.maybe_complete_join()
        return True
    if member is None or member.is_waiting:
        return False
    turn.drop(member_id)
    if group.phase is not P.EMPTY:
        turn.rebalance_or_complete()
    return True


def _join_waited(turn: Turn, key: TimerKey) -> bool:
    if turn.group.phase is not P.PREPARING_REBALANCE:
        return False
    if turn.group.initial_wait is not None:
        turn.initial_wait_is_over()
    else:
        turn.complete_join()
    return True


def _sync_waited(turn: Turn, key: TimerKey) -> bool:
    group = turn.group
    if group.phase not in (P.COMPLETING_REBALANCE, P.STABLE) or not group.pending_syncs:
        return False
    for member_id in sorted(group.pending_syncs):
        turn.drop(member_id)
    turn.prepare_rebalance()
    return True


_ON_TIMER: Final[Mapping[str, Callable[[Turn, TimerKey], bool]]] = {
    "session": _session_ended,
    "join": _join_waited,
    "sync": _sync_waited,
}
