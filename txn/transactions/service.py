"""The transaction coordinator of one node: one method for each API, plain values in and out.

INVARIANT  a transactional id is answered for by the shard of its partition, or by an error that sends the client on.
PREVENTS   a node that lost a partition going on to speak for the transactions in it.
PROVED BY  tests/txn/test_transaction_service.py::test_only_the_leader_of_its_partition_answers_for_a_transactional_id

Who may ask is the handlers' business (`node/handlers`). What becomes of a transaction is decided by its machine.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.base.ids import (
    GROUP_OFFSETS_TOPIC,
    NO_TIMESTAMP,
    TRANSACTION_STATE_TOPIC,
    BrokerId,
    TopicPartition,
)
from fencepost.cluster.base.ports import Env
from fencepost.cluster.metadata.image import ClusterImage, ImageDelta

from ..runtime.connections import Connections
from ..runtime.coordinator import Coordinator, Partitions
from ..runtime.decision import Fields
from ..runtime.loader import Loader
from ..runtime.moments import Age
from ..runtime.ownership import partition_for
from ..runtime.pace import a_few_a_turn
from ..runtime.regex import RegexRefused
from ..runtime.shard import Shard
from ..runtime.ticker import Ticker
from . import requests
from .additions import Addition
from .commands import (
    ADDED_BEFORE,
    NEEDS_PRODUCER_ID,
    AddPartitions,
    DescribeTransactions,
    FindOpened,
    MarkersDone,
    MarkersWritten,
    Opened,
    VerifyPartitions,
    WriteMarkers,
)
from .config import TransactionConfig
from .ids import transactional_partition_key
from .marker_sender import MarkerDoor, MarkerSender
from .metrics import TransactionCounters
from .refusals import is_from_memory
from .registry import CODEC
from .requests import Caller
from .transaction import EPOCH_BUMP_VERSION
from .transactions_machine import TransactionsMachine
from .transactions_view import refused
from .word_sender import WordDoor, WordSender

E = ErrorCode
FEATURE: Final = "transaction.version"
# How long FindCoordinator waits for the topic to be made: less than a client's back-off is worth.
TOPIC_WAIT_MS_MAX: Final = 2_000
# The request has no timeout of its own. Clients give up after 30 s, and may as well ask again before.
PRODUCER_ID_S_MAX: Final = 5.0
_DONE_PAUSE_S: Final = 0.05
_DONE_PAUSE_S_MAX: Final = 1.0
CONNECTIONS_KEPT_MAX: Final = 100_000  # of ids; a request of those before is late no more


class TransactionService:
    def __init__(
        self,
        *,
        env: Env,
        node_id: BrokerId,
        image: ClusterImage,
        partitions: Partitions,
        config: TransactionConfig,
        create_topic: Callable[[str], Awaitable[None]],
        producer_ids: Callable[[], Awaitable[int]],
        markers: MarkerDoor,
        words: WordDoor,
        confirm_image: Callable[[], Awaitable[bool]],
        additions: Sequence[Callable[[TransactionsMachine], Addition]] = (),
    ) -> None:
        """`create_topic` makes an internal topic unless it is there; Trouble if it can't. `producer_ids` draws an id
        that nobody has; Trouble likewise. `confirm_image` is False if what this node knows may not be of now."""
        self.config = config
        self._env = env
        self._node_id = node_id
        self._image = image
        self._create_topic = create_topic
        self._producer_ids = producer_ids
        self._confirm_image = confirm_image
        self._additions = additions
        self._creating = asyncio.Lock()
        self.counters = TransactionCounters()
        self._tickets = itertools.count(1)
        self._connections: dict[str, Connections] = {}
        self._ticker = Ticker(env.clock)
        self.sender = MarkerSender(
            env=env, image=image, door=markers,
            coordinator_epoch=self._coordinator_epoch, done=self._markers_done, confirm_image=confirm_image,
        )  # fmt: skip
        self._words = WordSender(image, words)
        self._coordinator = Coordinator(
            TRANSACTION_STATE_TOPIC,
            env=env,
            node_id=node_id,
            image=image,
            partitions=partitions,
            ticker=self._ticker,
            loader=Loader(env),
            new_machine=self._new_machine,
            codec=CODEC,
            commit_timeout_ms=config.commit_timeout_ms,
            send=self._send,
        )

    def _new_machine(self) -> TransactionsMachine:
        """Connections are this node's, and remembered by it: one on which a late request still waits may be older than
        the coordinator that it finds, which went away and came back."""
        elapsed = self._env.clock.elapsed
        machine = TransactionsMachine(self.config, elapsed, self.transaction_version)
        for transactional_id in list(self._connections)[:-CONNECTIONS_KEPT_MAX]:
            del self._connections[transactional_id]
        machine.connections = self._connections
        machine.counters = self.counters
        for addition in self._additions:
            machine.attach(addition(machine))
        return machine

    def transaction_version(self) -> int:
        """The level of the cluster's feature, which may change while we run."""
        return self._image.features.get(FEATURE, 0)

    async def start(self) -> None:
        """After the replicas have started, and before any image is handed on."""
        self._env.tasks.spawn(self._ticker.run(), name="transaction timers")
        self._coordinator.on_image(ImageDelta.everything(self._image))

    async def stop(self) -> None:
        """Whoever waits is told to look for another coordinator."""
        self._coordinator.stop()

    @property
    def coordinator(self) -> Coordinator:
        """For who wants to know how it stands."""
        return self._coordinator

    def tick(self) -> None:
        """Handle every timer that is due now. The task that `start` began does the same by itself."""
        self._ticker.tick()

    def on_image(self, delta: ImageDelta) -> None:
        """Follow the image; called after the replicas have."""
        self._coordinator.on_image(delta)
        self.sender.on_image(delta)

    # -- where a transactional id is -------------------------------------------------------------

    async def coordinator_of(self, transactional_id: str) -> BrokerId | ErrorCode:
        """Which broker coordinates this id. The first who asks has the topic made."""
        key = transactional_partition_key(transactional_id)
        if TRANSACTION_STATE_TOPIC not in self._image.topics:
            await self._make_topic(key)
        return self._coordinator.coordinator_of(key)

    async def _make_topic(self, key: str) -> None:
        """What comes next is an InitProducerId: loading an empty log takes less than a client's back-off."""
        try:
            async with asyncio.timeout(TOPIC_WAIT_MS_MAX / 1000):
                async with self._creating:
                    if TRANSACTION_STATE_TOPIC not in self._image.topics:
                        await self._create_topic(TRANSACTION_STATE_TOPIC)
                await self._coordinator.wait_open(key)
        except TimeoutError:
            self._env.log.warn("transactions_topic_slow", topic=TRANSACTION_STATE_TOPIC)
        except Trouble as trouble:
            self._env.log.warn("transactions_topic_failed", cause=str(trouble))

    async def execute(self, transactional_id: str, command: Any) -> Any:
        """Have the machine that an id (or a transaction group, by `GROUP`) belongs to decide a command."""
        shard = self._shard_of(transactional_id)
        return shard if isinstance(shard, ErrorCode) else await shard.execute(command)

    def next_ticket(self) -> int:
        """For a command that may be parked."""
        return next(self._tickets)

    async def ask_all(self, command: Any) -> dict[int, Any] | ErrorCode:
        """What each partition replies that is coordinated here."""
        return await self._coordinator.ask_all(command)

    async def _ask(self, command: Any) -> Any:
        """`execute`, with a fresh producer id if it takes one.

        What rests on memory is said only by whoever coordinates it still: another may have taken over, and know better.
        """
        transactional_id = command.transactional_id
        while True:
            shard = self._shard_of(transactional_id)
            reply = await self.execute(transactional_id, command)
            if reply != NEEDS_PRODUCER_ID:
                if not is_from_memory(reply):
                    return reply
                if not await self._confirm_image() or self._shard_of(transactional_id) is not shard:
                    return E.not_coordinator
                return E.none if reply == ADDED_BEFORE else reply
            try:
                async with asyncio.timeout(PRODUCER_ID_S_MAX):
                    drawn = await self._producer_ids()
            except (TimeoutError, Trouble) as trouble:
                # What Kafka says while it has no block of ids; clients ask again.
                self._env.log.warn("no_producer_id", cause=str(trouble) or "no controller answers")
                return E.coordinator_load_in_progress
            command = replace(command, fresh_producer_id=drawn, ticket=next(self._tickets))

    # -- the APIs --------------------------------------------------------------------------------

    async def init_producer_id(self, ctx: Caller, body: Any) -> Fields:
        command = requests.init_producer_id(ctx, body, self.config, next(self._tickets))
        reply = command if isinstance(command, ErrorCode) else await self._ask(command)
        return requests.initialised(ctx, reply)

    async def add_partitions_to_txn(self, ctx: Caller, body: Any) -> Fields:
        commands = requests.add_partitions(ctx, body, self._tickets)
        adding = partial(self._add, by_client=True)
        results = await a_few_a_turn(adding, commands, self._env.clock)
        return requests.added(ctx, body, results)

    async def _add(
        self, command: AddPartitions | VerifyPartitions, *, by_client: bool
    ) -> Mapping[TopicPartition, ErrorCode]:
        refusal = requests.refused_partitions(self._image, command, by_client=by_client)
        if refusal:
            return refusal
        reply: Any = E.invalid_request
        if command.transactional_id:
            reply = await self._ask(command)
        if isinstance(reply, ErrorCode):
            return dict.fromkeys(command.partitions, reply)
        verified: Mapping[TopicPartition, ErrorCode] = reply
        return verified

    async def add_offsets_to_txn(self, ctx: Caller, body: Any) -> Fields:
        topic = self._image.topics.get(GROUP_OFFSETS_TOPIC)
        reply: Any = E.coordinator_not_available
        if not body.transactional_id:
            reply = E.invalid_request
        elif topic is not None:
            place = TopicPartition(
                GROUP_OFFSETS_TOPIC, partition_for(body.group_id, len(topic.partitions))
            )
            reply = await self._ask(
                AddPartitions(
                    transactional_id=body.transactional_id,
                    producer_id=body.producer_id,
                    producer_epoch=body.producer_epoch,
                    partitions=(place,),
                    connection=requests.connection_of(ctx),
                    ticket=next(self._tickets),
                )
            )
        return {"error_code": requests.word_for(ctx, reply)}

    async def end_txn(self, ctx: Caller, body: Any) -> Fields:
        command = requests.end_transaction(ctx, body, next(self._tickets))
        reply = command if isinstance(command, ErrorCode) else await self._ask(command)
        return requests.ended(ctx, reply)

    async def describe_transactions(self, ctx: Caller, body: Any) -> Fields:
        """Ask each partition once for all its ids; the rows come back in the order of the request. An id that stands there
        again is told again if it is refused, as by Kafka; a transaction, which may have 10,000 partitions, is told once.
        """
        by_partition: dict[int | None, list[str]] = {}
        rows: dict[str, Fields] = {}
        for each in dict.fromkeys(body.transactional_ids):
            if not each:
                rows[each] = refused(each, E.invalid_request)
                continue
            partition = self._coordinator.partition_of(transactional_partition_key(each))
            by_partition.setdefault(partition, []).append(each)

        async def ask(ids: list[str]) -> Iterable[Fields]:
            reply = await self.execute(ids[0], DescribeTransactions(transactional_ids=tuple(ids)))
            if isinstance(reply, ErrorCode):
                return [refused(each, reply) for each in ids]
            found: list[Fields] = reply
            return found

        asked = list(by_partition.values())
        for ids, found in zip(asked, await asyncio.gather(*map(ask, asked)), strict=True):
            rows.update(zip(ids, found, strict=True))
        states = []
        for each in body.transactional_ids:
            if (row := rows.get(each)) is not None:
                states.append(row)
                if row["error_code"] is E.none:
                    del rows[each]
        return {"transaction_states": states}

    async def list_transactions(self, ctx: Caller, body: Any) -> Fields:
        try:
            regex = requests.pattern_of(body)
        except RegexRefused:
            return {"error_code": E.invalid_regular_expression}
        command, unknown = requests.list_transactions(body)
        found: list[Fields] = []
        if command is not None:
            replies = await self._coordinator.ask_all(command)
            if isinstance(replies, ErrorCode):
                return {"error_code": replies}
            found = list(itertools.chain.from_iterable(replies.values()))
        if regex is not None:
            found = await requests.named_like(regex, found, self._env.clock)
        return {
            "error_code": E.none,
            "unknown_state_filters": unknown,
            "transaction_states": found,
        }

    # -- what partition leaders ask --------------------------------------------------------------

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """KIP-890: may this producer write to these partitions? With `add` they become part of the transaction."""
        kind = partial(AddPartitions, client_transaction_version=EPOCH_BUMP_VERSION)
        command = (kind if add else VerifyPartitions)(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=tuple(partitions),
            ticket=next(self._tickets),
        )
        return dict(await self._add(command, by_client=False))

    async def age(self, who: FindOpened) -> Age | ErrorCode:
        """How long this producer's transaction has been open; INVALID_PRODUCER_EPOCH when it has none."""
        shard = self._shard_of(who.transactional_id)
        reply = await self.execute(who.transactional_id, who)
        if isinstance(reply, ErrorCode) and reply is not E.invalid_producer_epoch:
            return reply
        if not await self._confirm_image() or self._shard_of(who.transactional_id) is not shard:
            return E.not_coordinator  # its successor may have ended that one, and opened the next
        if isinstance(reply, ErrorCode):
            return reply
        clock, began = self._env.clock, reply
        return Age.since(began.at, clock.elapsed(), clock.now_ms() - began.by_wall_ms)

    def started_ms(self, transactional_id: str) -> int:
        """When the transaction began that was verified just now: what its markers will name. -1 if it is not here."""
        shard = self._shard_of(transactional_id)
        if isinstance(shard, ErrorCode):
            return NO_TIMESTAMP
        machine = shard.machine
        assert isinstance(machine, TransactionsMachine), f"{shard.name} runs something else"
        found = machine.transactions.get(transactional_id)
        return NO_TIMESTAMP if found is None else found.start_timestamp

    def _shard_of(self, transactional_id: str) -> Shard | ErrorCode:
        return self._coordinator.shard_of(transactional_partition_key(transactional_id))

    # -- what leaders are told -------------------------------------------------------------------

    def _send(self, partition: int, shard: Shard, what: WriteMarkers | Opened) -> None:
        if isinstance(what, Opened):
            self._words.send(what)
        else:
            self.sender.send(partition, shard, what)

    def _coordinator_epoch(self, partition: int) -> int | None:
        """What partitions tell coordinators of different terms apart by; None when this node is none any more."""
        state = self._image.partition(TRANSACTION_STATE_TOPIC, partition)
        return state.leader_epoch if state is not None and state.leader == self._node_id else None

    def _markers_done(self, shard: Shard, done: tuple[MarkersDone, ...]) -> None:
        work = self._say_done(shard, MarkersWritten(done=done))
        self._env.tasks.spawn(work, name=f"end transactions of {shard.name}")

    async def _say_done(self, shard: Shard, command: MarkersWritten) -> None:
        """Until it is written down: too few replicas in sync, for one, will pass."""
        pause_s = _DONE_PAUSE_S
        while await shard.execute(command) is not None and not shard.is_lost:
            await self._env.clock.sleep(pause_s)
            pause_s = min(pause_s * 2, _DONE_PAUSE_S_MAX)
