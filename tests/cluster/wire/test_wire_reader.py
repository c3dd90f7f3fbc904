"""Bytes from strangers: what is legal is read as Kafka reads it, what lies is refused before it costs anything."""

import struct
import subprocess
import sys
import tracemalloc
from typing import Any

import pytest
from fencepost.cluster.wire.api import (
    REQUEST_ELEMENTS_MAX,
    ApiKey,
    RequestRefused,
    decode_request,
    request_class,
)
from fencepost.cluster.wire.reader import ELEMENTS_MAX, MALFORMED, Budget, Malformed, struct_reader

VARINT_MAX = b"\xff\xff\xff\xff\x07"


def read(key: ApiKey, version: int, data: bytes) -> Any:
    return struct_reader(request_class(key, version))(memoryview(data), 0, Budget())[0]


def refused(key: ApiKey, version: int, data: bytes) -> None:
    with pytest.raises(MALFORMED):
        read(key, version, data)


def test_a_count_beyond_the_frame_is_refused_before_anything_is_built() -> None:
    """kio's own reader aborts the process here: it asks the allocator for the claimed length."""
    lies = [
        (ApiKey.metadata, 1, struct.pack(">i", 2**31 - 1)),
        (ApiKey.metadata, 9, VARINT_MAX),
        (ApiKey.metadata, 9, b"\xff\xff\xff\xff\x7f"),
        (ApiKey.elect_leaders, 1, b"\0" + struct.pack(">ih1si", 1, 1, b"a", 2**31 - 1)),
        (ApiKey.join_group, 0, b"\0\1g\0\0\0\1\0\1m\0\1c" + struct.pack(">i", 2**31 - 1)),
    ]
    tracemalloc.start()
    for key, version, data in lies:
        with pytest.raises(Malformed, match="claims"):
            read(key, version, data)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_a_length_beyond_the_frame_is_refused_before_anything_is_built() -> None:
    refused(ApiKey.metadata, 1, struct.pack(">ih", 1, 32767) + b"short")
    refused(ApiKey.metadata, 9, b"\x02" + VARINT_MAX)
    refused(ApiKey.sasl_authenticate, 0, struct.pack(">i", 2**31 - 1))
    refused(ApiKey.sasl_authenticate, 2, VARINT_MAX)


def test_a_string_that_only_the_compact_form_could_say_is_refused() -> None:
    """Kafka 4.3 closes the connection for a transactional id of 32,768 bytes, and takes one of 32,767."""

    def find_coordinator(length: int) -> bytes:
        size = length + 1
        varint = bytes((size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14))
        return varint + b"x" * length + b"\0\0"

    read(ApiKey.find_coordinator, 3, find_coordinator(32_767))
    with pytest.raises(Malformed, match="32767 are allowed"):
        read(ApiKey.find_coordinator, 3, find_coordinator(32_768))


def test_more_elements_than_the_budget_are_refused_however_small_they_are() -> None:
    count = ELEMENTS_MAX + 1
    data = struct.pack(">i", count) + bytes(4 * count)
    with pytest.raises(Malformed, match="more than"):
        read(ApiKey.delete_topics, 1, struct.pack(">i", count) + bytes(2 * count))
    with pytest.raises(Malformed, match="more than"):
        read(ApiKey.elect_leaders, 0, struct.pack(">ih1s", 1, 1, b"a") + data)


def test_tagged_fields_are_elements_too() -> None:
    """Each is two bytes, and 10 MB of them were read for more than a second."""
    header = struct.pack(">hhihs", 18, 3, 1, 1, b"c")
    tags = REQUEST_ELEMENTS_MAX + 1
    count = bytes([tags & 127 | 128, tags >> 7 & 127 | 128, tags >> 14])
    for body in (count + b"\x05\x00" * tags, b"\x00\x02a\x02b" + count + b"\x05\x00" * tags):
        with pytest.raises(RequestRefused, match="more than 100000 elements"):
            decode_request(memoryview(header + body))


def test_nothing_is_left_to_kios_reader_while_it_still_aborts_on_a_lying_count() -> None:
    """When this fails, kio has mended its reader, and schema.py's reason for not using it is one fewer."""
    script = (
        "import resource, struct;"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30));"
        "from kio.serial import entity_reader;"
        "from kio.schema.metadata.v1.request import MetadataRequest;"
        "entity_reader(MetadataRequest)(struct.pack('>i', 2**31 - 1), 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=False, timeout=50
    )
    assert done.returncode < 0, "ended by a signal, not by an exception"


