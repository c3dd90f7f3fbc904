"""Deciding a ConsumerGroupHeartbeat: a member joins, stays or leaves.

INVARIANT  a member is only heard with the epoch it has, or with the last one if it holds no more than it should.
PREVENTS   a member that was taken for dead going on with partitions that others have by now.
PROVED BY  tests/txn/test_consumer_machine.py::test_a_member_with_an_epoch_that_is_not_its_own_is_fenced

Sentences and order are those of GroupMetadataManager in Kafka 4.3; the tables in
tests/txn/test_consumer_machine.py go through them.
"""

import enum
from dataclasses import replace
from typing import Final, TypeVar

from fencepost.cluster.base.errors import ErrorCode

from ..runtime.decision import Decision, SetTimer
from ..runtime.regex import refusal_of
from .consumer_group import ConsumerGroup
from .consumer_member import LEAVE_STATIC_EPOCH, Member, is_held
from .consumer_reconcile import MustRejoin
from .consumer_requests import NOT_SAID, Refusal, Said, left, refused, standing
from .consumer_scan import begin
from .consumer_turn import ScanMoved, Turn, regex_timer

# Not sooner than this after the last lookup of a group's expressions (Kafka's
# REGEX_BATCH_REFRESH_MIN_INTERVAL_MS): many members with new expressions make one scan.
REGEX_PAUSE_MS: Final = 10_000


class Wish(enum.Enum):
    """What a heartbeat did to the member's regular expression."""

    SAME = "same"
    NEW = "new"  # what it means is not known yet
    KNOWN = "known"  # another one, or none, and what that means is known


# ---- joining and staying ------------------------------------------------------------------------


def heartbeat(turn: Turn, said: Said) -> Decision:
    group, config = turn.group, turn.world.config
    is_known = said.member_id in group.members
    if len(group.members) >= config.group_consumer_max_size and not is_known:
        most = config.group_consumer_max_size
        return refused(
            Refusal(
                ErrorCode.group_max_size_reached,
                f"The consumer group has reached its maximum capacity of {most} members.",
            )
        )
    member_id = said.member_id or said.fresh_id
    before = find_member(turn, said, member_id)
    if isinstance(before, Refusal):
        return refused(before)
    after = _updated(before, said)
    names_changed = turn.note_subscription(before, after)
    wish = note_regex(turn, before, after)
    if isinstance(wish, Refusal):
        return refused(wish)
    epoch = turn.bump_if_needed(before, after, bump=names_changed or wish is Wish.KNOWN)
    target_epoch, target = turn.target_for(before, after, epoch)
    changed = names_changed or wish is not Wish.SAME
    try:
        after = turn.step(after, target_epoch, target, said.holding, subscription_changed=changed)
    except MustRejoin:
        return refused(
            Refusal(
                ErrorCode.fenced_member_epoch,
                "The consumer group member is in a unknown state. "
                "The member must abandon all its partitions and rejoin.",
            )
        )
    turn.keep_session(after.member_id)
    tell = said.is_join or said.is_full or before.assigned != after.assigned
    interval_ms = turn.world.times.heartbeat_interval_ms
    return turn.decision(standing(after, interval_ms, with_assignment=tell))


_T = TypeVar("_T")


def _now(value: _T | None, then: _T) -> _T:
    return then if value is None else value


def _updated(member: Member, said: Said) -> Member:
    """What was said over what was known. Whoever says it this way no longer speaks the classic protocol."""
    timeout_ms = said.rebalance_timeout_ms
    names = said.subscribed_topic_names
    return replace(
        member,
        instance_id=_now(said.instance_id, member.instance_id),
        rack_id=_now(said.rack_id, member.rack_id),
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == NOT_SAID else timeout_ms,
        server_assignor=_now(said.server_assignor, member.server_assignor),
        subscribed_topic_names=(
            member.subscribed_topic_names if names is None else frozenset(names)
        ),
        subscribed_topic_regex=_now(said.subscribed_topic_regex, member.subscribed_topic_regex),
        client_id=said.client_id,
        client_host=said.client_host,
        classic=None,
    )


def find_member(turn: Turn, said: Said, member_id: str) -> Member | Refusal:
    """The member that speaks, made if it joins; or why it may not speak."""
    if said.instance_id is not None:
        return _find_static(turn, said, member_id, said.instance_id)
    member = turn.group.members.get(member_id)
    if member is None:
        if not said.is_join:
            return unknown_member(turn.group, member_id)
        return Member(member_id=member_id)
    return fence_by_epoch(member, said) or member


def _find_static(turn: Turn, said: Said, member_id: str, instance_id: str) -> Member | Refusal:
    known = turn.group.static_member(instance_id)
    if not said.is_join:
        if known is None:
            return unknown_instance(instance_id)
        return fence_by_id(known, member_id, instance_id) or fence_by_epoch(known, said) or known
    if known is None:
        # The id may be that of a member without an instance id so far, which has one now.
        return turn.group.members.get(member_id) or Member(member_id=member_id)
    is_here = known.classic is None and known.member_epoch != LEAVE_STATIC_EPOCH
    if is_here and known.member_id == member_id:
        # The answer to its first join was lost. Kafka lets a member with an instance id wait here until its
        # own session is over; without one it is let in, and nothing speaks against it for this one.
        return known
    if is_here:
        return Refusal(
            ErrorCode.unreleased_instance_id,
            f"Static member {member_id} with instance id {instance_id} cannot join the group "
            f"because the instance id is owned by {known.member_id} member.",
        )
    return turn.replace_static(known, member_id)


