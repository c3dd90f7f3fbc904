"""What nodes say to each other about transactions is read, or refused: nothing in between ends a process."""

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest
from fencepost.cluster.base.errors import ErrorCode, FrameRefused
from fencepost.cluster.base.ids import BrokerId, TopicPartition
from fencepost.node.transaction_doors import MarkersBetweenNodes, Verifier, _Asking
from fencepost.node.transaction_frames import (
    Question,
    Word,
    pack_codes,
    pack_words,
    read_markers,
    read_questions,
    read_word,
    read_words,
)
from fencepost.txn.transactions.marker_sender import Marker


def test_words_are_read_as_they_were_said() -> None:
    words = [Word([ErrorCode.none, ErrorCode.not_coordinator], 17), Word([])]
    assert read_words(pack_words(words)) == words


def test_a_word_without_a_beginning_is_refused_as_unreadable() -> None:
    """An IndexError is no Trouble: nobody who asks catches it."""
    with pytest.raises(FrameRefused, match="unreadable"):
        read_words(msgpack.packb([[]]))


class Door:
    """A coordinator, or a leader, whose every answer is this one."""

    def __init__(self, reply: bytes) -> None:
        self._reply = reply

    def on_request(self, _kind: str, _serve: Any) -> None:
        pass

    async def request(self, *_said: Any, **_more: Any) -> tuple[dict[str, Any], bytes]:
        return {}, self._reply


PLACE = TopicPartition("pay", 0)


@pytest.mark.parametrize("words", [[], [Word([])], [Word([ErrorCode.none] * 2)]])
def test_who_asked_hears_something_when_the_words_are_too_few_or_too_many(
    words: list[Word],
) -> None:
    """Else the task ends, and with it the process; and the producer's batch waits."""
    anything: Any = SimpleNamespace()
    door: Any = Door(pack_words(words))
    verifier = Verifier(
        env=anything, node_id=BrokerId(1), image=anything, replicas=anything,
        transactions=anything, door=door, confirm_image=anything,
    )  # fmt: skip

    async def ask() -> Word:
        answered: asyncio.Future[Word] = asyncio.get_running_loop().create_future()
        question = Question("t", 7, 0, (PLACE,), False)
        await verifier._request(BrokerId(2), _Asking(), [(question, answered, None)])
        return answered.result()

    assert asyncio.run(ask()) == Word([ErrorCode.network_exception])


@pytest.mark.parametrize("codes", [[], [[]]])
def test_an_answer_about_other_markers_is_trouble(codes: list[list[ErrorCode]]) -> None:
    anything: Any = SimpleNamespace(partitions=(PLACE,))
    door: Any = Door(pack_codes(codes))
    between = MarkersBetweenNodes(BrokerId(1), door, anything)
    marker = Marker(
        producer_id=7,
        producer_epoch=0,
        coordinator_epoch=0,
        commit=True,
        partitions=(PLACE,),
        transaction_version=2,
    )
    with pytest.raises(FrameRefused):
        asyncio.run(between.write(BrokerId(2), [marker]))


# Who reads what a peer says, and something that is well said.
SAID: list[tuple[Callable[[bytes], Any], list[Any]]] = [
    (read_markers, [[7, 0, 3, True, 2, 17, [["pay", 0]], [5]]]),
    (read_questions, [["t", 7, 0, [["pay", 0]], False]]),
    (read_words, [[17]]),
    (read_word, [[7, 0, 17, [[bytes(16), 0, 5]]]]),
]
ODD = (None, True, 7, 1.5, "x", b"x", [], {})


def with_one_changed(said: Any) -> Iterator[Any]:
    """Each of its values by others in turn: of other types, and numbers that no record has room for."""
    if isinstance(said, list):
        for at, value in enumerate(said):
            for changed in with_one_changed(value):
                yield [*said[:at], changed, *said[at + 1 :]]
    else:
        yield from (odd for odd in ODD if type(odd) is not type(said))
        if type(said) is int:
            yield 2**63


@pytest.mark.parametrize(("read", "said"), SAID)
def test_what_has_another_type_than_belongs_there_is_refused(
    read: Callable[[bytes], Any], said: list[Any]
) -> None:
    """Else it is the one who acts upon it that ends, and with it the process: no record holds an epoch of 70,000."""
    read(msgpack.packb(said))
    for changed in with_one_changed(said):
        with pytest.raises(FrameRefused):
            read(msgpack.packb(changed))


LOWEST = [["t", -(2**63), -(2**15), [["pay", -(2**31)]], False]]


def test_whatever_a_client_can_say_of_itself_can_be_asked_of_a_coordinator() -> None:
    """An epoch of -32768 was called unreadable: each try ended a connection between two nodes, and all that was under way on it."""
    (question,) = read_questions(msgpack.packb(LOWEST))
    assert question == Question("t", -(2**63), -(2**15), (TopicPartition("pay", -(2**31)),), False)


@pytest.mark.parametrize(("at", "odd"), [(2, -(2**15) - 1), (2, 2**15), (1, 2**63)])
def test_what_no_client_can_say_is_refused(at: int, odd: int) -> None:
    (said,) = LOWEST
    with pytest.raises(FrameRefused):
        read_questions(msgpack.packb([[*said[:at], odd, *said[at + 1 :]]]))
