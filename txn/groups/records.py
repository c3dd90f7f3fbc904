"""What a classic group and its offsets leave in `__consumer_offsets`, in Kafka's own bytes.

INVARIANT  a record that is written and read again is the same record, and Kafka's tools read it too.
PREVENTS   a group that can't move between Fencepost and Kafka, or a console formatter that prints nothing.
PROVED BY  tests/txn/test_group_records.py::test_what_kafka_wrote_is_read_and_written_again_byte_for_byte

A key begins with a number that says what kind of record it is: 0 and 1 an offset, 2 a classic group, 3 and
on what the newer kinds of groups write. `registry.py` dispatches by it. Layouts: Kafka 4.3,
group-coordinator/src/main/resources/common/message/{OffsetCommit,GroupMetadata}{Key,Value}.json.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Final
from uuid import UUID

from ..runtime.codec import Reader, RecordRefused, Writer

LEGACY_OFFSET_COMMIT: Final = 0
OFFSET_COMMIT: Final = 1
GROUP_METADATA: Final = 2

NO_TIMESTAMP: Final = -1
NO_TOPIC_ID: Final = UUID(int=0)
_TOPIC_ID_TAG: Final = 0
# Ours, in version 4: when a position with a topic id expires. Kafka and older builds read over it, and go by their retention.
_EXPIRY_TAG: Final = 1000
# The versions that Kafka 4.3 writes (GroupCoordinatorRecordHelpers); it reads 0 to 4 of both.
_OFFSET_VERSION: Final = 4
_OFFSET_VERSION_WITH_EXPIRY: Final = 1  # the only one that has the field, for clients older than KIP-211; it has no room for a topic id
_GROUP_VERSION: Final = 3
OFFSET_VERSION_MAX: Final = 4
GROUP_VERSION_MAX: Final = 4

_OFFSET_V4: Final = Struct(">hqi")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitted:
    """A group's position in one partition. Without a topic id (all zero) it was committed by name alone."""

    group_id: str
    topic: str
    partition: int
    committed_offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp: int
    expire_timestamp: int = NO_TIMESTAMP
    topic_id: UUID = NO_TOPIC_ID

    def encode(self) -> tuple[bytes, bytes]:
        out = Writer()
        has_expiry = self.expire_timestamp != NO_TIMESTAMP
        if has_expiry and self.topic_id == NO_TOPIC_ID:
            out.int16(_OFFSET_VERSION_WITH_EXPIRY)
            out.int64(self.committed_offset)
            out.string(self.metadata)
            out.int64(self.commit_timestamp)
            out.int64(self.expire_timestamp)
        else:
            out.data += _OFFSET_V4.pack(_OFFSET_VERSION, self.committed_offset, self.leader_epoch)
            out.string(self.metadata, compact=True)
            out.int64(self.commit_timestamp)
            if self.topic_id == NO_TOPIC_ID:
                out.uvarint(0)
            else:
                out.data += bytes((1 + has_expiry, _TOPIC_ID_TAG, 16)) + self.topic_id.bytes
            if has_expiry:
                out.uvarint(_EXPIRY_TAG)
                out.uvarint(8)
                out.int64(self.expire_timestamp)
        return offset_key(self.group_id, self.topic, self.partition), bytes(out.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForgotten:
    """The tombstone of a position. `legacy` names one whose key is of the oldest version."""

    group_id: str
    topic: str
    partition: int
    legacy: bool = False

    def encode(self) -> tuple[bytes, None]:
        kind = LEGACY_OFFSET_COMMIT if self.legacy else OFFSET_COMMIT
        return offset_key(self.group_id, self.topic, self.partition, kind), None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """A member of a generation, with what it asked for and what the leader gave it."""

    member_id: str
    group_instance_id: str | None = None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """A generation of a classic group: its members and their assignment, or that it is empty."""

    group_id: str
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: int = NO_TIMESTAMP
    members: tuple[MemberMetadata, ...] = ()

    def encode(self) -> tuple[bytes, bytes]:
        out = Writer()
        out.int16(_GROUP_VERSION)
        out.string(self.protocol_type)
        out.int32(self.generation)
        out.string(self.protocol)
        out.string(self.leader)
        out.int64(self.current_state_timestamp)
        out.int32(len(self.members))
        for member in self.members:
            out.string(member.member_id)
            out.string(member.group_instance_id)
            out.string(member.client_id)
            out.string(member.client_host)
            out.int32(member.rebalance_timeout_ms)
            out.int32(member.session_timeout_ms)
            out.bytes_(member.subscription)
            out.bytes_(member.assignment)
        return group_key(self.group_id), bytes(out.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupForgotten:
    """The tombstone of a classic group."""

    group_id: str

    def encode(self) -> tuple[bytes, None]:
        return group_key(self.group_id), None


GroupRecord = OffsetCommitted | OffsetForgotten | GroupMetadata | GroupForgotten


def offset_key(group_id: str, topic: str, partition: int, kind: int = OFFSET_COMMIT) -> bytes:
    out = Writer()
    out.int16(kind)
    out.string(group_id)
    out.string(topic)
    out.int32(partition)
    return bytes(out.data)


def group_key(group_id: str) -> bytes:
    out = Writer()
    out.int16(GROUP_METADATA)
    out.string(group_id)
    return bytes(out.data)


def decode_offset(kind: int, key: Reader, value: bytes | None) -> OffsetCommitted | OffsetForgotten:
    """Key kinds 0 and 1, whose two bytes have been read. Kinds 0 and 1 differ in nothing but the number."""
    group_id, topic, partition = key.string(), key.string(), key.int32()
    key.end()
    if value is None:
        return OffsetForgotten(
            group_id=group_id,
            topic=topic,
            partition=partition,
            legacy=kind == LEGACY_OFFSET_COMMIT,
        )
    fields = Reader(value)
    version = fields.int16()
    if not 0 <= version <= OFFSET_VERSION_MAX:
        raise RecordRefused(f"OffsetCommitValue version {version} is not known")
    compact = version >= 4
    committed_offset = fields.int64()
    leader_epoch = fields.int32() if version >= 3 else -1
    metadata = fields.string(compact=compact)
    commit_timestamp = fields.int64()
    expire_timestamp = fields.int64() if version == 1 else NO_TIMESTAMP
    tags = fields.tags() if compact else {}
    topic_id = Reader(tags[_TOPIC_ID_TAG]).uuid() if _TOPIC_ID_TAG in tags else NO_TOPIC_ID
    if _EXPIRY_TAG in tags:
        expire_timestamp = Reader(tags[_EXPIRY_TAG]).int64()
    fields.end()
    return OffsetCommitted(
        group_id=group_id,
        topic=topic,
        partition=partition,
        committed_offset=committed_offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=commit_timestamp,
        expire_timestamp=expire_timestamp,
        topic_id=topic_id,
    )


def decode_group(kind: int, key: Reader, value: bytes | None) -> GroupMetadata | GroupForgotten:
    """Key kind 2, whose two bytes have been read."""
    group_id = key.string()
    key.end()
    if value is None:
        return GroupForgotten(group_id=group_id)
    fields = Reader(value)
    version = fields.int16()
    if not 0 <= version <= GROUP_VERSION_MAX:
        raise RecordRefused(f"GroupMetadataValue version {version} is not known")
    compact = version >= 4
    protocol_type = fields.string(compact=compact)
    generation = fields.int32()
    protocol = fields.nullable_string(compact=compact)
    leader = fields.nullable_string(compact=compact)
    timestamp = fields.int64() if version >= 2 else NO_TIMESTAMP
    count = fields.length(compact=compact)
    members = tuple(_decode_member(fields, version) for _ in range(count))
    if compact:
        fields.tags()
    fields.end()
    return GroupMetadata(
        group_id=group_id,
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol,
        leader=leader,
        current_state_timestamp=timestamp,
        members=members,
    )


def _decode_member(fields: Reader, version: int) -> MemberMetadata:
    compact = version >= 4
    member_id = fields.string(compact=compact)
    group_instance_id = fields.nullable_string(compact=compact) if version >= 3 else None
    client_id = fields.string(compact=compact)
    client_host = fields.string(compact=compact)
    rebalance_timeout_ms = fields.int32() if version >= 1 else -1
    session_timeout_ms = fields.int32()
    subscription = fields.bytes_(compact=compact)
    assignment = fields.bytes_(compact=compact)
    if compact:
        fields.tags()
    return MemberMetadata(
        member_id=member_id,
        group_instance_id=group_instance_id,
        client_id=client_id,
        client_host=client_host,
        # Version 0 had no rebalance timeout: the session's stood for both (KIP-62).
        rebalance_timeout_ms=session_timeout_ms
        if rebalance_timeout_ms == -1
        else rebalance_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=subscription,
        assignment=assignment,
    )