def unknown_member(group: ConsumerGroup, member_id: str) -> Refusal:
    return Refusal(
        ErrorCode.unknown_member_id,
        f"Member {member_id} is not a member of group {group.group_id}.",
    )


def unknown_instance(instance_id: str) -> Refusal:
    return Refusal(ErrorCode.unknown_member_id, f"Instance id {instance_id} is unknown.")


def fence_by_id(known: Member, member_id: str, instance_id: str) -> Refusal | None:
    if known.member_id == member_id:
        return None
    return Refusal(
        ErrorCode.fenced_instance_id,
        f"Static member {member_id} with instance id {instance_id} "
        f"was fenced by member {known.member_id}.",
    )


def fence_by_epoch(member: Member, said: Said) -> Refusal | None:
    if said.is_join or said.member_epoch == member.member_epoch:
        return None
    if said.member_epoch > member.member_epoch:
        how = "greater"
    elif said.member_epoch == member.previous_member_epoch and _holds_no_more(member, said):
        return None  # the answer with the new epoch was lost on its way
    else:
        how = "smaller"
    return Refusal(
        ErrorCode.fenced_member_epoch,
        f"The consumer group member has a {how} member epoch ({said.member_epoch}) than the one "
        f"known by the group coordinator ({member.member_epoch}). "
        "The member must abandon all its partitions and rejoin.",
    )


def _holds_no_more(member: Member, said: Said) -> bool:
    if said.holding is None:
        return False
    return all(
        topic in member.assigned and all(is_held(member.assigned, topic, p) for p in partitions)
        for topic, partitions in said.holding.items()
    )


# ---- regular expressions ------------------------------------------------------------------------


def note_regex(turn: Turn, before: Member, after: Member) -> Wish | Refusal:
    """What becomes of the group's expressions, and whether it is time to look up what they mean."""
    group = turn.group
    old, new = before.regex, after.regex
    wish = Wish.SAME
    is_first = False
    if before.subscribed_topic_regex != after.subscribed_topic_regex:
        wish = Wish.NEW
        if old is not None and group.regexes[old] == 1:
            turn.forget_regex(old)
        if new is None:
            wish = Wish.KNOWN if old is not None else wish
        elif group.regexes[new] == 0:
            why = refusal_of(new)
            if why is not None:
                return Refusal(
                    ErrorCode.invalid_regular_expression,
                    f"SubscribedTopicRegex `{new}` is not a valid regular expression: {why}.",
                )
            is_first = True
        elif new in group.resolved:
            wish = Wish.KNOWN
    _maybe_scan(turn, old, new, is_first=is_first)
    return wish


def _maybe_scan(turn: Turn, old: str | None, new: str | None, *, is_first: bool) -> None:
    group, soft, world = turn.group, turn.soft, turn.world
    if soft.scan is not None or not (is_first or group.regexes):
        return
    # A time that is yet to come is of a clock that has been set back, or of another node's: it tells nothing.
    times = [found.timestamp for found in group.resolved.values()]
    last_ms = max((at_ms for at_ms in times if at_ms <= world.now_ms), default=None)
    if last_ms is not None and world.now_ms <= last_ms + REGEX_PAUSE_MS:
        return
    wanted = group.regexes.copy()
    if old is not None:
        wanted[old] -= 1
    if new is not None:
        wanted[new] += 1
    regexes = sorted(regex for regex, count in wanted.items() if count > 0)
    known_version = max((found.version for found in group.resolved.values()), default=0)
    refresh_ms = world.config.group_consumer_regex_refresh_interval_ms
    is_time = (
        is_first
        or len(regexes) != len(group.resolved)
        or known_version < world.new_topics_version
        or last_ms is None
        or world.now_ms > last_ms + refresh_ms
    )
    if is_time and regexes:
        scan = begin(regexes, world.topics.names(), world.topics.version, world.now_ms)
        turn.steps.append(ScanMoved(group.group_id, scan))
        turn.effects.append(SetTimer(regex_timer(group.group_id), 0))


# ---- leaving ------------------------------------------------------------------------------------


def leave(turn: Turn, said: Said) -> Decision:
    group = turn.group
    if said.instance_id is None:
        member = group.members.get(said.member_id)
        if member is None:
            return refused(unknown_member(group, said.member_id))
    else:
        member = group.static_member(said.instance_id)
        if member is None:
            return refused(unknown_instance(said.instance_id))
        fenced = fence_by_id(member, said.member_id, said.instance_id)
        if fenced is not None:
            return refused(fenced)
        if said.member_epoch == LEAVE_STATIC_EPOCH:
            turn.records.append(member.gone_for_now().current_record(group.group_id))
            return turn.decision(left(member.member_id, LEAVE_STATIC_EPOCH))
    return turn.fence([member], left(said.member_id, said.member_epoch))
