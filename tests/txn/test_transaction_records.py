"""Kafka's TransactionLogKey and TransactionLogValue, byte for byte."""

import json
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from fencepost.cluster.base.ids import TopicPartition
from fencepost.txn.runtime.codec import RecordRefused
from fencepost.txn.transactions.records import (
    TransactionForgotten,
    TransactionRecord,
    value_version,
)
from fencepost.txn.transactions.registry import CODEC, decode, owner_of
from fencepost.txn.transactions.transaction import EPOCH_MAX, IDLE, Phase, Transaction
from hypothesis import given
from hypothesis import strategies as st
from transaction_scene import ID, P0, P1, Scene

# What Kafka 4.3.0 left of three courses of transactions: an old client's, a new client's, and one that was fenced.
KAFKA = [
    (bytes.fromhex(key), bytes.fromhex(value))
    for key, value in json.loads(
        (Path(__file__).parent / "kafka_4_3_transactions.json").read_text()
    )
]
KEY = bytes.fromhex("0000") + b"\0\3pay"


def bare(**more: object) -> Transaction:
    fields: dict[str, object] = {
        "transactional_id": "pay",
        "producer_id": 7,
        "producer_epoch": 3,
        "timeout_ms": 60_000,
        "last_update_timestamp": 5,
        **more,
    }
    return Transaction(**fields)  # type: ignore[arg-type]


def test_what_kafka_wrote_is_read_and_written_again_byte_for_byte() -> None:
    for key, value in KAFKA:
        record = decode(key, value)
        assert record is not None
        assert record.encode() == (key, value)


def plain(it: Transaction) -> Transaction:
    """Without what differs from run to run: times, and the numbers of producers."""
    return replace(
        it,
        transactional_id=ID,
        producer_id=1,
        previous_producer_id=1 if it.previous_producer_id == it.producer_id else 0,
        partitions=tuple(TopicPartition("orders", n) for n in sorted(p for _, p in it.partitions)),
        start_timestamp=min(it.start_timestamp, 0),
        last_update_timestamp=0,
    )


def courses_of(log: list[tuple[bytes, bytes]]) -> dict[bytes, list[Transaction]]:
    found: dict[bytes, list[Transaction]] = {}
    for key, value in log:
        record = decode(key, value)
        assert isinstance(record, TransactionRecord)
        found.setdefault(key, []).append(plain(record.transaction))
    return found


def test_the_same_course_leaves_the_same_records_here_and_at_kafka() -> None:
    old, new, fenced = Scene(), Scene(), Scene()
    who = old.init()
    old.add(who, P0, P1)
    old.end(who)
    old.written()
    old.add(who, P1)
    old.end(who, commit=False)
    old.written()
    old.init(producer_id=who[0], producer_epoch=who[1])

    who = new.init()
    new.add(who, P0, version=2)
    who = new.end(who, bumps=True)
    new.written()
    new.end(who, commit=False, bumps=True)

    who = fenced.init()
    fenced.add(who, P0)
    fenced.init()
    fenced.written()

    ours = [courses_of(each.log)[KEY] for each in (old, new, fenced)]  # type: ignore[arg-type]
    theirs = list(courses_of(KAFKA).values())
    # Of ours: the epoch before stays known, for a retry whose answer was lost with the coordinator (KIP-360).
    assert ours[0][-1].last_producer_epoch == 0
    ours[0][-1] = replace(ours[0][-1], last_producer_epoch=-1)
    assert ours == theirs


def test_a_value_of_version_0_is_what_kafkas_schema_says() -> None:
    it = bare(
        phase=Phase.ONGOING,
        partitions=(TopicPartition("o", 1), TopicPartition("o", 0)),
        start_timestamp=4,
    )
    value = (
        struct.pack(">hqhib", 0, 7, 3, 60_000, 1)
        + struct.pack(">ih", 1, 1)
        + b"o"
        + struct.pack(">iii", 2, 1, 0)
        + struct.pack(">qq", 5, 4)
    )
    record = TransactionRecord(it, 0)
    assert record.encode() == (KEY, value)
    assert decode(KEY, value) == record