def test_null_is_taken_only_where_this_version_has_null() -> None:
    assert read(ApiKey.metadata, 1, struct.pack(">i", -1)).topics is None
    assert read(ApiKey.metadata, 9, b"\x00\x00\x00\x00\x00").topics is None
    refused(ApiKey.metadata, 0, struct.pack(">i", -1))
    refused(ApiKey.metadata, 1, struct.pack(">ih", 1, -1))
    refused(ApiKey.metadata, 9, b"\x02\x00\x00\x00\x00\x00\x00")


def test_any_negative_length_is_null_as_in_kafka() -> None:
    """Kafka 4.3.0 answers a Metadata v1 with the count -2 as one for all topics."""
    assert read(ApiKey.metadata, 1, struct.pack(">i", -2)).topics is None
    refused(ApiKey.metadata, 1, struct.pack(">ih", 1, -5))


def test_unknown_tagged_fields_are_skipped() -> None:
    """KIP-482. Newer clients send them; kio's own reader raises KeyError."""
    body = read(ApiKey.metadata, 9, b"\x01\x00\x00\x00\x02\x63\x02ab\x64\x00")
    assert body.topics == ()


def test_tagged_fields_that_run_over_the_end_are_refused() -> None:
    refused(ApiKey.metadata, 9, b"\x01\x00\x00\x00\x01\x63" + VARINT_MAX)
    refused(ApiKey.metadata, 9, b"\x01\x00\x00\x00" + VARINT_MAX)
    refused(ApiKey.metadata, 9, b"\x01\x00\x00\x00\x01\x63\x05ab")


def test_a_known_tagged_field_is_confined_to_its_size() -> None:
    """Fetch v12: tag 0 is the cluster id, a nullable string."""
    head = struct.pack(">iiiibii", -1, 500, 1, 2**31 - 1, 0, 0, -1) + b"\x01\x01\x01"
    assert read(ApiKey.fetch, 12, head + b"\x01\x00\x03\x03ab").cluster_id == "ab"
    refused(ApiKey.fetch, 12, head + b"\x01\x00\x02\x03ab\x00")
    refused(ApiKey.fetch, 12, head + b"\x01\x00\x04\x03ab\x00")


def test_any_byte_but_zero_is_true() -> None:
    for byte in (1, 7, 255):
        data = struct.pack(">i", 0) + bytes((byte,))
        assert read(ApiKey.metadata, 4, data).allow_auto_topic_creation is True


def test_bytes_that_are_not_utf_8_become_the_replacement_character_as_in_java() -> None:
    data = struct.pack(">ih", 1, 2) + b"\xff\xfe"
    assert read(ApiKey.metadata, 1, data).topics[0].name == "\ufffd\ufffd"


def test_bytes_that_could_not_be_said_again_once_they_are_read_are_refused() -> None:
    """The replacement character has three bytes: what was read of 32,767 odd ones fits no string of Kafka's."""

    def metadata(name: bytes) -> bytes:
        return struct.pack(">ih", 1, len(name)) + name

    assert len(read(ApiKey.metadata, 1, metadata(b"\xff" * 10_922)).topics[0].name) == 10_922
    read(ApiKey.metadata, 1, metadata("é".encode() * 16_383))
    with pytest.raises(Malformed, match="over 32767 bytes"):
        read(ApiKey.metadata, 1, metadata(b"\xff" * 10_923))
    head = struct.pack(">hhih", ApiKey.metadata, 1, 1, 32_767)
    with pytest.raises(RequestRefused, match="the client id is over 32767 bytes"):
        decode_request(head + b"\xff" * 32_767 + struct.pack(">i", 0))


@pytest.mark.parametrize("moment", [-(2**63), -2, -1, 0, 2**63 - 1])
def test_every_64_bit_time_is_a_plain_number(moment: int) -> None:
    """A datetime holds neither -1 nor the end of int64; kio would refuse these."""
    data = b"\0\1g" + struct.pack(">ih1sqi", -1, 1, b"m", moment, 0)
    assert read(ApiKey.offset_commit, 2, data).retention_time == moment
    data = struct.pack(">ibih1siiiq", -1, 0, 1, 1, b"t", 1, 0, -1, moment)
    partition = read(ApiKey.list_offsets, 4, data).topics[0].partitions[0]
    assert partition.timestamp == moment


@pytest.mark.parametrize("wait", [-(2**31), -1, 0, 2**31 - 1])
def test_every_32_bit_duration_is_a_timedelta(wait: int) -> None:
    data = struct.pack(">hhii", -1, 1, wait, 0)
    timeout = read(ApiKey.produce, 3, data).timeout
    assert round(timeout.total_seconds() * 1000) == wait


def test_the_zero_topic_id_is_none() -> None:
    data = b"\x02" + bytes(16) + b"\x00\x00" + b"\x00\x00\x00"
    assert read(ApiKey.metadata, 12, data).topics[0].topic_id is None
