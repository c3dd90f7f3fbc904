"""Records of consumer groups: our bytes are Kafka's bytes.

`kafka_4_3_consumer_group.json` is what a Kafka 4.3.0 answered and wrote, request by request (see
test_consumer_transcript.py). The hexadecimal values below were written by Kafka 4.3.0's own classes.
"""

import json
from pathlib import Path
from uuid import UUID

import pytest
from fencepost.txn.groups.consumer_records import (
    ClassicMember,
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
from fencepost.txn.groups.registry import decode
from fencepost.txn.runtime.codec import RecordRefused
from hypothesis import given
from hypothesis import strategies as st

HERE = Path(__file__).parent
STEPS = json.loads((HERE / "kafka_4_3_consumer_group.json").read_text())["steps"]
WRITTEN = [record for step in STEPS for record in step["records"]]
A, B = UUID(int=(1 << 64) + 2), UUID(int=(3 << 64) + 4)

SUBSCRIBED = MemberSubscribed(
    group_id="g",
    member_id="m",
    client_id="c",
    client_host="/h",
    subscribed_topic_names=(),
    subscribed_topic_regex="a.*",
    rebalance_timeout_ms=5,
    classic=ClassicMember(session_timeout_ms=45_000, protocols=(("range", b"\1\2\3"), ("x", b""))),
)
CURRENT = CurrentAssigned(
    group_id="g",
    member_id="m",
    member_epoch=3,
    previous_member_epoch=2,
    state=1,
    assigned=(OwnedTopic(topic_id=A, partitions=(0, 1), assignment_epochs=(3, 2)),),
    pending_revocation=(OwnedTopic(topic_id=B, partitions=(2,)),),
)
LEGACY = LegacyTopicsNoted(
    group_id="g",
    topics=(LegacyTopic(topic_id=A, name="t", partition_count=3, racks=((0, ("r1", "r2")),)),),
)
VALUES = [
    (
        SUBSCRIBED,
        "000000000263032f680104612e2a0000000500010016010000afc8030672616e676504010203000278010000",
    ),
    (
        LEGACY,
        "00000200000000000000010000000000000002027400000003020000000003037231037232000000",
    ),
    (
        GroupEpochBumped(group_id="g", epoch=7, metadata_hash=-5),
        "000000000007010008fffffffffffffffb",
    ),
    (GroupEpochBumped(group_id="g", epoch=7), "00000000000700"),
    (
        TargetEpochReached(group_id="g", assignment_epoch=9, assignment_timestamp=123456789012),
        "0000000000090100080000001cbe991a14",
    ),
    (
        TargetAssigned(group_id="g", member_id="m", partitions=((A, (0, 1)), (B, (5,)))),
        (
            "00000300000000000000010000000000000002030000000000000001000000000000000003000000000000000402"
            "000000050000"
        ),
    ),
    (
        CURRENT,
        (
            "000000000003000000020102000000000000000100000000000000020300000000000000010100090300000003"
            "00000002020000000000000003000000000000000402000000020000"
        ),
    ),
    (
        CurrentAssigned(
            group_id="g", member_id="m", member_epoch=-2, previous_member_epoch=2, state=127
        ),
        "0000fffffffe000000027f010100",
    ),
    (
        RegexResolved(group_id="g", regex="a|b", topics=("a", "b"), version=55, timestamp=66),
        "000003026102620000000000000037000000000000004200",
    ),
]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def test_what_kafka_wrote_is_read_and_written_again_byte_for_byte() -> None:
    kinds = set()
    for key, value in WRITTEN:
        record = decode(bytes.fromhex(key), _bytes(value))
        assert record is not None
        assert record.encode() == (bytes.fromhex(key), _bytes(value))
        kinds.add(type(record).__name__)
    assert len(kinds) == 7, "the fixture has every kind of record"


@pytest.mark.parametrize(("record", "value"), VALUES)
def test_every_field_stands_where_kafka_s_own_classes_put_it(record, value) -> None:
    key, encoded = record.encode()
    assert encoded.hex() == value
    assert decode(key, encoded) == record


@pytest.mark.parametrize("kind", list(Kind))
def test_a_tombstone_names_what_it_forgets(kind: Kind) -> None:
    item = "m" if kind.value in (5, 7, 8, 16) else ""
    tombstone = Forgotten(kind=kind, group_id="g", item=item)
    key, value = tombstone.encode()
    assert value is None
    assert decode(key, None) == tombstone


def test_a_member_of_before_the_classic_field_speaks_the_new_protocol() -> None:
    """Kafka 3.7 had no such tag, and no other protocol for these records."""
    key, _ = SUBSCRIBED.encode()
    value = bytes.fromhex("000000000263032f68010000000005" + "00" + "00")
    read = decode(key, value)
    assert isinstance(read, MemberSubscribed)
    assert read.classic is None


texts = st.text(max_size=8)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
tuples = st.lists(texts, max_size=4).map(tuple)
numbers = st.lists(int32s, max_size=4).map(tuple)
owned = st.builds(
    OwnedTopic,
    topic_id=st.uuids(),
    partitions=st.just((1, 2)),
    assignment_epochs=st.none() | st.tuples(int32s, int32s),
)
classic = st.builds(
    ClassicMember,
    session_timeout_ms=int32s,
    protocols=st.lists(st.tuples(texts, st.binary(max_size=9)), max_size=3).map(tuple),
)
records = st.one_of(
    st.builds(GroupEpochBumped, group_id=texts, epoch=int32s, metadata_hash=int64s),
    st.builds(
        MemberSubscribed,
        group_id=texts,
        member_id=texts,
        instance_id=st.none() | texts,
        rack_id=st.none() | texts,
        client_id=texts,
        client_host=texts,
        subscribed_topic_names=tuples,
        subscribed_topic_regex=st.none() | texts,
        rebalance_timeout_ms=int32s,
        server_assignor=st.none() | texts,
        classic=st.none() | classic,
    ),
    st.builds(
        TargetEpochReached, group_id=texts, assignment_epoch=int32s, assignment_timestamp=int64s
    ),
    st.builds(
        TargetAssigned,
        group_id=texts,
        member_id=texts,
        partitions=st.lists(st.tuples(st.uuids(), numbers), max_size=3).map(tuple),
    ),
    st.builds(
        CurrentAssigned,
        group_id=texts,
        member_id=texts,
        member_epoch=int32s,
        previous_member_epoch=int32s,
        state=st.integers(0, 255),
        assigned=st.lists(owned, max_size=3).map(tuple),
        pending_revocation=st.lists(owned, max_size=3).map(tuple),
    ),
    st.builds(
        RegexResolved,
        group_id=texts,
        regex=texts,
        topics=tuples,
        version=int64s,
        timestamp=int64s,
    ),
)


@given(records)
def test_what_is_written_is_what_is_read(record) -> None:
    assert decode(*record.encode()) == record


@given(
    st.sampled_from([kind.value for kind in Kind]), st.binary(max_size=40), st.binary(max_size=80)
)
def test_any_bytes_are_a_record_or_are_refused(kind: int, key: bytes, value: bytes) -> None:
    try:
        decode(kind.to_bytes(2, "big") + key, value)
    except RecordRefused:
        pass


@given(records, st.data())
def test_a_record_with_a_flipped_byte_is_a_record_or_is_refused(record, data) -> None:
    key, value = record.encode()
    at = data.draw(st.integers(0, len(value) - 1))
    damaged = bytearray(value)
    damaged[at] ^= data.draw(st.integers(1, 255))
    try:
        decode(key, bytes(damaged))
    except RecordRefused:
        pass
