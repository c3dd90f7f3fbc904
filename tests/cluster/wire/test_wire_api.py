"""Frames from anybody: decoded as Kafka would, or refused with a reason."""

import gc
import struct
import tracemalloc
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import (
    SUPPORTED,
    ApiKey,
    RequestRefused,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    request_class,
    response_class,
)
from fencepost.cluster.wire.batch import check_produced, splice
from fencepost.cluster.wire.records import Record, build_batch
from fencepost.cluster.wire.render import render, render_request
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_strategies import message_fields

NAMES = [key.name for key in SUPPORTED]


def joined(chunks: list[Any]) -> bytes:
    return b"".join(bytes(chunk) for chunk in chunks)


def frame_of(api: ApiKey, version: int, client_id: str | None = "c", /, **fields: Any) -> bytearray:
    body = render_request(api, version, fields)
    return bytearray(joined(encode_request(api, version, 9, client_id, body))[4:])


def header(key: int, version: int, rest: bytes = b"\0\1x") -> bytes:
    return struct.pack(">hhi", key, version, 9) + rest


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=6)
@given(data=st.data())
def test_a_request_comes_back_as_it_was_sent(name: str, data: st.DataObject) -> None:
    key = ApiKey[name]
    version = data.draw(st.integers(*SUPPORTED[key]))
    fields = data.draw(message_fields(request_class(key, version)))
    client_id = data.draw(st.none() | st.text(max_size=10))
    frame = frame_of(key, version, client_id, **fields)
    request = decode_request(frame)
    assert (request.api_key, request.api_version) == (key, version)
    assert (request.correlation_id, request.client_id) == (9, client_id)
    assert not request.unsupported
    assert (
        frame_of(key, version, client_id, **fields)
        == joined(encode_request(key, version, 9, client_id, request.body))[4:]
    )


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15)
@given(data=st.data())
def test_a_request_with_mutated_bytes_is_decoded_or_refused(name: str, data: st.DataObject) -> None:
    key = ApiKey[name]
    version = data.draw(st.integers(*SUPPORTED[key]))
    frame = frame_of(key, version, **data.draw(message_fields(request_class(key, version))))
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(4, len(frame) - 1))
        frame[place] = data.draw(st.sampled_from([0, 1, 127, 128, 255]) | st.integers(0, 255))
    cut = data.draw(st.none() | st.integers(0, len(frame)))
    try:
        request = decode_request(frame[:cut])
    except RequestRefused:
        return
    assert isinstance(request.body, request_class(key, request.api_version))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=6)
@given(data=st.data())
def test_a_response_with_mutated_bytes_is_decoded_or_refused(
    name: str, data: st.DataObject
) -> None:
    key = ApiKey[name]
    version = data.draw(st.integers(*SUPPORTED[key]))
    body = render(key, version, data.draw(message_fields(response_class(key, version))))
    frame = bytearray(joined(encode_response(key, version, 1, body))[4:])
    for _ in range(data.draw(st.integers(1, 6))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_response(key, version, frame[: data.draw(st.none() | st.integers(0, len(frame)))])
    except RequestRefused:
        pass


@given(st.binary(max_size=64))
def test_garbage_is_decoded_or_refused(garbage: bytes) -> None:
    try:
        decode_request(garbage)
    except RequestRefused:
        pass


@settings(max_examples=300)
@given(st.sampled_from(sorted(SUPPORTED)), st.integers(0, 13), st.binary(max_size=64))
def test_garbage_behind_a_good_header_is_decoded_or_refused(
    key: ApiKey, version: int, garbage: bytes
) -> None:
    try:
        decode_request(header(key, version) + garbage)
    except RequestRefused:
        pass


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\3\0",
        header(999, 0),
        header(4, 0),  # LeaderAndIsr went with ZooKeeper
        header(-1, 0),
        header(ApiKey.vote, 0),  # Kafka's controllers' own
        header(ApiKey.produce, 2),
        header(ApiKey.produce, 99),
        header(ApiKey.init_producer_id, 7),
        header(ApiKey.metadata, -1),
        header(ApiKey.api_versions, 0, b"\0\x50x"),
        header(ApiKey.api_versions, 3, b"\0\1x" + b"\xff" * 6),
    ],
)
def test_what_kafka_closes_the_connection_for_is_refused(frame: bytes) -> None:
    with pytest.raises(RequestRefused):
        decode_request(frame)