def test_a_value_of_version_1_has_its_tagged_fields_in_order() -> None:
    it = bare(
        phase=Phase.PREPARE_COMMIT,
        partitions=(TopicPartition("o", 1),),
        start_timestamp=4,
        producer_epoch=EPOCH_MAX,
        previous_producer_id=7,
        next_producer_id=9,
        next_producer_epoch=2,
        last_producer_epoch=32_766,
        client_transaction_version=2,
    )
    value = (
        struct.pack(">hqhib", 1, 7, EPOCH_MAX, 60_000, 2)
        + b"\2\2o\2"
        + struct.pack(">i", 1)
        + b"\0"
        + struct.pack(">qq", 5, 4)
        + b"\4\0\x08"
        + struct.pack(">q", 7)
        + b"\1\x08"
        + struct.pack(">q", 9)
        + b"\2\2\0\2"
        + b"\3\2\0\2"
    )
    record = TransactionRecord(it, 1)
    assert record.encode() == (KEY, value)
    assert decode(KEY, value) == record


def test_an_empty_transaction_has_no_list_of_partitions() -> None:
    _, value = TransactionRecord(bare(), 0).encode()
    assert value[17:21] == b"\xff\xff\xff\xff"
    _, value = TransactionRecord(bare(), 1).encode()
    assert value[17:18] == b"\0"


def test_kafka_reads_a_prepared_transaction_as_an_ongoing_one() -> None:
    it = bare(phase=Phase.PREPARED, partitions=(TopicPartition("o", 1),), start_timestamp=4)
    key, value = TransactionRecord(it, 1).encode()
    assert value[16] == Phase.ONGOING
    assert decode(key, value) == TransactionRecord(it, 1)


def test_a_tombstone_is_read_and_written() -> None:
    assert TransactionForgotten("pay").encode() == (KEY, None)
    assert decode(KEY, None) == TransactionForgotten("pay")


def test_the_version_follows_the_clusters_feature() -> None:
    assert [value_version(bare(), level) for level in (0, 1, 2)] == [0, 1, 1]


def test_what_only_the_newer_version_can_say_is_said_in_it() -> None:
    assert value_version(bare(client_transaction_version=2), 0) == 1
    assert value_version(bare(next_producer_id=3), 0) == 1


def test_what_is_not_known_is_skipped_or_refused() -> None:
    assert decode(b"\x03\xff\0\3pay", b"\0\0") is None
    assert owner_of(b"\x03\xff\0\3pay", b"\0\0") is None
    with pytest.raises(RecordRefused):
        owner_of(KEY, b"\0\2")
    with pytest.raises(RecordRefused):
        decode(KEY, struct.pack(">hqhib", 0, 7, 3, 60_000, 9) + bytes(20))
    assert owner_of(KEY, b"\0\1") == b"pay"


epochs = st.integers(-1, EPOCH_MAX)
ids = st.integers(-1, 2**62)
times = st.integers(-1, 2**50)
topics = st.text(min_size=1, max_size=20)


@st.composite
def transactions(draw: st.DrawFn) -> Transaction:
    phase = draw(st.sampled_from(Phase))
    by_topic = draw(
        st.dictionaries(
            topics, st.lists(st.integers(0, 2**31 - 1), min_size=1, unique=True), max_size=3
        )
    )
    partitions = tuple(TopicPartition(t, p) for t, ps in by_topic.items() for p in ps)
    return Transaction(
        transactional_id=draw(st.text(max_size=20)),
        producer_id=draw(ids),
        producer_epoch=draw(epochs),
        previous_producer_id=draw(ids),
        next_producer_id=draw(ids),
        next_producer_epoch=draw(epochs),
        last_producer_epoch=draw(epochs),
        timeout_ms=draw(st.integers(0, 2**31 - 1)),
        phase=phase,
        partitions=() if phase in IDLE else partitions,
        start_timestamp=draw(times),
        last_update_timestamp=draw(times),
        client_transaction_version=draw(st.integers(0, 2)),
    )


@given(transactions())
def test_what_is_written_is_read_again(it: Transaction) -> None:
    record = TransactionRecord(it, 1)
    assert decode(*record.encode()) == record


@given(st.binary(max_size=80), st.binary(max_size=120))
def test_any_bytes_decode_to_a_record_or_are_refused(key: bytes, value: bytes) -> None:
    for each in (key, KEY):
        try:
            CODEC.owner_of(each, value)
            CODEC.decode(each, value)
        except RecordRefused:
            pass
