"""The parsers of what peers send, on everything that may come."""

from typing import Any

import msgpack
import pytest
from fencepost.cluster.base.errors import FrameRefused, Outcome, Trouble
from fencepost.cluster.base.framing import SCRATCH_SIZE, Framer
from fencepost.cluster.wire import peer_frames as frames
from fencepost.cluster.wire.peer_frames import (
    FRAME_MAX,
    HEADER_MAX,
    PING,
    pack_frame,
    read_envelope,
    unpack_frame,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text() | st.integers(-(2**63), 2**63), inner, max_size=4)
    ),
    max_leaves=12,
)
headers = st.dictionaries(st.text(), values, max_size=6)


def bytes_of(chunks: list[Any]) -> bytes:
    return b"".join(bytes(chunk) for chunk in chunks)


@given(header=headers, payload=st.lists(st.binary(max_size=300), max_size=4))
@settings(max_examples=50)
def test_what_was_packed_is_what_is_unpacked(header: dict[str, Any], payload: list[bytes]) -> None:
    framer = Framer(bytearray(SCRATCH_SIZE))
    framer.allow(FRAME_MAX)
    framer.feed(bytes_of(pack_frame(header, payload)) + PING)
    assert unpack_frame(framer.take()) == (header, b"".join(payload))
    assert unpack_frame(framer.take()) == (None, b"")


@given(st.binary(max_size=200))
@example(b"")
@example(b"\0")
@example(b"\0\0payload of no header")
@example(b"\0\1\xc0")  # null is no map
@example(b"\0\3\xd6\xff\0")  # half a timestamp
@example(b"\0\6\xd6\xff\0\0\0\0")  # a whole one
@example(b"\0\3\x81\x90\x90")  # a list as a key
@example(b"\0\5\xdf\xff\xff\xff\xff")  # four billion entries
@example(b"\x08\x00" + b"\x91" * 2048)  # deeper than any parser's stack
def test_any_bytes_are_a_frame_or_refused(data: bytes) -> None:
    try:
        header, payload = unpack_frame(memoryview(data))
        assert len(payload) <= len(data)
        if header is not None:
            read_envelope(header)
    except FrameRefused:
        return


@given(
    header=headers,
    cut=st.integers(min_value=0),
    flip=st.integers(0, 255),
    at=st.integers(min_value=0),
)
@settings(max_examples=50)
def test_a_damaged_frame_is_a_frame_or_refused(
    header: dict[str, Any], cut: int, flip: int, at: int
) -> None:
    data = bytearray(bytes_of(pack_frame(frames.ask(7, "kind", header), [b"payload"]))[4:])
    data[at % len(data)] ^= flip
    del data[len(data) - cut % len(data) :]
    try:
        found, _ = unpack_frame(memoryview(data))
        if found is not None:
            read_envelope(found)
    except FrameRefused:
        return


@given(
    number=st.integers(0, 2**63),
    kind=st.text(max_size=20),
    header=headers,
    outcome=st.sampled_from(Outcome),
)
@settings(max_examples=50)
def test_envelopes_come_back_as_they_were_made(
    number: int, kind: str, header: dict[str, Any], outcome: Outcome
) -> None:
    message = read_envelope(
        msgpack.unpackb(msgpack.packb(frames.message(kind, header)), strict_map_key=False)
    )
    assert (message.type, message.kind, message.header) == (frames.MESSAGE, kind, header)
    ask = read_envelope(frames.ask(number, kind, header))
    assert (ask.type, ask.number, ask.kind, ask.header) == (frames.ASK, number, kind, header)
    answer = read_envelope(frames.answer(number, header))
    assert (answer.type, answer.number, answer.header) == (frames.ANSWER, number, header)
    trouble = read_envelope(frames.trouble(number, kind, outcome))
    assert (trouble.type, trouble.number) == (frames.TROUBLE, number)
    assert (trouble.sentence, trouble.outcome) == (kind, outcome)


@given(st.dictionaries(st.sampled_from(["type", "id", "kind", "header", "sentence"]), values))
@settings(max_examples=50)
def test_any_map_is_an_envelope_or_refused(header: dict[str, Any]) -> None:
    try:
        read_envelope(header)
    except FrameRefused:
        return


def test_a_frame_that_the_peer_would_refuse_is_not_made() -> None:
    pack_frame({}, [bytes(1 << 20)] * 64)
    with pytest.raises(Trouble, match="too large for a peer"):
        pack_frame({}, [bytes(1 << 20)] * 65)
    pack_frame({"x": bytes(HEADER_MAX - 6)})
    with pytest.raises(AssertionError):
        pack_frame({"x": bytes(HEADER_MAX)})
