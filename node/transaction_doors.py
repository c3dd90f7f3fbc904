"""Transactions between nodes: markers on their way to partitions, and partitions' questions on their way to coordinators.

INVARIANT  a partition takes the first batch of a transaction only on the word of its coordinator, given after the last
           marker that is in this log; a marker is answered for when it is committed.
PREVENTS   a late write of a transaction that has ended, which nothing would ever end again (KIP-890, KAFKA-14402).
PROVED BY  tests/node/test_first_writes.py::test_a_late_write_of_a_finished_transaction_is_refused

Both go by the peer door, never by the clients' one; a node that is itself the other side is asked without any door.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from fencepost.cluster.base.errors import ErrorCode, LogDamaged, Outcome, Trouble
from fencepost.cluster.base.ids import (
    NO_LEADER,
    NO_TIMESTAMP,
    TRANSACTION_STATE_TOPIC,
    BrokerId,
    TopicPartition,
)
from fencepost.cluster.base.ports import Buffer, Env
from fencepost.cluster.base.request_scope import (
    RequestScope,
    enter_scope,
    joined,
    kept_scope,
)
from fencepost.cluster.metadata.image import ClusterImage
from fencepost.cluster.wire.batch import BatchHeader
from fencepost.cluster.wire.peer_door import PeerDoor
from fencepost.replication.log.producer_verdicts import Refused
from fencepost.replication.log.verifications_machine import NO_GUARD
from fencepost.replication.manager import ReplicaManager
from fencepost.replication.partition import Partition
from fencepost.txn.runtime.ownership import partition_for
from fencepost.txn.transactions.ids import transactional_partition_key
from fencepost.txn.transactions.marker_sender import Marker
from fencepost.txn.transactions.service import FEATURE, TransactionService
from fencepost.txn.transactions.transaction import EPOCH_BUMP_VERSION

from .marker_writer import WRITE_S_MAX, Codes, MarkerWriter
from .transaction_frames import (
    Question,
    Word,
    check_fits,
    pack_codes,
    pack_markers,
    pack_questions,
    pack_words,
    read_codes,
    read_markers,
    read_questions,
    read_words,
)
from .verdict_codes import ASK_AGAIN, PASSING

E = ErrorCode
WRITE, VERIFY = "write_txn_markers", "verify_transactions"
# What is not committed by then is sent again: a partition that can't commit must not hold up the other transactions
# whose markers came with it.
ANSWER_S_MAX: Final = 0.5
# One question; then it is asked again, for there may be another coordinator. Well above what a transaction waits for
# its markers in a cluster that is well.
ASK_S_MAX: Final = 2.0
SURE_S_MAX: Final = 1.5  # of that, until a coordinator knows that it still is one
# All attempts together: below what a client's produce request waits, and above a change of the coordinator.
VERIFY_S_MAX: Final = 5.0
PAUSE_S, PAUSE_S_MAX = 0.02, 0.2
# How often a question is asked anew because a marker came before its answer.
WORDS_MAX: Final = 5
# Questions on their way to one coordinator; more wait, and go together.
ASKED_MAX: Final = 64


class MarkersBetweenNodes:
    """What the coordinators of this node write by, and what it does for those of others (`MarkerDoor`)."""

    def __init__(self, node_id: BrokerId, door: PeerDoor | None, writer: MarkerWriter) -> None:
        self._node_id = node_id
        self._door = door
        self._writer = writer
        if door is not None:
            door.on_request(WRITE, self._on_write)

    async def write(self, broker_id: BrokerId, markers: Sequence[Marker], /) -> Sequence[Codes]:
        if broker_id == self._node_id:
            return await self._writer.write_here(markers, wait_s=ANSWER_S_MAX)
        if self._door is None:
            raise Trouble(f"a node alone can't reach node {broker_id}", Outcome.REFUSED)
        packed = pack_markers(markers)
        _, reply = await self._door.request(broker_id, WRITE, {}, packed, timeout_s=WRITE_S_MAX)
        answers = read_codes(reply)
        check_fits(answers, [marker.partitions for marker in markers])
        return [
            dict(zip(marker.partitions, codes, strict=True))
            for marker, codes in zip(markers, answers, strict=True)
        ]

    async def _on_write(
        self, _peer_id: BrokerId, _header: dict[str, Any], payload: memoryview
    ) -> tuple[Mapping[str, Any], Buffer]:
        markers = read_markers(payload)
        answers = await self._writer.write_here(markers, wait_s=ANSWER_S_MAX)
        return {}, pack_codes(
            [answer[each] for each in marker.partitions]
            for marker, answer in zip(markers, answers, strict=True)
        )


class FirstWrite(NamedTuple):
    """A batch that begins a transaction in a partition, as far as that one knows."""

    partition: Partition
    producer_id: int
    producer_epoch: int
    sequence: int
    guard: int


def _confirm(write: FirstWrite, started_ms: int) -> bool:
    partition = write.partition
    return partition.closed is not None or partition.producers.verifications.confirm(
        write.producer_id, write.producer_epoch, write.guard, started_ms
    )


def _forget(write: FirstWrite) -> None:
    """Or whoever makes up producer ids would fill the memory with them."""
    if write.partition.closed is None:
        verifications = write.partition.producers.verifications
        verifications.forget(write.producer_id, write.producer_epoch, write.guard)


# Whose request it is for goes with it.
_Asked = tuple[Question, asyncio.Future[Word], RequestScope | None]


class _Asking:
    """What is asked of one coordinator."""

    __slots__ = ("on_the_way", "waiting")

    def __init__(self) -> None:
        self.on_the_way = 0
        self.waiting: list[_Asked] = []


class Verifier:
    """Asks coordinators whether a transaction is open, for the partitions that this node leads."""

    def __init__(
        self,
        *,
        env: Env,
        node_id: BrokerId,
        image: ClusterImage,
        replicas: ReplicaManager,
        transactions: TransactionService,
        door: PeerDoor | None,
        confirm_image: Callable[[float], Awaitable[bool]],
    ) -> None:
        self._confirm_image = confirm_image
        self._env = env
        self._node_id = node_id
        self._image = image
        self._replicas = replicas
        self._transactions = transactions
        self._door = door
        self._asking: dict[BrokerId, _Asking] = {}
        self._is_stopped = False
        self.asked = 0
        if door is not None:
            door.on_request(VERIFY, self._on_verify)

    def stop(self) -> None:
        """Nobody is asked again: clients are to look for other nodes."""
        self._is_stopped = True

    # -- what is to be asked ---------------------------------------------------------------------

    def first_write(
        self, partition: Partition, header: BatchHeader, *, add: bool
    ) -> FirstWrite | ErrorCode | None:
        """What must be asked before this batch may be written; nothing once the transaction is under way there."""
        return self._start(
            partition, header.producer_id, header.base_sequence, header.producer_epoch, add=add
        )

    def _start(
        self,
        partition: Partition,
        producer_id: int,
        sequence: int,
        producer_epoch: int,
        *,
        add: bool,
    ) -> FirstWrite | ErrorCode | None:
        try:
            producers = partition.producers
        except (OSError, LogDamaged):
            return None  # writing says what is wrong
        if not (add or producers.verify_transactions):
            return None
        guard = producers.start_verification(
            producer_id,
            sequence,
            producer_epoch,
            supports_epoch_bump=add,
            now_ms=self._env.clock.now_ms(),
        )
        if isinstance(guard, Refused):
            return guard.error
        if guard == NO_GUARD:
            return None
        return FirstWrite(partition, producer_id, producer_epoch, sequence, guard)

    # -- asking ----------------------------------------------------------------------------------

    async def verify(
        self, transactional_id: str, writes: Sequence[FirstWrite], *, add: bool
    ) -> list[ErrorCode]:
        """For all that one producer begins together: `none`, and the batch may be written; or why not.

        With `add` the partitions become part of the transaction (transaction.version 2).
        """
        add = add and self._image.features.get(FEATURE, 0) >= EPOCH_BUMP_VERSION
        codes: dict[TopicPartition, ErrorCode] = {}
        left = list(writes)
        for _ in range(WORDS_MAX):
            question = Question(
                transactional_id,
                left[0].producer_id,
                left[0].producer_epoch,
                tuple(write.partition.topic_partition for write in left),
                add,
            )
            said, started_ms = await self._until_answered(question)
            codes.update(zip(question.partitions, said, strict=True))
            for write, code in zip(left, said, strict=True):
                if code is not E.none and not (code in PASSING and self._has_coordinators):
                    _forget(write)
            late = [
                write
                for write, code in zip(left, said, strict=True)
                if code is E.none and not _confirm(write, started_ms)
            ]
            left = self._start_again(late, codes, add=add)
            if not left:
                break
        # Whose word came too late each time is refused when it is written.
        return [codes[write.partition.topic_partition] for write in writes]

    def _start_again(
        self, late: Sequence[FirstWrite], codes: dict[TopicPartition, ErrorCode], *, add: bool
    ) -> list[FirstWrite]:
        """A marker came between the question and its answer, and nobody can tell which transaction the answer is of.

        1. a transaction ends, its markers are on their way   2. the next one's first batch comes, and its question
        waits at the coordinator for those markers   3. the marker is written here   4. the answer comes.
        """
        again = []
        for write in late:
            started = self._start(
                write.partition, write.producer_id, write.sequence, write.producer_epoch, add=add
            )
            if isinstance(started, ErrorCode):
                codes[write.partition.topic_partition] = started
            elif started is not None:
                again.append(started)
        return again

    async def verify_producer(
        self,
        place: TopicPartition,
        *,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        add: bool,
    ) -> ErrorCode:
        """The same for offsets that are to be stored in a transaction: `place` keeps the positions of the group."""
        partition = self._replicas.partition(place)
        if isinstance(partition, ErrorCode):
            return E.not_coordinator
        write = self._start(partition, producer_id, -1, producer_epoch, add=add)
        if write is None or isinstance(write, ErrorCode):
            return write or E.none
        (code,) = await self.verify(transactional_id, [write], add=add)
        return code

    async def _until_answered(self, question: Question) -> Word:
        steady = self._env.clock.steady
        deadline, pause_s = steady() + VERIFY_S_MAX, PAUSE_S
        while True:
            word = await self._ask(question)
            if ASK_AGAIN.isdisjoint(word.codes) or steady() + pause_s >= deadline:
                return word
            if self._is_stopped or not self._has_coordinators:
                return word
            await self._env.clock.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_S_MAX)

    @property
    def _has_coordinators(self) -> bool:
        """If not, nobody has ever begun a transaction, and nobody who comes again will be known then."""
        return TRANSACTION_STATE_TOPIC in self._image.topics

    async def _ask(self, question: Question) -> Word:
        self.asked += 1
        coordinator = self._coordinator_of(question.transactional_id)
        if coordinator == self._node_id:
            return await self._answer(question)
        if self._door is None or coordinator not in self._door.connected():
            # It may be dead: who comes after it is known in a moment.
            return Word([E.coordinator_not_available] * len(question.partitions))
        asking = self._asking.setdefault(coordinator, _Asking())
        answered: asyncio.Future[Word] = asyncio.get_running_loop().create_future()
        asking.waiting.append((question, answered, kept_scope()))
        if asking.on_the_way < ASKED_MAX:
            self._send(coordinator, asking)
        return await answered

    def _coordinator_of(self, transactional_id: str) -> BrokerId:
        topic = self._image.topics.get(TRANSACTION_STATE_TOPIC)
        if topic is None:
            return NO_LEADER
        index = partition_for(transactional_partition_key(transactional_id), len(topic.partitions))
        state = self._image.partition(TRANSACTION_STATE_TOPIC, index)
        return NO_LEADER if state is None else state.leader

    def _send(self, coordinator: BrokerId, asking: _Asking) -> None:
        together, asking.waiting = asking.waiting, []
        asking.on_the_way += 1
        work = self._request(coordinator, asking, together)
        self._env.tasks.spawn(work, name=f"verify at {coordinator}")

    async def _request(
        self,
        coordinator: BrokerId,
        asking: _Asking,
        together: list[_Asked],
    ) -> None:
        assert self._door is not None
        enter_scope(joined(scope for _, _, scope in together))
        packed = pack_questions([question for question, _, _ in together])
        words: list[Word]
        try:
            _, reply = await self._door.request(
                coordinator, VERIFY, {}, packed, timeout_s=ASK_S_MAX
            )
            words = read_words(reply)
            check_fits([word.codes for word in words], [each.partitions for each, _, _ in together])
        except Trouble:
            # Asking changes nothing that asking again would not: it may be asked again.
            words = [Word([E.network_exception] * len(each.partitions)) for each, _, _ in together]
        finally:
            asking.on_the_way -= 1
        for (_, answered, _), word in zip(together, words, strict=True):
            if not answered.done():  # its client may have gone
                answered.set_result(word)
        if asking.waiting:
            self._send(coordinator, asking)

    # -- answering -------------------------------------------------------------------------------

    async def _answer(self, question: Question) -> Word:
        transactional_id, producer_id, producer_epoch, partitions, add = question
        if not (add or await self._confirm_image(SURE_S_MAX)):
            # Another may have ended it meanwhile, and a late write would hang in the partition for ever. (What is added is
            # a record, which nobody writes who does not lead; and its epoch is over with its transaction.)
            return Word([E.not_coordinator] * len(partitions))
        found = await self._transactions.verify(
            transactional_id, producer_id, producer_epoch, partitions, add=add
        )
        # Should it have ended meanwhile, its markers were here before this word, which then counts for nothing.
        started_ms = self._transactions.started_ms(transactional_id)
        codes = [found[each] for each in partitions]
        if started_ms == NO_TIMESTAMP:
            # It has gone to another coordinator in this moment, or is over: a yes that does not say of which transaction
            # would leave the partition nothing to tell a late marker of the one before by.
            codes = [E.not_coordinator if code is E.none else code for code in codes]
        return Word(codes, started_ms)

    async def _on_verify(
        self, _peer_id: BrokerId, _header: dict[str, Any], payload: memoryview
    ) -> tuple[Mapping[str, Any], Buffer]:
        questions = read_questions(payload)
        if len(questions) == 1:
            return {}, pack_words([await self._answer(questions[0])])
        return {}, pack_words(await asyncio.gather(*map(self._answer, questions)))