@pytest.mark.parametrize("version", [5, 77, 2**15 - 1, -1])
def test_an_unsupported_version_of_api_versions_is_answered_as_version_0(version: int) -> None:
    """KIP-511: the client can read that answer whatever it asked, and asks again."""
    request = decode_request(header(18, version) + b"\0\5test\0021")
    assert request.unsupported
    assert (request.api_key, request.api_version, request.client_id) == (18, 0, "x")
    body = render(
        ApiKey.api_versions,
        request.api_version,
        {
            "error_code": ErrorCode.unsupported_version,
            "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 4}],
        },
    )
    frame = joined(encode_response(ApiKey.api_versions, 0, 9, body))
    # What Apache Kafka 4.3.0 sends back, byte for byte.
    assert frame.hex() == "00000010" + "00000009" + "0023" + "00000001" + "001200000004"


def test_a_response_to_api_versions_has_the_old_header_in_every_version() -> None:
    for version, header_size in ((0, 4), (2, 4), (3, 4), (4, 4)):
        body = render(ApiKey.api_versions, version, {"error_code": ErrorCode.none})
        frame = joined(encode_response(ApiKey.api_versions, version, 7, body))[4:]
        assert frame[:4] == (7).to_bytes(4)
        assert frame[header_size : header_size + 2] == b"\0\0", "the error code follows at once"


def test_flexible_responses_have_tags_in_their_header_and_others_have_not() -> None:
    for version, flexible in ((8, False), (9, True)):
        body = render(ApiKey.metadata, version, {"throttle_time_ms": 0x01020304})
        frame = joined(encode_response(ApiKey.metadata, version, 7, body))[4:]
        assert frame[4:].startswith((b"\0" if flexible else b"") + b"\1\2\3\4")


def test_unknown_tags_in_the_header_are_skipped() -> None:
    tags = b"\x01\x63\x02ab"
    request = decode_request(header(3, 9, b"\0\1x" + tags) + b"\x01\0\0\0\0")
    assert request.body.topics == ()


def test_the_client_id_is_read_in_the_old_format_in_every_version() -> None:
    """RequestHeader.json: so that a broker can read the header of a version that it does not know."""
    for version in (0, 3):
        assert decode_request(frame_of(ApiKey.api_versions, version, "me")).client_id == "me"
        assert decode_request(frame_of(ApiKey.api_versions, version, None)).client_id is None
    assert decode_request(header(18, 0, b"\xff\xfb")).client_id is None
    assert decode_request(header(18, 0, b"\0\2\xff\xfe")).client_id == "\ufffd\ufffd"


def test_bytes_behind_a_request_are_ignored_as_kafka_ignores_them() -> None:
    assert decode_request(frame_of(ApiKey.metadata, 1, topics=None) + b"zz").body.topics is None


def test_produced_records_stay_in_the_frame_and_are_stamped_there() -> None:
    """Received once, written once: nothing on the way from the socket to the segment copies them."""
    batch = build_batch([Record(0, 5, b"k", b"v" * 100_000)])
    partition = {"index": 0, "records": bytes(batch)}
    frame = frame_of(ApiKey.produce, 9, topic_data=[{"name": "t", "partition_data": [partition]}])

    def received(frame: bytes | bytearray) -> None:
        records = decode_request(memoryview(frame)).body.topic_data[0].partition_data[0].records
        [(position, _)] = check_produced(records, message_max_bytes=1 << 20)
        splice(records, position, 41, 3)

    received(bytearray(frame))  # the first one imports what it needs
    tracemalloc.start()
    received(frame)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60_000
    at = frame.index(batch[8:12]) - 8
    assert frame[at : at + 16] == struct.pack(">qii", 41, len(batch) - 12, 3)


def test_a_thousand_different_requests_that_are_refused_leave_nothing_behind() -> None:
    def once() -> None:
        for number in range(1000):
            with pytest.raises(RequestRefused):
                decode_request(header(number % 300 + 100, number))

    once()
    tracemalloc.start()
    once()
    gc.collect()
    left = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert left < 20_000


def test_an_error_code_that_kio_does_not_know_yet_is_a_number() -> None:
    body = render(ApiKey.heartbeat, 4, {})
    frame = bytearray(joined(encode_response(ApiKey.heartbeat, 4, 1, body))[4:])
    frame[9:11] = (999).to_bytes(2)
    _, decoded = decode_response(ApiKey.heartbeat, 4, frame)
    assert decoded.error_code == 999
