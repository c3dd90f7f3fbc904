"""Frames of a replication stream: what is written is read, and nothing else is."""

from uuid import UUID

import msgpack
import pytest
from fencepost.cluster.base.errors import FrameRefused
from fencepost.replication import stream_frames as frames
from fencepost.replication.stream_frames import Ack, Data, Follow
from hypothesis import given
from hypothesis import strategies as st

LONG = 2**63 - 1
HEADER_MAX = 0xFFFF  # the peer door's


def sent(header: frames.Header) -> frames.Header:
    """As it comes out at the other end."""
    packed = msgpack.packb(header)
    assert len(packed) <= HEADER_MAX
    unpacked = msgpack.unpackb(packed)
    assert isinstance(unpacked, dict)
    return unpacked


def test_what_is_written_is_read() -> None:
    asked = [Follow(7, UUID(int=5), 3, 2, 1, 100, 90, 4)]
    assert frames.read_follow(sent(next(frames.follow(asked)))) == asked
    acks = frames.ack([7, 100, 90, 4, 8, 5, 5, 0], 1_000)
    assert frames.read_acks(sent(acks)) == [Ack(7, 100, 90, 4), Ack(8, 5, 5, 0)]
    assert frames.read_taken(sent(acks)) == 1_000
    data = frames.data([7, 100, 61, 90, 0])
    assert frames.read_data(sent(data), 61) == [Data(7, 100, 61, 90, 0)]
    assert frames.read_slots(sent(next(frames.leave([1, 2])))) == [1, 2]
    assert frames.read_broker_epoch(sent(frames.alive(9))) == 9
    parted = next(frames.three(frames.PART, [(1, 2, 3)]))
    assert frames.kind_of(parted) == frames.PART
    assert frames.read_three(sent(parted)) == [(1, 2, 3)]
    assert frames.read_pairs(sent(next(frames.no([(1, 74)])))) == [(1, 74)]


def test_ten_thousand_partitions_fit_into_headers() -> None:
    """A header of the peer door has at most 64 KiB."""
    asked = [Follow(LONG, UUID(int=5), 2**31, 2**31, 2**31, LONG, LONG, LONG)] * 10_000
    assert sum(len(frames.read_follow(sent(h))) for h in frames.follow(asked)) == 10_000
    triples = [(LONG, LONG, LONG)] * 10_000
    assert sum(len(frames.read_three(sent(h))) for h in frames.three("part", triples)) == 10_000
    sent(frames.data([LONG] * 5 * frames.PARTITIONS_MAX))
    sent(frames.ack([LONG] * 4 * frames.PARTITIONS_MAX, LONG))


@pytest.mark.parametrize(
    ("read", "header"),
    [
        (frames.kind_of, {}),
        (frames.kind_of, {"k": 3}),
        (frames.read_acks, {"k": "ack", "l": [1, 2]}),
        (frames.read_acks, {"k": "ack", "l": [1, 2, "3", 4]}),
        (frames.read_acks, {"k": "ack", "l": [1, 2, 3, True]}),
        (frames.read_acks, {"k": "ack"}),
        (frames.read_taken, {"k": "ack", "l": []}),
        (frames.read_follow, {"k": "follow", "l": [[1, b"short", 0, 0, 0, 0, 0]]}),
        (frames.read_follow, {"k": "follow", "l": [[1, b"0123456789abcdef", 0, 0, 0, 0]]}),
        (frames.read_follow, {"k": "follow", "l": [7]}),
        (frames.read_slots, {"k": "leave", "l": [None]}),
        (frames.read_broker_epoch, {"k": "alive"}),
    ],
)
def test_what_is_no_frame_is_refused(read: object, header: frames.Header) -> None:
    assert callable(read)
    with pytest.raises(FrameRefused):
        read(header)


def test_sizes_that_are_not_those_of_the_payload_are_refused() -> None:
    with pytest.raises(FrameRefused):
        frames.read_data(frames.data([7, 100, 61, 90, 0]), 60)
    with pytest.raises(FrameRefused):
        frames.read_data(frames.data([7, 100, -1, 90, 0, 8, 0, 1, 0, 0]), 0)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.binary(max_size=20) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=8),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["k", "l", "t", "e"]), anything))
def test_whatever_comes_is_read_or_refused(header: frames.Header) -> None:
    readers = (
        frames.kind_of, frames.read_acks, frames.read_taken, frames.read_follow, frames.read_slots,
        frames.read_broker_epoch, frames.read_three, frames.read_pairs,
        lambda header: frames.read_data(header, 10),
    )  # fmt: skip
    for read in readers:
        try:
            read(header)
        except FrameRefused:
            continue
