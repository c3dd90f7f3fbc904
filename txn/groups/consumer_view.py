"""What is asked of a consumer group from outside: its description, and whether a member may commit or fetch.

INVARIANT  offsets are taken from a member only for partitions that it owned in the epoch that it names.
PREVENTS   a member that lost a partition setting the new owner's position back (KIP-1251).
PROVED BY  tests/txn/test_consumer_view.py::test_who_may_commit_is_decided_partition_by_partition
"""

from typing import Final
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode

from ..runtime.decision import Fields
from .commands import Commit, OffsetCommit, OffsetFetch, TxnOffsetCommit
from .consumer_group import NO_TARGET, ConsumerGroup
from .consumer_member import Member
from .consumer_topics import Topics

_MEMBER_EPOCH_VERSION: Final = 9  # of OffsetCommit: before it a client can't know what an epoch is
_NO_TOPIC_ID: Final = UUID(int=0)
_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


def refuse_commit(
    group: ConsumerGroup, command: OffsetCommit | TxnOffsetCommit, topics: Topics
) -> ErrorCode:
    """Kafka's ConsumerGroup.validateOffsetCommit; `none` when the offsets may be stored."""
    if isinstance(command, TxnOffsetCommit):
        epoch, in_txn, api_version = command.generation_id, True, _MEMBER_EPOCH_VERSION
    else:
        epoch, in_txn = command.generation_id_or_member_epoch, False
        api_version = command.api_version
    if epoch < 0 and not group.members:
        return ErrorCode.none  # somebody sets the offsets of a group that nobody is in
    if in_txn and epoch == -1 and not command.member_id and command.group_instance_id is None:
        return ErrorCode.none  # a producer that knows nothing of the group (before KIP-447)
    member = group.members.get(command.member_id)
    if member is None:
        return ErrorCode.unknown_member_id
    if member.classic is None and api_version < _MEMBER_EPOCH_VERSION:
        return ErrorCode.unsupported_version
    if epoch == member.member_epoch:
        # What it does not want any more it gives up without a new epoch: another may have it by now.
        for commit in command.commits:
            owner = group.owners.get((_topic_id(commit, topics), commit.partition))
            if owner not in (None, member.member_id):
                return _stale(member)
        return ErrorCode.none
    if epoch > member.member_epoch:
        return _stale(member)
    # An older epoch is fine as long as the member had the partition then and has it still.
    for commit in command.commits:
        got = member.owns_epoch(_topic_id(commit, topics), commit.partition)
        # 0 is what a static member's going away has left of it: others may have had it since `epoch`.
        if not got or epoch < got:
            return _stale(member)
    return ErrorCode.none


def _topic_id(commit: Commit, topics: Topics) -> UUID:
    if commit.topic_id != _NO_TOPIC_ID:
        return commit.topic_id
    topic = topics.by_name(commit.topic)
    return _NO_TOPIC_ID if topic is None else topic.topic_id


def refuse_fetch(group: ConsumerGroup, command: OffsetFetch) -> ErrorCode:
    """Kafka's ConsumerGroup.validateOffsetFetch."""
    if command.member_id is None and command.member_epoch < 0:
        return ErrorCode.none  # an admin client
    member = group.members.get(command.member_id or "")
    if member is None:
        return ErrorCode.unknown_member_id
    return ErrorCode.none if command.member_epoch == member.member_epoch else _stale(member)


def _stale(member: Member) -> ErrorCode:
    classic = member.classic is not None
    return ErrorCode.illegal_generation if classic else ErrorCode.stale_member_epoch


def describe_group(group: ConsumerGroup, default_assignor: str, topics: Topics) -> Fields:
    """One row of ConsumerGroupDescribe (api key 69, versions 0 and 1)."""
    votes = [member.server_assignor for member in group.members.values() if member.server_assignor]
    favourite = min(votes, key=lambda name: (-votes.count(name), name), default=default_assignor)
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "group_id": group.group_id,
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": favourite,
        "members": [_member(group, group.members[id_], topics) for id_ in sorted(group.members)],
    }


def _member(group: ConsumerGroup, member: Member, topics: Topics) -> Fields:
    owned: dict[UUID, list[int]] = {}
    for part in (member.assigned, member.pending_revocation):
        for topic_id, partitions in part.items():
            owned.setdefault(topic_id, []).extend(partitions)
    target = group.target.get(member.member_id, NO_TARGET)
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.subscribed_topic_names),
        "subscribed_topic_regex": member.subscribed_topic_regex,
        "assignment": _rows(owned, topics),
        "target_assignment": _rows({t: list(p) for t, p in target.items()}, topics),
        "member_type": _CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    }


def _rows(partitions: dict[UUID, list[int]], topics: Topics) -> Fields:
    """Topics that are gone have no name, and are left out."""
    rows = []
    for topic_id in sorted(partitions):
        topic = topics.by_id(topic_id)
        if topic is not None:
            name, indexes = topic.name, sorted(partitions[topic_id])
            rows.append({"topic_id": topic_id, "topic_name": name, "partitions": indexes})
    return {"topic_partitions": rows}
