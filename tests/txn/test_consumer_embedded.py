"""The classic consumer's metadata, as Java's and librdkafka's consumers send it."""

import pytest
from consumer_world import subscription_bytes
from fencepost.txn.groups.consumer_embedded import (
    read_assignment,
    read_subscription,
    read_version,
    write_assignment,
)
from fencepost.txn.runtime.codec import RecordRefused
from hypothesis import given
from hypothesis import strategies as st

# Written by the consumers of Java (version 3) and librdkafka (1 and 0), seen in kafka_4_3_consumer_offsets.jsonl.
JAVA = bytes.fromhex("00030000000100066f7264657273ffffffff00000000ffffffffffff")
RDKAFKA = bytes.fromhex("00030000000100066f72646572730000000000000000ffffffff0000")
JAVA_ASSIGNMENT = bytes.fromhex("00030000000100066f7264657273000000020000000000000001ffffffff")
RDKAFKA_ASSIGNMENT = bytes.fromhex("00000000000100066f7264657273000000010000000100000000")


def test_what_java_and_librdkafka_say_is_understood() -> None:
    java, rdkafka = read_subscription(JAVA), read_subscription(RDKAFKA)
    assert java.topics == rdkafka.topics == ("orders",)
    assert (java.user_data, rdkafka.user_data) == (None, b"")
    assert java.rack_id is rdkafka.rack_id is None
    assert read_assignment(JAVA_ASSIGNMENT).partitions == {"orders": (0, 1)}
    assert read_assignment(RDKAFKA_ASSIGNMENT).partitions == {"orders": (1,)}


def test_an_assignment_is_written_as_java_writes_it() -> None:
    assert write_assignment({"orders": (0, 1)}, 3) == JAVA_ASSIGNMENT


@pytest.mark.parametrize("version", [0, 1, 2, 3, 9])
def test_each_version_has_what_it_has(version: int) -> None:
    data = subscription_bytes(["a", "b"], {"a": [1, 2]}, version)
    found = read_subscription(data)
    assert found.topics == ("a", "b")
    assert found.owned == ({"a": (1, 2)} if version else {})
    assert read_version(data) == min(version, 3)


def test_a_version_below_zero_is_refused() -> None:
    with pytest.raises(RecordRefused):
        read_subscription(b"\xff\xff")


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (read_subscription, read_assignment):
        try:
            read(data)
        except RecordRefused:
            pass


names = st.text("abc", min_size=1, max_size=5)
partitions = st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple)


@given(st.dictionaries(names, partitions, max_size=4), st.integers(0, 3))
def test_what_is_written_is_what_is_read(assigned, version) -> None:
    assert read_assignment(write_assignment(assigned, version)).partitions == assigned
