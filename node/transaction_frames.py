"""What nodes say to each other about transactions: markers, questions, and codes for an answer."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import msgpack
from fencepost.cluster.base.errors import ErrorCode, FrameRefused
from fencepost.cluster.base.ids import NO_TIMESTAMP, TopicPartition
from fencepost.cluster.base.ports import Buffer
from fencepost.txn.transactions.marker_sender import Marker
from fencepost.txn.transactions.word_sender import Place
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
        producer_id=_number(producer_id, 64),
        producer_epoch=_number(producer_epoch, 16),
        coordinator_epoch=_number(coordinator_epoch, 32),
        commit=_flag(commit),
        partitions=_places(partitions),
        transaction_version=_number(version, 16),
        started_ms=_number(started_ms, 64),
        leader_epochs=tuple(_number(each, 32) for each in leader_epochs),
    )


def pack_questions(questions: Sequence[Question]) -> bytes:
    return _pack(questions)


def read_questions(payload: Buffer) -> list[Question]:
    return _read(payload, _question)


def _question(row: Sequence[Any]) -> Question:
    transactional_id, producer_id, producer_epoch, partitions, add = row
    who = _name(transactional_id), _number(producer_id, 64), _number(producer_epoch, 16)
    return Question(*who, _places(partitions), _flag(add))


class Word(NamedTuple):
    """A coordinator's answer: a code for each partition, and when the transaction began (its own clock; -1: none)."""

    codes: list[ErrorCode]
    started_ms: int = NO_TIMESTAMP


def pack_words(words: Iterable[Word]) -> bytes:
    return _pack((word.started_ms, *map(int, word.codes)) for word in words)


def read_words(payload: Buffer) -> list[Word]:
    return _read(
        payload, lambda row: Word([ErrorCode(code) for code in row[1:]], _number(row[0], 64))
    )


def pack_word(word: WordAhead) -> bytes:
    places = [(each.topic_id.bytes, each.partition, each.leader_epoch) for each in word.places]
    return _pack([(word.producer_id, word.producer_epoch, word.started_ms, places)])


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
        producer_id=_number(producer_id, 64),
        producer_epoch=_number(producer_epoch, 16),
        started_ms=_number(started_ms, 64),
        places=tuple(
            Place(_id(topic_id), _number(partition, 32), _number(term, 32))
            for topic_id, partition, term in places
        ),
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


def _places(rows: Iterable[Sequence[Any]]) -> tuple[TopicPartition, ...]:
    return tuple(map(_place, rows))


def _place(row: Sequence[Any]) -> TopicPartition:
    topic, partition = row
    return TopicPartition(_name(topic), _number(partition, 32))


def _id(value: Any) -> UUID:
    if type(value) is not bytes:
        raise ValueError(f"{value!r:.50} is no id")
    return UUID(bytes=value)  # ValueError unless it has 16 of them


def _number(value: Any, bits: int) -> int:
    """What a record, or a request, has room for. ValueError otherwise, as below."""
    if type(value) is not int or not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"{value!r:.50} is no number of {bits} bits")
    return value


def _name(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"{value!r:.50} is no name")
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"{value!r:.50} is neither yes nor no")
    return value


def _pack(rows: Iterable[Any]) -> bytes:
    packed: bytes = msgpack.packb(list(rows))
    return packed


def _read(payload: Buffer, read: Callable[[Sequence[Any]], T]) -> list[T]:
    try:
        return [read(row) for row in msgpack.unpackb(payload)]
    except (ValueError, TypeError, IndexError, msgpack.exceptions.UnpackException) as damaged:
        raise FrameRefused(f"a peer's transactions are unreadable: {damaged}") from damaged
