"""Reading what `consumer_records.py` writes, and what any Kafka since 3.7 wrote.

INVARIANT  whatever the bytes, reading ends in a record or in RecordRefused.
PREVENTS   one damaged record taking the coordinator down with an error that names nothing.
PROVED BY  tests/txn/test_consumer_records.py::test_any_bytes_are_a_record_or_are_refused
"""

from collections.abc import Callable, Mapping
from typing import Final

from ..runtime.codec import Reader, RecordRefused
from .consumer_records import (
    VALUE_VERSION,
    WITH_ITEM,
    ClassicMember,
    ConsumerRecord,
    CurrentAssigned,
    Forgotten,
    GroupEpochBumped,
    Kind,
    LegacyTopic,
    LegacyTopicsNoted,
    MemberSubscribed,
    OwnedTopic,
    RegexResolved,
    TargetAssigned,
    TargetEpochReached,
)


def _read_strings(fields: Reader) -> tuple[str, ...]:
    return tuple(fields.string(compact=True) for _ in range(fields.length(compact=True)))


def _read_numbers(fields: Reader) -> tuple[int, ...]:
    return tuple(fields.int32() for _ in range(fields.length(compact=True)))


def _read_number_tag(fields: Reader) -> int:
    tag = fields.tags().get(0)
    return 0 if tag is None else Reader(tag).int64()


def _read_group_epoch(group_id: str, _: str, fields: Reader) -> ConsumerRecord:
    epoch = fields.int32()
    metadata_hash = _read_number_tag(fields)
    return GroupEpochBumped(group_id=group_id, epoch=epoch, metadata_hash=metadata_hash)


def _read_legacy_topics(group_id: str, _: str, fields: Reader) -> ConsumerRecord:
    topics = []
    for _topic in range(fields.length(compact=True)):
        topic_id, name, count = fields.uuid(), fields.string(compact=True), fields.int32()
        racks = []
        for _partition in range(fields.length(compact=True)):
            racks.append((fields.int32(), _read_strings(fields)))
            fields.tags()
        fields.tags()
        topics.append(
            LegacyTopic(topic_id=topic_id, name=name, partition_count=count, racks=tuple(racks))
        )
    fields.tags()
    return LegacyTopicsNoted(group_id=group_id, topics=tuple(topics))


def _read_member(group_id: str, member_id: str, fields: Reader) -> ConsumerRecord:
    instance_id = fields.nullable_string(compact=True)
    rack_id = fields.nullable_string(compact=True)
    client_id = fields.string(compact=True)
    client_host = fields.string(compact=True)
    names = _read_strings(fields)
    regex = fields.nullable_string(compact=True)
    rebalance_timeout_ms = fields.int32()
    server_assignor = fields.nullable_string(compact=True)
    tag = fields.tags().get(0)
    return MemberSubscribed(
        group_id=group_id,
        member_id=member_id,
        instance_id=instance_id,
        rack_id=rack_id,
        client_id=client_id,
        client_host=client_host,
        subscribed_topic_names=names,
        subscribed_topic_regex=regex,
        rebalance_timeout_ms=rebalance_timeout_ms,
        server_assignor=server_assignor,
        classic=None if tag is None else _read_classic(Reader(tag)),
    )


def _read_classic(fields: Reader) -> ClassicMember | None:
    if fields.int8() <= 0:
        return None
    session_timeout_ms = fields.int32()
    protocols = []
    for _protocol in range(fields.length(compact=True)):
        protocols.append((fields.string(compact=True), fields.bytes_(compact=True)))
        fields.tags()
    fields.tags()
    fields.end()
    return ClassicMember(session_timeout_ms=session_timeout_ms, protocols=tuple(protocols))


def _read_target_epoch(group_id: str, _: str, fields: Reader) -> ConsumerRecord:
    epoch = fields.int32()
    timestamp = _read_number_tag(fields)
    return TargetEpochReached(
        group_id=group_id, assignment_epoch=epoch, assignment_timestamp=timestamp
    )


def _read_target(group_id: str, member_id: str, fields: Reader) -> ConsumerRecord:
    topics = []
    for _topic in range(fields.length(compact=True)):
        topics.append((fields.uuid(), _read_numbers(fields)))
        fields.tags()
    fields.tags()
    return TargetAssigned(group_id=group_id, member_id=member_id, partitions=tuple(topics))


def _read_current(group_id: str, member_id: str, fields: Reader) -> ConsumerRecord:
    member_epoch, previous_member_epoch = fields.int32(), fields.int32()
    state = fields.int8() & 0xFF
    assigned, pending = _read_owned(fields), _read_owned(fields)
    fields.tags()
    return CurrentAssigned(
        group_id=group_id,
        member_id=member_id,
        member_epoch=member_epoch,
        previous_member_epoch=previous_member_epoch,
        state=state,
        assigned=assigned,
        pending_revocation=pending,
    )


def _read_owned(fields: Reader) -> tuple[OwnedTopic, ...]:
    topics = []
    for _topic in range(fields.length(compact=True)):
        topic_id, partitions = fields.uuid(), _read_numbers(fields)
        tag = fields.tags().get(0)
        epochs = None if tag is None else _read_numbers(Reader(tag))
        if epochs is not None and len(epochs) != len(partitions):
            epochs = None  # as Kafka: the member's own epoch stands in
        topics.append(
            OwnedTopic(topic_id=topic_id, partitions=partitions, assignment_epochs=epochs)
        )
    return tuple(topics)


def _read_regex(group_id: str, regex: str, fields: Reader) -> ConsumerRecord:
    topics, version, timestamp = _read_strings(fields), fields.int64(), fields.int64()
    fields.tags()
    return RegexResolved(
        group_id=group_id, regex=regex, topics=topics, version=version, timestamp=timestamp
    )


_READ: Final[Mapping[Kind, Callable[[str, str, Reader], ConsumerRecord]]] = {
    Kind.GROUP_METADATA: _read_group_epoch,
    Kind.PARTITION_METADATA: _read_legacy_topics,
    Kind.MEMBER_METADATA: _read_member,
    Kind.TARGET_ASSIGNMENT_METADATA: _read_target_epoch,
    Kind.TARGET_ASSIGNMENT_MEMBER: _read_target,
    Kind.CURRENT_MEMBER_ASSIGNMENT: _read_current,
    Kind.REGULAR_EXPRESSION: _read_regex,
}


def decode_consumer(kind: int, key: Reader, value: bytes | None) -> ConsumerRecord:
    """Any of the kinds above, whose two bytes have been read."""
    known = Kind(kind)
    group_id = key.string()
    item = key.string() if known in WITH_ITEM else ""
    key.end()
    if value is None:
        return Forgotten(kind=known, group_id=group_id, item=item)
    fields = Reader(value)
    version = fields.int16()
    if version != VALUE_VERSION:
        raise RecordRefused(f"{known.name} version {version} is not known")
    record = _READ[known](group_id, item, fields)
    fields.end()
    return record


# For `registry.py`: which of these keys it hands over.
DECODERS: Final = {kind.value: decode_consumer for kind in Kind}
