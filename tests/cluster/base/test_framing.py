"""The framer alone: any bytes, in any pieces."""

import re
import struct
import tracemalloc
from typing import Any

import pytest
from fencepost.cluster.base.framing import SCRATCH_SIZE, TRUST_MIN, Framer, why_refused
from hypothesis import given
from hypothesis import strategies as st


def framer(size_max: int = 10_000_000, scratch: int = SCRATCH_SIZE) -> Framer:
    made = Framer(bytearray(scratch))
    made.allow(size_max)
    return made


def framed(*frames: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


def taken(made: Framer) -> list[bytes]:
    return [bytes(made.take()) for _ in range(len(made.frames))]


SIZES = st.one_of(st.integers(0, 40), st.integers(0, 3000), st.integers(60_000, 140_000))


@given(sizes=st.lists(SIZES, max_size=8), data=st.data())
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(sizes: Any, data: Any) -> None:
    frames = [bytes([index % 251]) * size for index, size in enumerate(sizes)]
    stream = framed(*frames)
    made = framer()
    got: list[bytes] = []
    position = 0
    while position < len(stream):
        step = data.draw(st.one_of(st.integers(1, 9), st.integers(1, 70_000), st.just(1 << 20)))
        made.feed(stream[position : position + step])
        position += step
        got += taken(made)
    assert got == frames
    assert made.queued_bytes == 0 and not made.inside_frame and made.held_back is None


@given(garbage=st.binary(max_size=400), size_max=st.integers(0, 100), step=st.integers(1, 50))
def test_garbage_gives_frames_within_the_limit_or_is_held_back(
    garbage: bytes, size_max: int, step: int
) -> None:
    """The slow twin: cut the whole at once."""
    made = framer(size_max, scratch=128)
    for start in range(0, len(garbage), step):
        made.feed(garbage[start : start + step])
    expected: list[bytes] = []
    rest = garbage
    while len(rest) >= 4:
        length = struct.unpack(">i", rest[:4])[0]
        if not 0 <= length <= size_max:
            assert made.held_back == length
            break
        if len(rest) < 4 + length:
            assert made.inside_frame
            break
        expected.append(rest[4 : 4 + length])
        rest = rest[4 + length :]
    assert taken(made) == expected


def test_nothing_is_welcome_before_the_first_read() -> None:
    made = Framer(bytearray(SCRATCH_SIZE))
    made.feed(framed(b"early", b"and more"))
    assert made.held_back == 5 and not made.frames
    made.allow(100)
    assert taken(made) == [b"early", b"and more"]


def test_what_comes_behind_a_frame_over_the_limit_is_kept() -> None:
    made = framer(10)
    made.feed(framed(b"x" * 11))
    made.feed(framed(b"y" * 9_000) + framed(b"z" * 100_000))
    assert made.held_back == 11
    made.allow(200_000)
    assert [len(frame) for frame in taken(made)] == [11, 9_000, 100_000]


def test_a_claimed_length_takes_no_memory_until_bytes_arrive() -> None:
    made = framer(1 << 30)
    tracemalloc.start()
    try:
        made.feed(struct.pack(">i", 1 << 30) + b"x" * 100)
        assert tracemalloc.get_traced_memory()[1] < 2 * TRUST_MIN
        for _ in range(20):
            made.feed(bytes(50_000))
        assert tracemalloc.get_traced_memory()[1] < 6 * 1_000_000
    finally:
        tracemalloc.stop()


def test_a_connection_that_sent_large_frames_gets_their_buffer_at_once() -> None:
    made = framer()
    made.feed(framed(bytes(1_000_000)))
    made.take()
    made.feed(struct.pack(">i", 1_000_000) + bytes(100))
    assert len(made.buffer()) == 1_000_000 - 100


def test_frames_are_writable_and_do_not_share_the_scratch_buffer() -> None:
    scratch = bytearray(SCRATCH_SIZE)
    made = Framer(scratch)
    made.allow(1000)
    made.feed(framed(b"abc", b"def"))
    first = made.take()
    scratch[:] = bytes(SCRATCH_SIZE)
    first[0:1] = b"X"
    assert bytes(first) == b"Xbc" and bytes(made.take()) == b"def"


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"HTTP", '1213486160 .* begins with "HTTP": is this an admin door'),
        (b"GET ", 'begins with "GET ": who speaks HTTP is to go to admin.listener'),
        (b"\x16\x03\x01\x02", "as TLS does"),
        (b"\x7f\x00\x00\x00", "allowed are 0 to 100$"),
        (b"\xff\xff\xff\xff", "a frame of -1 bytes, allowed are 0 to 100$"),
    ],
)
def test_a_length_that_is_another_protocols_first_letters_is_told_as_that(
    first: bytes, said: str
) -> None:
    made = framer(size_max=100)
    made.feed(first + b"whatever")
    assert made.held_back is not None
    assert re.search(said, why_refused(made.held_back, 100))
