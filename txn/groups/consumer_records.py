"""What a consumer group (KIP-848) leaves in `__consumer_offsets`, in Kafka's own bytes.

INVARIANT  a record that is written and read again is the same record, and Kafka's tools read it too.
PREVENTS   a group that can't move between Fencepost and Kafka, or a console formatter that prints nothing.
PROVED BY  tests/txn/test_consumer_records.py::test_what_kafka_wrote_is_read_and_written_again_byte_for_byte

The kinds are Kafka 4.3's, group-coordinator/src/main/resources/common/message/ConsumerGroup*.json. Every value
is of version 0 and flexible: what later versions of Kafka added stands in tagged fields, with a default.
"""

import enum
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ..runtime.codec import Writer


class Kind(enum.IntEnum):
    """The two bytes that a key begins with."""

    GROUP_METADATA = 3
    PARTITION_METADATA = 4  # before Kafka 4.1; only ever deleted by us
    MEMBER_METADATA = 5
    TARGET_ASSIGNMENT_METADATA = 6
    TARGET_ASSIGNMENT_MEMBER = 7
    CURRENT_MEMBER_ASSIGNMENT = 8
    REGULAR_EXPRESSION = 16


# The kinds whose key names something inside the group: a member, or an expression.
WITH_ITEM: Final = frozenset(
    {
        Kind.MEMBER_METADATA,
        Kind.TARGET_ASSIGNMENT_MEMBER,
        Kind.CURRENT_MEMBER_ASSIGNMENT,
        Kind.REGULAR_EXPRESSION,
    }
)
VALUE_VERSION: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEpochBumped:
    """The epoch of the group, and the hash of the metadata that it is for (0: unknown, before Kafka 4.1)."""

    group_id: str
    epoch: int
    metadata_hash: int = 0

    def encode(self) -> tuple[bytes, bytes]:
        out = _value()
        out.int32(self.epoch)
        _number_tag(out, self.metadata_hash)
        return _key(Kind.GROUP_METADATA, self.group_id), bytes(out.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyTopic:
    topic_id: UUID
    name: str
    partition_count: int
    racks: tuple[tuple[int, tuple[str, ...]], ...] = ()  # by partition


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyTopicsNoted:
    """How Kafka before 4.1 remembered the metadata of a group's topics. Read, and then deleted."""

    group_id: str
    topics: tuple[LegacyTopic, ...]

    def encode(self) -> tuple[bytes, bytes]:
        out = _value()
        out.uvarint(len(self.topics) + 1)
        for topic in self.topics:
            out.data += topic.topic_id.bytes
            out.string(topic.name, compact=True)
            out.int32(topic.partition_count)
            out.uvarint(len(topic.racks) + 1)
            for partition, racks in topic.racks:
                out.int32(partition)
                _strings(out, racks)
                out.uvarint(0)
            out.uvarint(0)
        out.uvarint(0)
        return _key(Kind.PARTITION_METADATA, self.group_id), bytes(out.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMember:
    """What a member that speaks the classic protocol told when it joined: kept to answer it in kind."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # names and metadata, the preferred one first


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSubscribed:
    """What a member asked for when it joined or last changed its mind."""

    group_id: str
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMember | None = None

    def encode(self) -> tuple[bytes, bytes]:
        out = _value()
        out.string(self.instance_id, compact=True)
        out.string(self.rack_id, compact=True)
        out.string(self.client_id, compact=True)
        out.string(self.client_host, compact=True)
        _strings(out, self.subscribed_topic_names)
        out.string(self.subscribed_topic_regex, compact=True)
        out.int32(self.rebalance_timeout_ms)
        out.string(self.server_assignor, compact=True)
        _bytes_tag(out, _encode_classic(self.classic))
        return _key(Kind.MEMBER_METADATA, self.group_id, self.member_id), bytes(out.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEpochReached:
    """For which epoch of the group the target assignment was computed, and when (0: unknown, before 4.3)."""

    group_id: str
    assignment_epoch: int
    assignment_timestamp: int = 0

    def encode(self) -> tuple[bytes, bytes]:
        out = _value()
        out.int32(self.assignment_epoch)
        _number_tag(out, self.assignment_timestamp)
        return _key(Kind.TARGET_ASSIGNMENT_METADATA, self.group_id), bytes(out.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAssigned:
    """What a member is to own in the end."""

    group_id: str
    member_id: str
    partitions: tuple[tuple[UUID, tuple[int, ...]], ...]

    def encode(self) -> tuple[bytes, bytes]:
        out = _value()
        out.uvarint(len(self.partitions) + 1)
        for topic_id, partitions in self.partitions:
            out.data += topic_id.bytes
            _numbers(out, partitions)
            out.uvarint(0)
        out.uvarint(0)
        return _key(Kind.TARGET_ASSIGNMENT_MEMBER, self.group_id, self.member_id), bytes(out.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedTopic:
    """Partitions of one topic, each with the epoch in which the member got it (none before Kafka 4.3)."""

    topic_id: UUID
    partitions: tuple[int, ...]
    assignment_epochs: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAssigned:
    """What a member owns now, and what it was told to give up and may still hold."""

    group_id: str
    member_id: str
    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned: tuple[OwnedTopic, ...] = ()
    pending_revocation: tuple[OwnedTopic, ...] = ()

    def encode(self) -> tuple[bytes, bytes]:
        out = _value()
        out.int32(self.member_epoch)
        out.int32(self.previous_member_epoch)
        out.data.append(self.state)
        for topics in (self.assigned, self.pending_revocation):
            out.uvarint(len(topics) + 1)
            for topic in topics:
                out.data += topic.topic_id.bytes
                _numbers(out, topic.partitions)
                if topic.assignment_epochs is None:
                    out.uvarint(0)
                else:
                    epochs = Writer()
                    _numbers(epochs, topic.assignment_epochs)
                    _bytes_tag(out, bytes(epochs.data))
        out.uvarint(0)
        return _key(Kind.CURRENT_MEMBER_ASSIGNMENT, self.group_id, self.member_id), bytes(out.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegexResolved:
    """The topics that an expression meant, by the metadata of `version`, at `timestamp`."""

    group_id: str
    regex: str
    topics: tuple[str, ...]
    version: int
    timestamp: int

    def encode(self) -> tuple[bytes, bytes]:
        out = _value()
        _strings(out, self.topics)
        out.int64(self.version)
        out.int64(self.timestamp)
        out.uvarint(0)
        return _key(Kind.REGULAR_EXPRESSION, self.group_id, self.regex), bytes(out.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """The tombstone of any of these. `item` is the member or the expression, where the key names one."""

    kind: Kind
    group_id: str
    item: str = ""

    def encode(self) -> tuple[bytes, None]:
        return _key(self.kind, self.group_id, self.item), None


ConsumerRecord = (
    GroupEpochBumped
    | LegacyTopicsNoted
    | MemberSubscribed
    | TargetEpochReached
    | TargetAssigned
    | CurrentAssigned
    | RegexResolved
    | Forgotten
)


def _key(kind: Kind, group_id: str, item: str = "") -> bytes:
    out = Writer()
    out.int16(kind)
    out.string(group_id)
    if kind in WITH_ITEM:
        out.string(item)
    return bytes(out.data)


def _value() -> Writer:
    out = Writer()
    out.int16(VALUE_VERSION)
    return out


def _strings(out: Writer, values: tuple[str, ...]) -> None:
    out.uvarint(len(values) + 1)
    for value in values:
        out.string(value, compact=True)


def _numbers(out: Writer, values: tuple[int, ...]) -> None:
    out.uvarint(len(values) + 1)
    for value in values:
        out.int32(value)


def _bytes_tag(out: Writer, value: bytes) -> None:
    """The tagged fields of a struct that has one, number 0."""
    out.uvarint(1)
    out.uvarint(0)
    out.uvarint(len(value))
    out.data += value


def _number_tag(out: Writer, value: int) -> None:
    """A tagged int64, number 0, that is left out when it is 0."""
    if not value:
        out.uvarint(0)
        return
    number = Writer()
    number.int64(value)
    _bytes_tag(out, bytes(number.data))


def _encode_classic(classic: ClassicMember | None) -> bytes:
    # To Kafka a member without this tag speaks the classic protocol with a session of 0 ms: none is said aloud.
    if classic is None:
        return b"\0"
    out = Writer()
    out.data.append(1)
    out.int32(classic.session_timeout_ms)
    out.uvarint(len(classic.protocols) + 1)
    for name, metadata in classic.protocols:
        out.string(name, compact=True)
        out.bytes_(metadata, compact=True)
        out.uvarint(0)
    out.uvarint(0)
    return bytes(out.data)
