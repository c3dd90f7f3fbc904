"""ConsumerGroupHeartbeat (api key 68, versions 0 and 1): what it says, whether it may say so, and its answer.

The checks and their sentences are those of Kafka's GroupCoordinatorService, in its order.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode

from ..runtime.decision import Decision, Fields
from .commands import ConsumerGroupHeartbeat
from .consumer_member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH, Member
from .consumer_reconcile import Holding

NOT_SAID: Final = -1  # a timeout that did not change since the last heartbeat
_NO_TOPIC_ID: Final = UUID(int=0)
_CLIENT_MAKES_ID: Final = 1  # from this version on (KIP-1082)
_BLANKS: Final = "".join(map(chr, range(33)))  # what Java's trim takes off


class Refusal(NamedTuple):
    error_code: ErrorCode
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One heartbeat. What is None was not said: it did not change since the one before."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: tuple[str, ...] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    holding: Holding
    api_version: int
    client_id: str
    client_host: str
    fresh_id: str  # for a member that has no id yet

    @property
    def is_join(self) -> bool:
        return self.member_epoch == JOIN_EPOCH

    @property
    def is_leave(self) -> bool:
        return self.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH)

    @property
    def is_full(self) -> bool:
        """It says everything, so it is told everything: a client does so when an answer was lost."""
        names_topics = not (
            self.subscribed_topic_names is None and self.subscribed_topic_regex is None
        )
        says_timeout = self.rebalance_timeout_ms != NOT_SAID
        return says_timeout and names_topics and self.holding is not None


def said(command: ConsumerGroupHeartbeat) -> Said:
    body = command.body
    return Said(
        group_id=command.group_id,
        member_id=body.member_id,
        member_epoch=body.member_epoch,
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        rebalance_timeout_ms=body.rebalance_timeout // timedelta(milliseconds=1),
        subscribed_topic_names=body.subscribed_topic_names,
        # Version 0 has no regular expressions.
        subscribed_topic_regex=getattr(body, "subscribed_topic_regex", None),
        server_assignor=body.server_assignor,
        holding=_holding(body.topic_partitions),
        api_version=command.api_version,
        client_id=command.client_id,
        client_host=command.client_host,
        fresh_id=command.fresh_id,
    )


def _holding(topics: Any) -> Holding:
    if topics is None:
        return None
    held: dict[UUID, frozenset[int]] = {}
    for topic in topics:
        topic_id = topic.topic_id or _NO_TOPIC_ID
        held[topic_id] = held.get(topic_id, frozenset()) | frozenset(topic.partitions)
    return held


def refuse(said: Said, assignors: tuple[str, ...]) -> Refusal | None:
    """What is wrong with a heartbeat whatever the group is like."""
    why = _impossible(said)
    if why is not None:
        return Refusal(ErrorCode.invalid_request, why)
    if said.server_assignor is not None and said.server_assignor not in assignors:
        return Refusal(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {said.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )
    return None


def _impossible(said: Said) -> str | None:
    epoch = said.member_epoch
    needs_id = said.api_version >= _CLIENT_MAKES_ID or epoch > 0 or epoch == LEAVE_EPOCH
    if needs_id and _is_blank(said.member_id):
        return "MemberId can't be empty."
    if _is_blank(said.group_id):
        return "GroupId can't be empty."
    if _is_blank(said.instance_id):
        return "InstanceId can't be empty."
    if _is_blank(said.rack_id):
        return "RackId can't be empty."
    if epoch == JOIN_EPOCH:
        return _impossible_join(said)
    if epoch == LEAVE_STATIC_EPOCH and said.instance_id is None:
        return "InstanceId can't be null."
    return "MemberEpoch is invalid." if epoch < LEAVE_STATIC_EPOCH else None


def _impossible_join(said: Said) -> str | None:
    if said.rebalance_timeout_ms == NOT_SAID:
        return "RebalanceTimeoutMs must be provided in first request."
    if said.holding is None or said.holding:
        return "TopicPartitions must be empty when (re-)joining."
    if said.subscribed_topic_names is None and said.subscribed_topic_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None


def _is_blank(value: str | None) -> bool:
    return value is not None and not value.strip(_BLANKS)


# ---- answers --------------------------------------------------------------------------------------


def refused(refusal: Refusal) -> Decision:
    code, message = refusal
    return Decision(reply={"error_code": code, "error_message": message})


def left(member_id: str, member_epoch: int) -> Fields:
    return {
        "error_code": ErrorCode.none,
        "member_id": member_id,
        "member_epoch": member_epoch,
        "heartbeat_interval_ms": 0,
        "assignment": None,
    }


def standing(member: Member, heartbeat_interval_ms: int, *, with_assignment: bool) -> Fields:
    assignment = {"topic_partitions": topic_rows(member.assigned)} if with_assignment else None
    return {
        "error_code": ErrorCode.none,
        "member_id": member.member_id,
        "member_epoch": member.member_epoch,
        "heartbeat_interval_ms": heartbeat_interval_ms,
        "assignment": assignment,
    }


def topic_rows(partitions: Mapping[UUID, Any]) -> list[Fields]:
    return [
        {"topic_id": topic_id, "partitions": sorted(partitions[topic_id])}
        for topic_id in sorted(partitions)
    ]
