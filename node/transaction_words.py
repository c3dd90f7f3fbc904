"""Words of coordinators on transactions that have begun, sent ahead to the leaders that would have to ask for them.

INVARIANT  a word counts only for the topic and the leader epoch that it names, and not once a marker has come for its transaction.
PREVENTS   a write that is let in after its transaction has ended, which nothing would ever end again.
PROVED BY  tests/node/test_transaction_words.py::test_a_word_that_comes_after_its_transaction_has_ended_counts_for_nothing
           tests/sim/test_words_of_another_life.py
"""

from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode, LogDamaged
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.ports import Clock
from fencepost.cluster.wire.peer_door import PeerDoor
from fencepost.replication.log.producer_snapshot import SEQUENCE_MAX
from fencepost.replication.log.producer_verdicts import Refused
from fencepost.replication.log.verifications_machine import NO_GUARD
from fencepost.replication.manager import ReplicaManager
from fencepost.txn.transactions.word_sender import Place, Word

from .transaction_frames import pack_word, read_word

OPENED: Final = "transaction_opened_in"
# Of nodes before 2026-12, which named topics and not their ids. It may be meant for a topic that is gone: it is passed over,
# and who would have been let in on it is asked about.
OPENED_BY_NAME: Final = "transaction_opened"


class WordsAhead:
    """What the coordinators of this node tell leaders by, and how those of others are heard (`WordDoor`)."""

    def __init__(
        self, clock: Clock, node_id: BrokerId, replicas: ReplicaManager, door: PeerDoor | None
    ) -> None:
        self._clock = clock
        self._node_id = node_id
        self._replicas = replicas
        self._door = door
        self.taken = 0
        if door is not None:
            door.on_message(OPENED, self._on_opened)
            door.on_message(OPENED_BY_NAME, self._on_opened_by_name)

    def tell(self, broker_id: BrokerId, word: Word, /) -> None:
        if broker_id == self._node_id:
            self.take(word)
        elif self._door is not None:
            self._door.send(broker_id, OPENED, {}, pack_word(word))

    def _on_opened(self, _peer_id: BrokerId, _header: dict[str, Any], payload: memoryview) -> None:
        self.take(read_word(payload))

    def _on_opened_by_name(self, _peer_id: BrokerId, _header: Any, _payload: memoryview) -> None:
        """Passed over."""

    def take(self, word: Word) -> None:
        for place in word.places:
            self.taken += self._confirm(place, word)

    def _confirm(self, place: Place, word: Word) -> bool:
        partition = self._replicas.partition_by_id(place.topic_id, place.partition)
        if (
            isinstance(partition, ErrorCode)
            or partition.topic_id != place.topic_id
            or not partition.is_leader
            or partition.leader_epoch != place.leader_epoch
        ):
            return False
        try:
            producers = partition.producers
        except (OSError, LogDamaged):
            return False  # writing says what is wrong
        who = word.producer_id, word.producer_epoch
        verifications = producers.verifications
        if not producers.verify_transactions or verifications.is_over(*who, word.started_ms):
            return False
        # As of a batch that any other may come before: its first batch says which sequence is the lowest.
        guard = producers.start_verification(
            word.producer_id,
            SEQUENCE_MAX,
            word.producer_epoch,
            supports_epoch_bump=False,
            now_ms=self._clock.now_ms(),
        )
        if isinstance(guard, Refused) or guard == NO_GUARD:
            return False
        return verifications.confirm(*who, guard, word.started_ms)
