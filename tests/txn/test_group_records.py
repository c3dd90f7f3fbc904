"""Records of `__consumer_offsets`: our bytes are Kafka's bytes.

`kafka_4_3_consumer_offsets.jsonl` was read from a Kafka 4.3.0 with an ordinary consumer, after two librdkafka
consumers (one static), a transactional producer and Java consumers of both protocols had been at work: a line
is partition, offset, key, value. Those of the new protocol have tests of their own. That Kafka's OffsetsMessageFormatter and GroupMetadataMessageFormatter
print records of ours as they should was seen by hand, with Kafka 4.3.0.
"""

import json
import struct
from pathlib import Path

import pytest
from fencepost.txn.groups.records import (
    NO_TOPIC_ID,
    GroupForgotten,
    GroupMetadata,
    MemberMetadata,
    OffsetCommitted,
    OffsetForgotten,
    group_key,
    offset_key,
)
from fencepost.txn.groups.registry import decode
from fencepost.txn.runtime.codec import Reader, RecordRefused, Writer
from hypothesis import given
from hypothesis import strategies as st

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parent / "kafka_4_3_consumer_offsets.jsonl")
    .read_text()
    .splitlines()
]


CLASSIC = [row for row in ROWS if row[2][:4] in ("0001", "0002")]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


@pytest.mark.parametrize(("partition", "offset", "key", "value"), CLASSIC)
def test_what_kafka_wrote_is_read_and_written_again_byte_for_byte(partition, offset, key, value):
    record = decode(bytes.fromhex(key), _bytes(value))
    assert record is not None
    assert record.encode() == (bytes.fromhex(key), _bytes(value))


def test_the_records_of_kafka_say_what_happened() -> None:
    records = [decode(bytes.fromhex(key), _bytes(value)) for _, _, key, value in CLASSIC]
    positions = [r for r in records if isinstance(r, OffsetCommitted) and r.group_id == "billing"]
    assert [(p.topic, p.partition, p.committed_offset) for p in positions] == [
        ("orders", 0, 5),
        ("orders", 1, 7),
        ("orders", 0, 9),
    ]
    assert positions[0].topic_id != NO_TOPIC_ID
    assert positions[2].topic_id == NO_TOPIC_ID, "TxnOffsetCommit knows no topic ids"
    full = next(r for r in records if isinstance(r, GroupMetadata) and len(r.members) == 2)
    assert {m.group_instance_id for m in full.members} == {None, "bob-1"}
    assert (full.protocol, full.generation) == ("range", 2)
    assert OffsetForgotten(group_id="simple", topic="orders", partition=0) in records
    assert GroupForgotten(group_id="simple") in records


# -- versions that nobody writes any more, but logs still hold -----------------------------------

OLD_OFFSETS = [
    (0, struct.pack(">hqh2sq", 0, 7, 2, b"hi", 100), {}),
    (1, struct.pack(">hqh2sqq", 1, 7, 2, b"hi", 100, 900), {"expire_timestamp": 900}),
    (2, struct.pack(">hqh2sq", 2, 7, 2, b"hi", 100), {}),
    (3, struct.pack(">hqih2sq", 3, 7, 4, 2, b"hi", 100), {"leader_epoch": 4}),
    (4, struct.pack(">hqib2sqb", 4, 7, 4, 3, b"hi", 100, 0), {"leader_epoch": 4}),
]


@pytest.mark.parametrize(("version", "value", "more"), OLD_OFFSETS)
def test_offsets_of_every_version_are_read(version, value, more) -> None:
    expected = OffsetCommitted(
        group_id="g",
        topic="t",
        partition=3,
        committed_offset=7,
        metadata="hi",
        commit_timestamp=100,
        **more,
    )
    assert decode(offset_key("g", "t", 3), value) == expected
    assert decode(offset_key("g", "t", 3, kind=0), value) == expected


