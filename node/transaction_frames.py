"""What nodes say to each other about transactions: markers, questions, and codes for an answer."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgpack
from fencepost.cluster.base.errors import ErrorCode, FrameRefused
from fencepost.cluster.base.ids import NO_TIMESTAMP, TopicPartition
from fencepost.cluster.base.ports import Buffer
from fencepost.txn.transactions.marker_sender import Marker
from fencepost.txn.transactions.word_sender import Word as WordAhead

T = TypeVar("T")


class Question(NamedTuple):
    """Is this transaction open, and are these partitions part of it? With `add` they shall be."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    add: bool


def pack_markers(markers: Sequence[Marker]) -> bytes:
    return _pack(
        (
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.commit,
            marker.transaction_version,
            marker.started_ms,
            marker.partitions,
            marker.leader_epochs,
        )
        for marker in markers
    )


def read_markers(payload: Buffer) -> list[Marker]:
    return _read(payload, _marker)


def _marker(row: Sequence[Any]) -> Marker:
    producer_id, producer_epoch, coordinator_epoch, commit, version, started_ms, *places = row
    partitions, leader_epochs = places
    if leader_epochs and len(leader_epochs) != len(partitions):
        raise ValueError(f"{len(partitions)} partitions with {len(leader_epochs)} leader epochs")
    return Marker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
        commit=commit,
        partitions=tuple(TopicPartition(*each) for each in partitions),
        transaction_version=version,
        started_ms=started_ms,
        leader_epochs=tuple(leader_epochs),
    )


def pack_questions(questions: Sequence[Question]) -> bytes:
    return _pack(questions)


def read_questions(payload: Buffer) -> list[Question]:
    return _read(payload, _question)


def _question(row: Sequence[Any]) -> Question:
    transactional_id, producer_id, producer_epoch, partitions, add = row
    places = tuple(TopicPartition(*each) for each in partitions)
    return Question(transactional_id, producer_id, producer_epoch, places, add)


class Word(NamedTuple):
    """A coordinator's answer: a code for each partition, and when the transaction began (its own clock; -1: none)."""

    codes: list[ErrorCode]
    started_ms: int = NO_TIMESTAMP


def pack_words(words: Iterable[Word]) -> bytes:
    return _pack((word.started_ms, *map(int, word.codes)) for word in words)


def read_words(payload: Buffer) -> list[Word]:
    return _read(payload, lambda row: Word([ErrorCode(code) for code in row[1:]], row[0]))


def pack_word(word: WordAhead) -> bytes:
    return _pack([(word.producer_id, word.producer_epoch, word.started_ms, word.places)])


def read_word(payload: Buffer) -> WordAhead:
    """FrameRefused unless it is one."""
    try:
        (word,) = _read(payload, _word)
    except ValueError as damaged:
        raise FrameRefused(f"a peer's word on a transaction is unreadable: {damaged}") from damaged
    return word


def _word(row: Sequence[Any]) -> WordAhead:
    producer_id, producer_epoch, started_ms, places = row
    return WordAhead(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        started_ms=started_ms,
        places=tuple((TopicPartition(*place), leader_epoch) for place, leader_epoch in places),
    )


def pack_codes(answers: Iterable[Sequence[ErrorCode]]) -> bytes:
    return _pack([int(code) for code in codes] for codes in answers)


def read_codes(payload: Buffer) -> list[list[ErrorCode]]:
    return _read(payload, lambda row: [ErrorCode(code) for code in row])


def check_fits(
    answers: Sequence[Sequence[ErrorCode]], asked: Sequence[Sequence[TopicPartition]]
) -> None:
    """FrameRefused unless there is a code for each partition that was asked about."""
    if [*map(len, answers)] != [*map(len, asked)]:
        raise FrameRefused(f"a peer was asked about {len(asked)} transactions and told of others")


def _pack(rows: Iterable[Any]) -> bytes:
    packed: bytes = msgpack.packb(list(rows))
    return packed


def _read(payload: Buffer, read: Callable[[Sequence[Any]], T]) -> list[T]:
    try:
        return [read(row) for row in msgpack.unpackb(payload)]
    except (ValueError, TypeError, IndexError, msgpack.exceptions.UnpackException) as damaged:
        raise FrameRefused(f"a peer's transactions are unreadable: {damaged}") from damaged
