"""A transactional producer on the wire, which retries as Java's and librdkafka's do and is honest about what it knows.

INVARIANT  a transaction is `fail` as long as no commit of it was sent, `info` from the first one on, and `ok` when the
           coordinator has said so; a refusal makes it `fail` again only if no earlier commit may have been heard.
PREVENTS   a checker that forgives a torn transaction, or one that cries at a retry whose first attempt had worked.
PROVED BY  tests/chaos/test_txn_client.py::test_a_commit_that_is_refused_after_one_without_an_answer_is_unknown

Both protocols. The old one (`transaction.version` 0) registers partitions with the coordinator before it writes, and keeps
its epoch; only after an abort with batches whose fate is open it asks for the next one (KIP-360). The new one
(KIP-890) just writes, and every end brings the epoch of the next transaction.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode, Outcome, Trouble
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.records import build_batch

from ..checkers.history import Kind
from ..checkers.observations import Ended, Refused
from ..checkers.txn_history import Txn
from .cluster_client import LOOK_AGAIN, ClusterClient
from .coordinator_client import BUSY, GROUP, MOVED, TRANSACTION, Coordinator
from .txn_answers import (
    ABORTABLE,
    FENCED,
    WRITE_AGAIN,
    Abortable,
    BrokenPromise,
    Fenced,
    Partition,
    error_of,
)
from .txn_keys import Written

RETRY_PAUSE_S: Final = 0.1
BUSY_PAUSE_S: Final = 0.02  # Java's, for CONCURRENT_TRANSACTIONS
DELIVERY_S: Final = 12.0
DOOMED_S: Final = 0.5
GIVE_UP_S: Final = 45.0
ACK_TIMEOUT_MS: Final = 3000
# (old, new) versions of what differs between the protocols.
PRODUCE: Final = (11, 12)
PRODUCE_BY_ID: Final = 13  # of the topic
TXN_OFFSET_COMMIT: Final = (4, 5)
END_TXN: Final = (4, 5)
INIT_VERSION: Final = 5
ADD_PARTITIONS_VERSION: Final = 3
ADD_OFFSETS_VERSION: Final = 3


class TransactionalProducer:
    """`init`, then `transact` for each transaction; when `alive` is false, another `init` (or another producer)."""

    def __init__(
        self,
        client: ClusterClient,
        transactional_id: str,
        *,
        new_protocol: bool,
        timeout_ms: int = 10_000,
        doomed: Sequence[str] = (),
        on_refusal: Callable[[Refused], None] = lambda _: None,
        on_end: Callable[[Ended], None] = lambda _: None,
    ) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.new_protocol = new_protocol
        self.timeout_ms = timeout_ms
        self.doomed = frozenset(doomed)  # topics that may be deleted at any time
        self.on_refusal = on_refusal
        self.on_end = on_end
        self.alive = False
        self.producer_id = -1
        self.producer_epoch = -1
        self.by_id = False
        self.tried: list[UUID] = []  # topics that the last batch was sent to; the last one took it
        self.errors: dict[str, int] = {}
        self._coordinator = Coordinator(client, transactional_id, TRANSACTION)
        self._groups: dict[str, Coordinator] = {}
        self._sequences: dict[Partition, int] = {}
        self._added: dict[Partition | str, None] = {}  # in this transaction
        self._open = False  # the coordinator may know of a transaction
        self._unacknowledged = 0
        self._has_written = False  # some of this transaction was acknowledged

    @property
    def _clock(self) -> Any:
        return self.client.env.clock

    async def _pause(self, seconds: float = RETRY_PAUSE_S) -> None:
        await self._clock.sleep(seconds * (0.5 + self.client.env.rng.random()))

    def _count(self, what: str) -> None:
        self.errors[what] = self.errors.get(what, 0) + 1

    # Asking coordinators.

    async def _ask(
        self, coordinator: Coordinator, seconds: float, api_key: ApiKey, version: int, **fields: Any
    ) -> tuple[ErrorCode, Any]:
        """Until there is an answer that is not just "again". Abortable when there is none for too long."""
        deadline = self._clock.steady() + seconds
        while True:
            try:
                reply = await coordinator.ask(api_key, version, **fields)
            except Trouble as trouble:
                self._count(f"{api_key.name}: {trouble.outcome.value}")
                error = ErrorCode.network_exception
            else:
                error = error_of(reply)
                if error not in MOVED and error not in BUSY and error not in LOOK_AGAIN:
                    return error, reply
                self._count(f"{api_key.name}: {error.name}")
            if error in MOVED:
                coordinator.forget()
            if self._clock.steady() > deadline:
                raise Abortable(f"{api_key.name}: {error.name} for {seconds} s")
            await self._pause(BUSY_PAUSE_S if error in BUSY else RETRY_PAUSE_S)

    def _judge(self, what: str, error: ErrorCode, topic: str = "") -> None:
        if error is ErrorCode.none:
            return
        self._count(f"{what}: {error.name}")
        words = f"{what}: {error.name} for {self}"
        if error in FENCED:
            self.alive = False
            self._refused(error)
            raise Fenced(words)
        if error is ErrorCode.invalid_txn_state and topic not in self.doomed:
            self._refused(error)  # of the transaction that is open
        if error in ABORTABLE or topic in self.doomed:
            raise Abortable(words)
        raise BrokenPromise(words)

    def _refused(self, error: ErrorCode) -> None:
        """Java's producer ends here."""
        self.on_refusal(Refused(**self._mine, error=error.name, has_written=self._has_written))

    def __repr__(self) -> str:
        return f"{self.transactional_id} {self.producer_id}/{self.producer_epoch}"

    async def init(self) -> None:
        """A new life of the id: whoever had it is fenced, and what it left open is ended."""
        await self._init(-1, -1)

    async def _init(self, producer_id: int, producer_epoch: int) -> None:
        self.alive = False
        error, reply = await self._ask(
            self._coordinator,
            GIVE_UP_S,
            ApiKey.init_producer_id,
            INIT_VERSION,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        self._judge("init", error)
        self._take_epoch(reply)
        self._finished()
        self.alive = True

    def _take_epoch(self, reply: Any) -> None:
        mine, theirs = (
            (self.producer_id, self.producer_epoch),
            (reply.producer_id, reply.producer_epoch),
        )
        if mine[0] == theirs[0] and mine[1] >= theirs[1]:
            raise BrokenPromise(f"{self} was given {theirs}: epochs only rise")
        if theirs[0] < 0 or theirs[1] < 0:
            raise BrokenPromise(f"{self} was given {theirs}")
        self.producer_id, self.producer_epoch = theirs
        self._sequences.clear()

    def _finished(self) -> None:
        self._added.clear()
        self._open, self._unacknowledged, self._has_written = False, 0, False

    @property
    def _mine(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
        }

    # Writing.

    def _patience(self, topic: str) -> float:
        """How long it is tried; a topic that was deleted may never come back."""
        return DOOMED_S if topic in self.doomed else DELIVERY_S

    async def send(
        self, topic: str, partition: int, payloads: Sequence[bytes | Written]
    ) -> int | None:
        """One batch; its first offset, if the answer has one. Abortable, Fenced."""
        self._open = True
        if not self.new_protocol and (topic, partition) not in self._added:
            mine = {f"v3_and_below_{name}": value for name, value in self._mine.items()}
            error, _ = await self._ask(
                self._coordinator,
                self._patience(topic),
                ApiKey.add_partitions_to_txn,
                ADD_PARTITIONS_VERSION,
                v3_and_below_topics=[{"name": topic, "partitions": [partition]}],
                **mine,
            )
            self._judge("add partitions", error, topic)
            self._added[topic, partition] = None
        self._unacknowledged += 1
        sequence = self._sequences.get((topic, partition), 0)
        self._sequences[topic, partition] = sequence + len(payloads)
        records, codec = self.client.dress((topic, partition), payloads)
        batch = build_batch(
            records,
            compression=codec,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        offset = await self._produce(topic, partition, bytes(batch))
        self._unacknowledged -= 1
        self._has_written = True
        return offset

    async def _produce(self, topic: str, partition: int, batch: bytes) -> int | None:
        patience, version = self._patience(topic), PRODUCE[self.new_protocol]
        deadline = self._clock.steady() + patience
        part = {"index": partition, "records": batch}
        self.tried.clear()
        while True:
            try:
                leader = await self.client.leader_now(topic, partition)
                named = {"topic_id": leader.topic_id} if self.by_id else {"name": topic}
                self.tried += [leader.topic_id] if self.by_id else []
                reply = await leader.wire.request(
                    ApiKey.produce,
                    PRODUCE_BY_ID if self.by_id else version,
                    transactional_id=self.transactional_id,
                    acks=-1,
                    timeout_ms=ACK_TIMEOUT_MS,
                    topic_data=[{**named, "partition_data": [part]}],
                )
            except Trouble as trouble:
                self._count(f"produce: {trouble.outcome.value}")
                error = ErrorCode.network_exception
                known = self.client.leader(topic, partition)
                if known is not None:
                    self.client.forget(topic, partition, known)
                    if trouble.outcome is Outcome.UNKNOWN:
                        await self.client.drop(known.wire)
            else:
                answer = reply.responses[0].partition_responses[0]
                error = answer.error_code
                if error is ErrorCode.none:
                    return int(answer.base_offset)
                if error is ErrorCode.duplicate_sequence_number:
                    return None
                if error in LOOK_AGAIN:
                    self.client.forget(topic, partition, leader)
                elif error not in WRITE_AGAIN:
                    self._judge(f"produce to {topic}-{partition}", error, topic)
                self._count(f"produce: {error.name}")
            if self._clock.steady() > deadline:
                raise Abortable(f"produce to {topic}-{partition}: {error.name} for {patience} s")
            await self._pause(BUSY_PAUSE_S if error in BUSY else RETRY_PAUSE_S)

    async def send_offsets(
        self,
        group: str,
        offsets: Mapping[Partition, int],
        metadata: str,
        *,
        generation: int = -1,
        member_id: str = "",
    ) -> None:
        """Positions of a group, in this transaction. Abortable (also when the group has moved on), Fenced."""
        self._open = True
        if not self.new_protocol and group not in self._added:
            error, _ = await self._ask(
                self._coordinator,
                DELIVERY_S,
                ApiKey.add_offsets_to_txn,
                ADD_OFFSETS_VERSION,
                group_id=group,
                **self._mine,
            )
            self._judge("add offsets", error)
            self._added[group] = None
        self._unacknowledged += 1
        topics = []
        for (topic, partition), offset in offsets.items():
            place = {"partition_index": partition, "committed_offset": offset}
            partitions = [{**place, "committed_metadata": metadata}]
            topics.append({"name": topic, "partitions": partitions})
        coordinator = self._groups.setdefault(group, Coordinator(self.client, group, GROUP))
        error, _ = await self._ask(
            coordinator,
            DELIVERY_S,
            ApiKey.txn_offset_commit,
            TXN_OFFSET_COMMIT[self.new_protocol],
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=None,
            topics=topics,
            **self._mine,
        )
        self._judge("offsets", error)
        self._unacknowledged -= 1
        self._has_written = True

    # Ending.

    async def transact(
        self, op: Txn, work: Callable[[], Awaitable[None]], *, commit: bool = True
    ) -> None:
        """One transaction; `op` always says what is known of it, even when this is cancelled in the middle."""
        op.type, op.why, op.began_s = "fail", "not ended", self._clock.steady()
        try:
            await work()
            if commit:
                await self._commit(op)
                return
            op.why = "aborted on purpose"
        except Fenced as fenced:
            op.why = str(fenced)
            return
        except Abortable as abortable:
            op.why = str(abortable)
        finally:
            op.ended_s = self._clock.steady()
        await self._abort()

    async def _commit(self, op: Txn) -> None:
        if not self._open:
            op.type, op.why = "ok", ""
            return
        op.type, op.why = "info", "commit without an answer"
        op.type, op.why = await self._end(commit=True)
        if op.type == "ok":
            return
        if self.alive and op.type == "fail":
            await self._abort()
        else:
            self.alive = False

    async def _abort(self) -> None:
        if not self._open:
            return
        bump = self._unacknowledged and not self.new_protocol
        kind, _ = await self._end(commit=False)
        if kind != "ok":
            self.alive = False
        elif bump:
            try:
                await self._init(self.producer_id, self.producer_epoch)
            except (Abortable, Fenced):
                self.alive = False

    async def _end(self, *, commit: bool) -> tuple[Kind, str]:
        """What became of it, as far as this producer can know."""
        refused: Kind = "fail"
        deadline = self._clock.steady() + GIVE_UP_S
        while self._clock.steady() < deadline:
            try:
                reply = await self._coordinator.ask(
                    ApiKey.end_txn, END_TXN[self.new_protocol], committed=commit, **self._mine
                )
            except Trouble as trouble:
                self._count(f"end: {trouble.outcome.value}")
                if trouble.outcome is Outcome.UNKNOWN:
                    refused = "info"
                await self._pause()
                continue
            error = reply.error_code
            if error is ErrorCode.none:
                self.on_end(Ended(**self._mine, commit=commit))
                if self.new_protocol:
                    self._take_epoch(reply)
                self._finished()
                return "ok", ""
            self._count(f"end: {error.name}")
            self.alive = self.alive and error not in FENCED
            if error in FENCED or (commit and error is ErrorCode.invalid_txn_state):
                self._refused(error)
            if error in FENCED or error in ABORTABLE:
                return refused, f"end: {error.name} for {self}"
            if error in MOVED:
                refused = "info"  # it may have been written before it was lost
                self._coordinator.forget()
            elif error not in BUSY:
                raise BrokenPromise(f"end: {error.name} for {self}")
            await self._pause(BUSY_PAUSE_S if error in BUSY else RETRY_PAUSE_S)
        self.alive = False
        return "info", f"end: no answer for {GIVE_UP_S} s"
