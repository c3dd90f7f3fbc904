"""The coordinator's word to the leaders of partitions that a client has added to its transaction, before they ask.

INVARIANT  a word leaves when what it says is committed, and names the topic's id and the term of the leader that it is for.
PREVENTS   a first batch that is let in on the word of a coordinator whose successor has never heard of its transaction;
           a word that reaches its leader after others led, and ended what it is about; one that lets into a topic made anew
           what was added to the one before, which had its name and, as both begin with one, its leader epoch.
PROVED BY  tests/txn/test_word_sender.py::test_a_word_leaves_when_its_record_is_committed

It is sent once, and may be lost: who has not heard it asks.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol
from uuid import UUID

from fencepost.cluster.base.ids import NO_LEADER, BrokerId
from fencepost.cluster.metadata.image import ClusterImage

from .commands import Opened


class Place(NamedTuple):
    """A partition, and the leader epoch that it is said to."""

    topic_id: UUID
    partition: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A transaction is open in some partitions of one leader."""

    producer_id: int
    producer_epoch: int
    started_ms: int
    places: tuple[Place, ...]


class WordDoor(Protocol):
    def tell(self, broker_id: BrokerId, word: Word, /) -> None:
        """Now or never."""


class WordSender:
    def __init__(self, image: ClusterImage, door: WordDoor) -> None:
        self._image = image
        self._door = door
        self.sent = 0

    def send(self, opened: Opened) -> None:
        by_leader: dict[BrokerId, list[Place]] = {}
        for each in opened.partitions:
            state = self._image.partition(each.topic, each.partition)
            if state is not None and state.leader != NO_LEADER:
                topic_id = self._image.topics[each.topic].topic_id
                place = Place(topic_id, each.partition, state.leader_epoch)
                by_leader.setdefault(state.leader, []).append(place)
        for leader, places in by_leader.items():
            self.sent += 1
            word = Word(
                producer_id=opened.producer_id,
                producer_epoch=opened.producer_epoch,
                started_ms=opened.started_ms,
                places=tuple(places),
            )
            self._door.tell(leader, word)
