"""A producer, as librdkafka's and Java's are: old ones end transactions with EndTxn 4, new ones with 5.

It knows only what it is told. What it was told of a transaction that it is done with goes to `told`, and is held
against the partitions' logs when all is over.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from chance_cluster import PLACES, Network, Partition, Written
from chance_coordinator import Coordinator
from chance_write import ASKS_AGAIN, Batch, Sending
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TopicPartition
from fencepost.txn.transactions.check_back_commands import (
    AnswerCheck,
    HalfAnswered,
    PrepareHalf,
    Verdict,
)
from fencepost.txn.transactions.check_back_records import HalfState
from fencepost.txn.transactions.commands import (
    ADDED_BEFORE,
    AddPartitions,
    Ended,
    EndTransaction,
    Initialised,
    InitProducerId,
)
from fencepost.txn.transactions.group_commit_commands import (
    EndGroup,
    GroupEnded,
    Identity,
    Refusal,
)

E = ErrorCode
GROUP: Final = "g"
TIMEOUT_MS: Final = 20_000
PAUSE: Final = 40  # turns: long enough for another to take over, and to end a transaction
ENDS_A_PRODUCER: Final = frozenset(
    {
        E.producer_fenced, E.invalid_producer_epoch, E.invalid_producer_id_mapping,
        E.invalid_txn_state,
    }
)  # fmt: skip
ENDS_A_TRANSACTION: Final = frozenset({E.transaction_abortable, E.out_of_order_sequence_number})


class Told(NamedTuple):
    """Of one transaction, or of those of a group that ended together."""

    whose: str
    committed: bool | None  # None: it was never told
    sent: tuple[str, ...]  # the names of its batches
    acknowledged: tuple[str, ...]


@dataclass
class Shared:
    """What all clients of one run share."""

    network: Network
    partitions: Mapping[TopicPartition, Partition]
    coordinator: Coordinator
    clients: list["Client"] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    numbers: int = 0  # of batches, half messages and ends of groups

    def next_number(self) -> int:
        self.numbers += 1
        return self.numbers


@dataclass
class Open:
    """The transaction that a client is in."""

    sent: list[str] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    added: set[TopicPartition] = field(default_factory=set)
    has_begun: bool = False
    is_unsure: bool = False  # a batch may be written or not, so it can't be committed
    must_abort: bool = False
    ending: bool | None = None  # to commit or abort: asked for, and not answered yet
    half_id: str | None = None


class Client:
    def __init__(self, shared: Shared, transactional_id: str, *, is_new: bool) -> None:
        self.transactional_id = transactional_id
        self.is_dead = False
        self.is_busy = False  # waits for an answer
        self.identity: Identity | None = None
        self.open = Open()
        self._is_new = is_new
        self._shared = shared
        self._network = shared.network
        self._sequences: dict[TopicPartition, int] = {}
        self._needs_epoch = False
        self._turns_to_pause = 0

    # -- what it does next -----------------------------------------------------------------------

    def act(self) -> None:
        if self.is_dead or self.is_busy:
            return
        if self._turns_to_pause > 0:
            self._turns_to_pause -= 1
        elif self._network.maybe(0.02 if self.open.has_begun else 0.2):
            self._turns_to_pause = PAUSE
        elif self.identity is None:
            self._init()
        elif self.open.ending is not None:
            self._end(commit=self.open.ending)
        elif self.open.half_id is not None:
            self._decide_half(self.open.half_id)
        elif self._needs_epoch and not self.open.sent:
            self._init(as_whom=self.identity)
        elif self.open.must_abort:
            self._end(commit=False)
        elif not self.open.has_begun:
            self._begin(self._network.chance.random())
        else:
            self._go_on(self._network.chance.random())

    def _begin(self, drawn: float) -> None:
        if drawn < 0.6:
            self._write(self._network.chance.choice(PLACES))
        elif drawn < 0.65:
            self._init(as_whom=self.identity if self._network.maybe(0.5) else None)
        elif drawn < 0.95 and self._is_new:
            self._end(commit=self._network.maybe(0.6))

    def _go_on(self, drawn: float) -> None:
        if drawn < 0.5:
            self._write(self._network.chance.choice(PLACES))
        elif drawn < 0.57 and not self.open.is_unsure:
            self._end_group(commit=self._network.maybe(0.6))
        elif drawn < 0.63 and not self.open.is_unsure:
            self._prepare()
        else:
            self._end(commit=self._network.maybe(0.6) and not self.open.is_unsure)

    def _decide_half(self, half_id: str) -> None:
        drawn = self._network.chance.random()
        if drawn < 0.3:
            self._end(commit=self._network.maybe(0.6))
        elif drawn < 0.5:
            self._answer_check(half_id)

    # -- what it knows ---------------------------------------------------------------------------

    def is_done(self, *, committed: bool | None) -> None:
        """With this transaction: the next has nothing of it."""
        if self.open.sent:
            whose = f"{self.transactional_id} {self.identity}"
            told = Told(whose, committed, tuple(self.open.sent), tuple(self.open.acknowledged))
            self._shared.told.append(told)
        if self.open.is_unsure and not self._is_new:
            self._needs_epoch = True  # KIP-360: its sequences may have a gap
        self.open = Open()

    def die(self, why: object) -> None:
        self._network.say("  dies:", self.transactional_id, self.identity, why)
        self.is_done(committed=None)
        self.is_dead = True

    def _become(self, producer_id: int, producer_epoch: int) -> None:
        identity = Identity(producer_id, producer_epoch)
        if identity != self.identity:
            self._sequences = {}
        self.identity = identity

    def _ask(self, command: Any, heard: Callable[[Any], None]) -> None:
        """A producer that is fenced is over; `heard` is told all else."""
        self.is_busy = True
        who = self.identity

        def hear(reply: Any) -> None:
            self._network.say("  told:", type(command).__name__, who, reply)
            self.is_busy = False
            code = reply.code if isinstance(reply, Refusal) else reply
            if isinstance(code, ErrorCode) and code in ENDS_A_PRODUCER:
                self.die(code)
            else:
                heard(reply)

        self._network.post(lambda: self._shared.coordinator.ask(command, hear))

    def _who(self) -> dict[str, Any]:
        assert self.identity is not None
        return {"transactional_id": self.transactional_id, **self.identity._asdict()}

    # -- to begin and to end ---------------------------------------------------------------------

    def _init(self, as_whom: Identity | None = None) -> None:
        keeps = self._network.maybe(0.05)

        def heard(reply: Any) -> None:
            if not isinstance(reply, Initialised):
                return
            self.is_done(committed=None)
            self._needs_epoch = False
            self._become(reply.producer_id, reply.producer_epoch)
            self._sequences = {}
            if keeps and reply.ongoing_producer_id >= 0:  # KIP-939: the one before left it to it
                self.open.ending = self._network.maybe(0.5)

        command = InitProducerId(
            transactional_id=self.transactional_id,
            timeout_ms=TIMEOUT_MS,
            keep_prepared=keeps,
            **({} if as_whom is None else as_whom._asdict()),
        )
        self._ask(command, heard)

    def _end(self, *, commit: bool) -> None:
        self.open.ending = commit
        is_lost = self._network.maybe(0.2)

        def heard(reply: Any) -> None:
            if isinstance(reply, Ended):
                if not is_lost:
                    self.is_done(committed=commit)
                    self._become(*reply)
            else:
                assert reply in (E.concurrent_transactions, E.not_coordinator), reply

        command = EndTransaction(**self._who(), commit=commit, bumps_epoch=self._is_new)
        self._ask(command, heard)
        if self._is_new and self._network.maybe(0.1):  # KAFKA-17754: of old ones it can't be told
            self._network.post_again(lambda: self._shared.coordinator.ask(command, lambda _: None))

    # -- to write --------------------------------------------------------------------------------

    def _write(self, place: TopicPartition) -> None:
        if not self._is_new and place not in self.open.added:
            self._add(place)
            return
        assert self.identity is not None
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + 1
        written = Written(
            name=f"batch-{self._shared.next_number()}",
            base_sequence=sequence,
            max_timestamp=self._network.now_ms,
            **self.identity._asdict(),
        )
        self.open.sent.append(written.name)
        self.open.has_begun = True
        self.is_busy = True
        partition = self._shared.partitions[place]
        batch = Batch(self.transactional_id, self._is_new, written, partition)

        def tell(code: ErrorCode) -> None:
            self._hear_of_batch(written.name, code)

        Sending(batch, self._network, self._shared.coordinator, tell).send()

    def _add(self, place: TopicPartition) -> None:
        def heard(reply: Any) -> None:
            if reply in (E.none, ADDED_BEFORE):
                self.open.added.add(place)
                self.open.has_begun = True

        self._ask(AddPartitions(**self._who(), partitions=(place,)), heard)

    def _hear_of_batch(self, name: str, code: ErrorCode) -> None:
        self.is_busy = False
        if code is E.none:
            self.open.acknowledged.append(name)
        elif code in ENDS_A_PRODUCER:
            self.die(code)
        else:
            assert code in ASKS_AGAIN | ENDS_A_TRANSACTION, code
            self.open.must_abort = self.open.is_unsure = True

    # -- what no Kafka has -----------------------------------------------------------------------

    def _may_end_with_others(self) -> bool:
        is_free = not (self.is_busy or self.is_dead or self._needs_epoch)
        is_whole = self.open.has_begun and not self.open.is_unsure
        is_undecided = self.open.ending is None and self.open.half_id is None
        return is_free and is_whole and is_undecided

    def _end_group(self, *, commit: bool) -> None:
        """With whoever is in the middle of one at another id of the group."""
        them = {self.transactional_id: self}
        for other in self._shared.clients:
            if other._may_end_with_others():
                them.setdefault(other.transactional_id, other)
        members: dict[str, Identity] = {}
        for each in them.values():
            assert each.identity is not None
            members[each.transactional_id.partition("::")[2]] = each.identity
            each.is_busy = True

        def heard(reply: Any) -> None:
            self._network.say("  told: end of a group", members, commit, reply)
            if isinstance(reply, GroupEnded):
                _are_done(self._shared, list(them.values()), committed=commit)
            for each in them.values():
                each.is_busy = False
                if isinstance(reply, GroupEnded):
                    each._needs_epoch = True
                else:
                    each.open.ending = False

        number = self._shared.next_number()
        command = EndGroup(group=GROUP, number=number, commit=commit, members=members)
        self._network.post(lambda: self._shared.coordinator.ask(command, heard))

    def _prepare(self) -> None:
        number = self._shared.next_number()
        half_id = f"half-{number}"

        def heard(reply: Any) -> None:
            if isinstance(reply, HalfAnswered):
                self.open.half_id = half_id
            else:
                self.open.ending = False

        self._ask(PrepareHalf(**self._who(), half_id=half_id, half_number=number), heard)

    def _answer_check(self, half_id: str) -> None:
        verdict = self._network.chance.choice(list(Verdict))

        def heard(reply: Any) -> None:
            if isinstance(reply, Refusal):
                self.die(reply)
            elif isinstance(reply, HalfAnswered) and reply.half.is_decided:
                self.is_done(committed=reply.half.state is HalfState.COMMITTED)
                self._needs_epoch = True

        command = AnswerCheck(
            transactional_id=self.transactional_id,
            half_id=half_id,
            verdict=verdict,
            by="a checker",
            attempt=1,
        )
        self._ask(command, heard)


def _are_done(shared: Shared, clients: list[Client], *, committed: bool) -> None:
    """What was acknowledged in any of their transactions is shown in all or in none."""
    sent = tuple(name for each in clients for name in each.open.sent)
    acknowledged = tuple(name for each in clients for name in each.open.acknowledged)
    shared.told.append(Told(f"group {GROUP}", committed, sent, acknowledged))
    for each in clients:
        each.is_done(committed=committed)
