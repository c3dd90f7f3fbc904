"""What the frames of a replication stream say: many partitions in each, record batches as the payload.

INVARIANT  a frame is taken only if every number in it is one; a partition is named by its slot, and every time that a
           follower asks it is a new slot, so that what was meant for an earlier asking finds nobody.
PREVENTS   batches of a leader that was deposed, still on their way, written behind a truncation.
PROVED BY  tests/replication/test_stream_frames.py::test_what_is_no_frame_is_refused

    follower -> leader   follow  [[slot, topic id, partition, leader epoch, last epoch, log end, counted end, log start, granted], …]
                         grant   [slot, bytes that may be sent since it was asked (-1: as many as there are), …]
                         ack     [slot, log end, counted end, log start, …], and how many bytes of records were taken so far
                         leave   [slot, …]
                         stuck   [slot, …]: left, because the disk does not take them
                         alive   the follower's broker epoch
    leader -> follower   data    [slot, from, size, high watermark, log start, …] ‖ the batches, one after another
                         piece   [slot, from, size, high watermark, log start] ‖ a part of one batch larger than a frame
                         part    [[slot, epoch, end offset], …]
                         range   [[slot, log start, log end], …]
                         no      [[slot, error code], …]
                         who     [slot] ‖ a snapshot of who wrote what was deleted, to who said in its hello that it takes one
                         alive

The counted end is how far a follower has its log for certain, by its own flush.policy: what it has synced, or all of it.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from fencepost.cluster.base.errors import FrameRefused

STREAM: Final = "replicate"  # the kind of stream, at the peer door
KIND, LIST, TAKEN, EPOCH = "k", "l", "t", "e"
TAKES_PRODUCERS: Final = "w"  # of the hello; followers of an older build would end the stream
FOLLOW, ACK, LEAVE, STUCK, ALIVE, GRANT = "follow", "ack", "leave", "stuck", "alive", "grant"
DATA, PIECE, PART, RANGE, NO, PRODUCERS = "data", "piece", "part", "range", "no", "who"
# A header is at most 64 KiB, and five numbers are at most 45 bytes of it.
PARTITIONS_MAX: Final = 1_000
ASKED_MAX: Final = 500  # with topic ids
UNLIMITED: Final = -1

Header = dict[str, Any]


class Follow(NamedTuple):
    """What a follower has of a partition, and by which leader epoch it asks for more."""

    slot: int
    topic_id: UUID
    partition: int
    leader_epoch: int
    last_epoch: int
    log_end: int
    counted_end: int
    log_start: int
    granted: int = UNLIMITED


class Ack(NamedTuple):
    slot: int
    log_end: int
    counted_end: int
    log_start: int


class Data(NamedTuple):
    """`size` bytes of batches from `offset` on (none: only the other numbers are news)."""

    slot: int
    offset: int
    size: int
    high_watermark: int
    log_start_offset: int


def kind_of(header: Header) -> str:
    kind = header.get(KIND)
    if not isinstance(kind, str):
        raise FrameRefused(f"a frame of a replication stream says nothing: {header!r:.200}")
    return kind


def follow(asked: Sequence[Follow]) -> Iterator[Header]:
    for start in range(0, len(asked), ASKED_MAX):
        part = asked[start : start + ASKED_MAX]
        yield {KIND: FOLLOW, LIST: [[f.slot, f.topic_id.bytes, *f[2:]] for f in part]}


def read_follow(header: Header) -> list[Follow]:
    found = []
    for item in _list(header):
        if not isinstance(item, list) or len(item) != len(Follow._fields):
            raise _refused(header)
        slot, topic_id, *numbers = item
        if not isinstance(topic_id, bytes) or len(topic_id) != 16:
            raise _refused(header)
        slot, *numbers = _numbers(header, [slot, *numbers])
        found.append(Follow(slot, UUID(bytes=topic_id), *numbers))
    return found


def ack(numbers: list[int], taken: int) -> Header:
    """`numbers` are those of the `Ack`s, one after another."""
    return {KIND: ACK, LIST: numbers, TAKEN: taken}


def read_acks(header: Header) -> list[Ack]:
    return [Ack(*each) for each in _tuples(header, 4)]


def read_taken(header: Header) -> int:
    taken = header.get(TAKEN)
    if type(taken) is not int:
        raise _refused(header)
    return taken


def grant(items: Sequence[tuple[int, int]]) -> Iterator[Header]:
    return _pairs(GRANT, items)


def stuck(slot: int) -> Header:
    return {KIND: STUCK, LIST: [slot]}


def leave(slots: Sequence[int]) -> Iterator[Header]:
    for start in range(0, len(slots), PARTITIONS_MAX):
        yield {KIND: LEAVE, LIST: list(slots[start : start + PARTITIONS_MAX])}


def read_slots(header: Header) -> list[int]:
    return _numbers(header, _list(header))


def alive(broker_epoch: int = -1) -> Header:
    return {KIND: ALIVE, EPOCH: broker_epoch}


def read_broker_epoch(header: Header) -> int:
    broker_epoch = header.get(EPOCH)
    if type(broker_epoch) is not int:
        raise _refused(header)
    return broker_epoch


def data(numbers: list[int]) -> Header:
    """`numbers` are those of the `Data`s, one after another; the batches follow in the same order."""
    return {KIND: DATA, LIST: numbers}


def read_data(header: Header, payload: int) -> list[Data]:
    found = [Data(*each) for each in _tuples(header, 5)]
    if sum([each.size for each in found]) != payload or any(each.size < 0 for each in found):
        raise _refused(header)
    return found


def piece(whole: Data) -> Header:
    """A part of its bytes, in their order; `size` is that of the batch."""
    return {KIND: PIECE, LIST: list(whole)}


def read_piece(header: Header) -> Data:
    found = [Data(*each) for each in _tuples(header, 5)]
    if len(found) != 1 or found[0].size < 0:
        raise _refused(header)
    return found[0]


def producers(slot: int) -> Header:
    return {KIND: PRODUCERS, LIST: [slot]}


def read_producers(header: Header) -> int:
    found = read_slots(header)
    if len(found) != 1:
        raise _refused(header)
    return found[0]


def three(kind: str, items: Sequence[tuple[int, int, int]]) -> Iterator[Header]:
    for start in range(0, len(items), PARTITIONS_MAX):
        numbers = [number for item in items[start : start + PARTITIONS_MAX] for number in item]
        yield {KIND: kind, LIST: numbers}


def read_three(header: Header) -> list[tuple[int, int, int]]:
    return [(a, b, c) for a, b, c in _tuples(header, 3)]


def no(items: Sequence[tuple[int, int]]) -> Iterator[Header]:
    return _pairs(NO, items)


def _pairs(kind: str, items: Sequence[tuple[int, int]]) -> Iterator[Header]:
    for start in range(0, len(items), PARTITIONS_MAX):
        yield {
            KIND: kind,
            LIST: [n for item in items[start : start + PARTITIONS_MAX] for n in item],
        }


def read_pairs(header: Header) -> list[tuple[int, int]]:
    """Of `no`: slot and error code. Of `grant`: slot and bytes."""
    return [(slot, number) for slot, number in _tuples(header, 2)]


# -- what came from elsewhere ------------------------------------------------------------------------


def _list(header: Header) -> list[Any]:
    found = header.get(LIST)
    if not isinstance(found, list):
        raise _refused(header)
    return found


def _numbers(header: Header, found: Sequence[object]) -> list[int]:
    for number in found:
        if type(number) is not int:
            raise _refused(header)
    return found  # type: ignore[return-value]


def _tuples(header: Header, length: int) -> Iterator[tuple[int, ...]]:
    numbers = _numbers(header, _list(header))
    if len(numbers) % length:
        raise _refused(header)
    each = iter(numbers)
    return zip(*[each] * length, strict=True)


def _refused(header: Header) -> FrameRefused:
    return FrameRefused(f"a frame of a replication stream can't be read: {header!r:.200}")