@pytest.mark.parametrize("version", range(5))
def test_groups_of_every_version_are_read(version) -> None:
    compact = version >= 4
    out = Writer()
    out.int16(version)
    out.string("consumer", compact=compact)
    out.int32(5)
    out.string("range", compact=compact)
    out.string("m", compact=compact)
    if version >= 2:
        out.int64(77)
    if compact:
        out.uvarint(2)
    else:
        out.int32(1)
    out.string("m", compact=compact)
    if version >= 3:
        out.string("i", compact=compact)
    out.string("c", compact=compact)
    out.string("/h", compact=compact)
    if version >= 1:
        out.int32(300)
    out.int32(10)
    out.bytes_(b"sub", compact=compact)
    out.bytes_(b"", compact=compact)
    if compact:
        out.uvarint(0)
        out.uvarint(0)
    record = decode(group_key("g"), bytes(out.data))
    assert record == GroupMetadata(
        group_id="g",
        protocol_type="consumer",
        generation=5,
        protocol="range",
        leader="m",
        current_state_timestamp=77 if version >= 2 else -1,
        members=(
            MemberMetadata(
                member_id="m",
                group_instance_id="i" if version >= 3 else None,
                client_id="c",
                client_host="/h",
                rebalance_timeout_ms=300 if version >= 1 else 10,
                session_timeout_ms=10,
                subscription=b"sub",
                assignment=b"",
            ),
        ),
    )


# -- what nobody should have written -------------------------------------------------------------


def test_a_kind_that_we_do_not_know_is_skipped() -> None:
    assert decode(struct.pack(">h", 14) + b"share group", b"\x00\x00") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (b"\x00", None),
        (offset_key("g", "t", 1) + b"x", None),
        (offset_key("g", "t", 1), struct.pack(">h", 5)),
        (offset_key("g", "t", 1), struct.pack(">hq", 3, 1)),
        (group_key("g"), b""),
        (group_key("g"), struct.pack(">hh4si", 3, 4, b"\xff\xff\xff\xff", 1)),
    ],
)
def test_a_record_that_can_not_be_read_is_refused_and_not_skipped(key, value) -> None:
    with pytest.raises(RecordRefused):
        decode(key, value)


KINDS = st.sampled_from([0, 1, 2, 3, 5, 8]).map(lambda kind: struct.pack(">h", kind))
KEYS = st.one_of(
    st.binary(max_size=40),
    st.tuples(KINDS, st.binary(max_size=40)).map(b"".join),
    st.just(offset_key("g", "t", 0)),
    st.just(group_key("g")),
)
VERSIONS = st.integers(-1, 6).map(lambda version: struct.pack(">h", version))
VALUES = (
    st.none() | st.binary(max_size=60) | st.tuples(VERSIONS, st.binary(max_size=60)).map(b"".join)
)


@given(KEYS, VALUES)
def test_any_bytes_decode_to_a_record_or_are_refused(key, value) -> None:
    try:
        decode(key, value)
    except RecordRefused:
        pass


TEXT = st.text(max_size=12)
INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
OFFSETS = st.builds(
    OffsetCommitted,
    group_id=TEXT,
    topic=TEXT,
    partition=INT32,
    committed_offset=INT64,
    leader_epoch=INT32,
    metadata=TEXT,
    commit_timestamp=INT64,
    topic_id=st.uuids() | st.just(NO_TOPIC_ID),
)
MEMBERS = st.builds(
    MemberMetadata,
    member_id=TEXT,
    group_instance_id=st.none() | TEXT,
    client_id=TEXT,
    client_host=TEXT,
    rebalance_timeout_ms=st.integers(0, 2**31 - 1),
    session_timeout_ms=INT32,
    subscription=st.binary(max_size=20),
    assignment=st.binary(max_size=20),
)
GROUPS = st.builds(
    GroupMetadata,
    group_id=TEXT,
    protocol_type=TEXT,
    generation=INT32,
    protocol=st.none() | TEXT,
    leader=st.none() | TEXT,
    current_state_timestamp=INT64,
    members=st.lists(MEMBERS, max_size=3).map(tuple),
)


@given(OFFSETS | GROUPS | st.builds(GroupForgotten, group_id=TEXT))
def test_what_is_written_is_read_as_it_was(record) -> None:
    key, value = record.encode()
    assert decode(key, value) == record


def test_a_position_with_an_expiry_and_no_topic_id_is_written_in_the_one_version_that_has_it() -> (
    None
):
    record = OffsetCommitted(
        group_id="g",
        topic="t",
        partition=0,
        committed_offset=1,
        commit_timestamp=5,
        expire_timestamp=9,
    )
    key, value = record.encode()
    assert value[:2] == b"\x00\x01"
    back = decode(key, value)
    assert (back.expire_timestamp, back.topic_id) == (9, NO_TOPIC_ID)


def test_an_array_that_claims_more_than_there_is_allocates_nothing() -> None:
    with pytest.raises(RecordRefused):
        Reader(struct.pack(">i", 2**31 - 1) + b"xx").length()
