"""Messages to bytes, against kio's own writer as the slow twin."""

import io
from datetime import timedelta
from typing import Any

import pytest
from fencepost.cluster.base.ports import FileSlice
from fencepost.cluster.wire.api import (
    SUPPORTED,
    ApiKey,
    RecordsValue,
    decode_response,
    encode_request,
    encode_response,
    request_class,
    response_class,
)
from fencepost.cluster.wire.render import render, render_request
from fencepost.cluster.wire.schema import fields_of
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_writer
from wire_strategies import message_fields

VERSIONS = [
    (key, version) for key, (low, high) in SUPPORTED.items() for version in range(low, high + 1)
]


def kios_bytes(body: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(body))(out, body)
    return out.getvalue()


def has_long_times(entity: type) -> bool:
    """kio wants datetimes for these; here they are ints, so it can't write our messages."""
    return any(
        field.kind in ("timedelta_i64", "datetime_i64")
        or (field.struct is not None and has_long_times(field.struct))
        for field in fields_of(entity)
    )


def joined(chunks: list[Any]) -> bytes:
    return b"".join(bytes(chunk) for chunk in chunks)


@pytest.mark.parametrize("name", [key.name for key in SUPPORTED])
@settings(max_examples=6)
@given(data=st.data())
def test_what_is_written_is_byte_for_byte_what_kio_writes(name: str, data: st.DataObject) -> None:
    key = ApiKey[name]
    low, high = SUPPORTED[key]
    version = data.draw(st.integers(low, high))
    for load, make in ((request_class, render_request), (response_class, render)):
        entity = load(key, version)
        if has_long_times(entity):
            continue
        body = make(key, version, data.draw(message_fields(entity)))
        expected = kios_bytes(body)
        if make is render:
            frame = joined(encode_response(key, version, 77, body))
        else:
            frame = joined(encode_request(key, version, 77, "c", body))
        assert frame.endswith(expected)
        assert int.from_bytes(frame[:4]) == len(frame) - 4


def test_records_leave_by_reference_between_joined_pieces() -> None:
    """Nothing that was fetched is copied on its way out; file ranges have no bytes to copy at all."""
    view = memoryview(bytes(5000))
    on_disk = FileSlice(None, 100, 700)  # type: ignore[arg-type]
    partitions = [
        {"partition_index": 0, "high_watermark": 9, "records": RecordsValue([view, on_disk])},
        {"partition_index": 1, "high_watermark": 9, "records": None},
        {"partition_index": 2, "high_watermark": 9, "records": b""},
        {"partition_index": 3, "high_watermark": 9, "records": view[:1000]},
    ]
    body = render(ApiKey.fetch, 12, {"responses": [{"topic": "t", "partitions": partitions}]})
    chunks = encode_response(ApiKey.fetch, 12, 5, body)
    assert [type(chunk) for chunk in chunks] == [
        bytes,
        memoryview,
        FileSlice,
        bytes,
        memoryview,
        bytes,
    ]
    assert chunks[1] is view
    assert chunks[2] is on_disk
    assert int.from_bytes(bytes(chunks[0])[:4]) == sum(map(len, chunks)) - 4
    partitions[0]["records"] = bytes(5700)
    body = render(ApiKey.fetch, 12, {"responses": [{"topic": "t", "partitions": partitions}]})
    frame = joined(encode_response(ApiKey.fetch, 12, 5, body))
    assert len(frame) == sum(map(len, chunks))
    _, decoded = decode_response(ApiKey.fetch, 12, frame[4:])
    got = decoded.responses[0].partitions
    assert [None if p.records is None else len(p.records) for p in got] == [5700, None, 0, 1000]


def test_null_where_the_version_has_none_is_a_broken_invariant() -> None:
    body = render(ApiKey.metadata, 12, {"topics": [{"name": None}]})
    encode_response(ApiKey.metadata, 12, 1, body)
    body = render(ApiKey.metadata, 9, {"topics": [{"name": None}]})
    with pytest.raises(AssertionError, match="name"):
        encode_response(ApiKey.metadata, 9, 1, body)


def test_tagged_fields_are_written_only_when_they_say_something() -> None:
    quiet = render(ApiKey.fetch, 13, {"responses": [{"partitions": [{"partition_index": 1}]}]})
    leader = {"leader_id": 3, "leader_epoch": 9}
    loud = render(
        ApiKey.fetch,
        13,
        {"responses": [{"partitions": [{"partition_index": 1, "current_leader": leader}]}]},
    )
    short = joined(encode_response(ApiKey.fetch, 13, 1, quiet))
    long = joined(encode_response(ApiKey.fetch, 13, 1, loud))
    assert (
        len(long) == len(short) + 2 + 9
    )  # tag and size, then two numbers and no tags of their own
    _, body = decode_response(ApiKey.fetch, 13, long[4:])
    assert body.responses[0].partitions[0].current_leader.leader_epoch == 9


@pytest.mark.parametrize(("key", "version"), VERSIONS, ids=lambda v: getattr(v, "name", str(v)))
def test_a_message_of_defaults_is_written_and_read_back_the_same(key: ApiKey, version: int) -> None:
    body = render(key, version, {})
    frame = joined(encode_response(key, version, 3, body))
    assert decode_response(key, version, frame[4:]) == (3, body)


def test_a_duration_may_be_a_number() -> None:
    one = render(ApiKey.heartbeat, 4, {"throttle_time_ms": 1500})
    other = render(ApiKey.heartbeat, 4, {"throttle_time": timedelta(seconds=1.5)})
    assert one == other
    assert joined(encode_response(ApiKey.heartbeat, 4, 1, one))[9:13] == (1500).to_bytes(4)
