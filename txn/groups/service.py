"""The group coordinator of one node: one method for each API, plain values in and out.

INVARIANT  a group is answered for by the shard of its partition, or by an error that sends the client on.
PREVENTS   a node that lost a partition going on to speak for the groups in it.
PROVED BY  tests/txn/test_group_service.py::test_only_the_leader_of_its_partition_answers_for_a_group

Who may ask is the handlers' business (`node/handlers`). What a group does is decided by its machine.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.base.ids import GROUP_OFFSETS_TOPIC, BrokerId, TopicPartition
from fencepost.cluster.base.ports import Env
from fencepost.cluster.metadata.image import ClusterImage, ImageDelta

from ..runtime.coordinator import Coordinator, Partitions
from ..runtime.decision import Fields, Producer
from ..runtime.loader import Loader
from ..runtime.moments import Began
from ..runtime.pace import a_few_a_turn
from ..runtime.shard import Shard
from ..runtime.ticker import Ticker
from . import offset_requests, requests
from .classic_turn import join_fields, sync_fields
from .commands import (
    ConsumerGroupDescribe,
    DeleteGroups,
    DescribeGroups,
    ListGroups,
    OffsetDelete,
    TopicsDeleted,
    TxnOffsetCommit,
)
from .config import GroupConfig
from .consumer_config import ConsumerConfig, times_set_while_running
from .consumer_machine import ConsumerMachine
from .consumer_migration import MigratingGroups
from .consumer_topics import ImageTopics, topics_changed
from .registry import CODEC
from .requests import Caller

E = ErrorCode
# How long FindCoordinator waits for the topic to be made: less than a client's back-off is worth.
TOPIC_WAIT_MS_MAX: Final = 2_000
# From this version of JoinGroup on no protocol is null; before, it is the empty string.
_NULL_PROTOCOL_SINCE: Final = 7
_LOADING_KNOWN_SINCE: Final = 2  # TxnOffsetCommit: older clients end on it (KAFKA-7296)
# Asks whether a transaction that writes to this partition is open.
Verify = Callable[[TopicPartition], Awaitable[ErrorCode]]
AskBegan = Callable[[], Awaitable[Began | ErrorCode]]
_PROTOCOL_NAMED_SINCE: Final = 5  # SyncGroup must say what it thinks was agreed on (KIP-559)


class GroupService:
    def __init__(
        self,
        *,
        env: Env,
        node_id: BrokerId,
        image: ClusterImage,
        partitions: Partitions,
        config: GroupConfig,
        consumer_config: ConsumerConfig,
        create_topic: Callable[[str], Awaitable[None]],
        confirm_image: Callable[[], Awaitable[bool]],
    ) -> None:
        """`create_topic` makes an internal topic, Trouble if it can't; `confirm_image` is False if that may not be of now."""
        self.config = config
        self.consumer_config = consumer_config
        self._env = env
        self._node_id = node_id
        self._image = image
        self._create_topic = create_topic
        self._confirm_image = confirm_image
        self._creating = asyncio.Lock()
        self._tickets = itertools.count(1)
        self._ticker = Ticker(env.clock)
        self._coordinator = Coordinator(
            GROUP_OFFSETS_TOPIC,
            env=env,
            node_id=node_id,
            image=image,
            partitions=partitions,
            ticker=self._ticker,
            loader=Loader(env),
            new_machine=self._new_machine,
            codec=CODEC,
            commit_timeout_ms=config.offsets_commit_timeout_ms,
        )

    def _new_machine(self) -> MigratingGroups:
        overrides = partial(times_set_while_running, self._image, self._node_id)
        topics = ImageTopics(self._image)
        consumer = ConsumerMachine(self.consumer_config, topics, overrides=overrides)
        return MigratingGroups(self.config, consumer, self._env.clock.elapsed)

    async def start(self) -> None:
        """After the replicas have started, and before any image is handed on."""
        self._env.tasks.spawn(self._ticker.run(), name="group timers")
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
        change = topics_changed(delta)
        if change is not None:
            self._coordinator.tell(change)
        if delta.topics_deleted:
            gone = tuple((topic.name, topic.topic_id) for topic in delta.topics_deleted)
            work = self._forget_topics(TopicsDeleted(topics=gone))
            self._env.tasks.spawn(work, name="forget offsets of deleted topics")

    async def _forget_topics(self, command: TopicsDeleted) -> None:
        for shard in self._coordinator.shards().values():
            if isinstance(shard, Shard):
                await shard.execute(command)

    # -- where a group is ------------------------------------------------------------------------

    async def coordinator_of(self, group_id: str) -> BrokerId | ErrorCode:
        """Which broker coordinates this group. The first who asks has the topic made."""
        if GROUP_OFFSETS_TOPIC not in self._image.topics:
            await self._make_topic(group_id)
        return self._coordinator.coordinator_of(group_id)

    async def _make_topic(self, group_id: str) -> None:
        """What comes next is a JoinGroup: loading an empty log takes less than a client's back-off."""
        try:
            async with asyncio.timeout(TOPIC_WAIT_MS_MAX / 1000):
                async with self._creating:
                    if GROUP_OFFSETS_TOPIC not in self._image.topics:
                        await self._create_topic(GROUP_OFFSETS_TOPIC)
                await self._coordinator.wait_open(group_id)
        except TimeoutError:
            self._env.log.warn("groups_topic_slow", topic=GROUP_OFFSETS_TOPIC)
        except Trouble as trouble:
            self._env.log.warn("groups_topic_failed", cause=str(trouble))

    async def _execute(self, group_id: str, command: Any) -> Any:
        shard = self._coordinator.shard_of(group_id)
        return shard if isinstance(shard, ErrorCode) else await shard.execute(command)

    def _fresh_id(self) -> str:
        return str(UUID(int=self._env.rng.getrandbits(128), version=4))

    # -- the classic protocol --------------------------------------------------------------------

    async def join_group(self, ctx: Caller, body: Any) -> Fields:
        ticket, fresh_id = next(self._tickets), self._fresh_id()
        command = requests.join_group(ctx, body, ticket=ticket, fresh_id=fresh_id)
        config = self.config
        if not command.group_id:
            reply: Any = join_fields(E.invalid_group_id, command.member_id)
        elif not requests.fits_a_record(command):
            reply = join_fields(E.invalid_request)
        elif not (
            config.group_min_session_timeout_ms
            <= command.session_timeout_ms
            <= config.group_max_session_timeout_ms
        ):
            reply = join_fields(E.invalid_session_timeout, command.member_id)
        else:
            reply = await self._execute(command.group_id, command)
        if isinstance(reply, ErrorCode):
            reply = join_fields(reply)
        if ctx.api_version < _NULL_PROTOCOL_SINCE and reply["protocol_name"] is None:
            reply = {**reply, "protocol_name": ""}
        fields: Fields = reply
        return fields

    async def sync_group(self, ctx: Caller, body: Any) -> Fields:
        command = requests.sync_group(body, ticket=next(self._tickets))
        unnamed = command.protocol_type is None or command.protocol_name is None
        if unnamed and ctx.api_version >= _PROTOCOL_NAMED_SINCE:
            return sync_fields(E.inconsistent_group_protocol)
        if not command.group_id:
            return sync_fields(E.invalid_group_id)
        reply = await self._execute(command.group_id, command)
        return sync_fields(reply) if isinstance(reply, ErrorCode) else reply

    async def heartbeat(self, ctx: Caller, body: Any) -> Fields:
        command = requests.heartbeat(body)
        if not command.group_id:
            return {"error_code": E.invalid_group_id}
        reply = await self._execute(command.group_id, command)
        if reply is E.coordinator_load_in_progress:
            return {"error_code": E.none}  # the session starts anew when it is loaded
        return {"error_code": reply} if isinstance(reply, ErrorCode) else reply

    async def leave_group(self, ctx: Caller, body: Any) -> Fields:
        command = requests.leave_group(ctx, body)
        if not command.group_id:
            return {"error_code": E.invalid_group_id, "members": []}
        reply = await self._execute(command.group_id, command)
        if isinstance(reply, ErrorCode):
            return {"error_code": reply, "members": []}
        if ctx.api_version < requests.BATCHED_LEAVE_SINCE:
            return {"error_code": reply["members"][0]["error_code"], "members": []}
        fields: Fields = reply
        return fields

    # -- the new protocol ------------------------------------------------------------------------

    async def consumer_group_heartbeat(self, ctx: Caller, body: Any) -> Fields:
        command = requests.consumer_group_heartbeat(ctx, body, fresh_id=self._fresh_id())
        reply = await self._execute(command.group_id, command)
        return {"error_code": reply} if isinstance(reply, ErrorCode) else reply

    async def consumer_group_describe(self, ctx: Caller, body: Any) -> Fields:
        def refused(group_id: str, code: ErrorCode) -> Fields:
            return {"group_id": group_id, "error_code": code}

        groups = await self._for_each(
            body.group_ids,
            lambda ids: ConsumerGroupDescribe(group_ids=ids),
            refused,
            may_be_empty=False,
        )
        return {"groups": groups}

    # -- offsets ---------------------------------------------------------------------------------

    async def offset_commit(self, ctx: Caller, body: Any, *, is_late: bool = False) -> Fields:
        """`is_late`: by a connection that its member has given up for a newer one. Nobody reads the answer."""
        plan = offset_requests.plan_commit(self._image, body.topics)
        if is_late:
            return {"topics": plan.answer(E.not_coordinator)}
        command = plan.command(ctx, body)
        store = partial(self._execute, body.group_id, command)
        reply = await plan.stored(store, self._confirm_image, self.config)
        return {"topics": plan.answer(reply)}

    async def offsets_partition_of(self, group_id: str) -> TopicPartition | ErrorCode:
        """Which partition keeps this group's positions. The first who asks has the topic made."""
        if GROUP_OFFSETS_TOPIC not in self._image.topics:
            await self._make_topic(group_id)
        partition = self._coordinator.partition_of(group_id)
        if partition is None:
            return E.coordinator_not_available
        return TopicPartition(GROUP_OFFSETS_TOPIC, partition)

    async def txn_offset_commit(
        self, ctx: Caller, body: Any, *, verify: Verify, began: AskBegan | None = None
    ) -> Fields:
        """`verify` asks the transaction's coordinator, of the partition that keeps the group's positions; `began` when
        the transaction began, if the client can't say of which generation it is."""
        plan = offset_requests.plan_commit(self._image, body.topics)
        command = plan.command_in_transaction(body)
        store = partial(self._commit_in_transaction, command, verify, began)
        reply = await plan.stored(store, self._confirm_image, self.config)
        if reply is E.coordinator_load_in_progress and ctx.api_version < _LOADING_KNOWN_SINCE:
            reply = E.coordinator_not_available
        return {"topics": offset_requests.by_name(plan.answer(reply))}

    async def _commit_in_transaction(
        self, command: TxnOffsetCommit, verify: Verify, began: AskBegan | None
    ) -> Any:
        if not command.group_id:
            return E.invalid_group_id
        place = await self.offsets_partition_of(command.group_id)
        if isinstance(place, ErrorCode):
            return place
        shard = self._coordinator.shard_at(place.partition)
        if isinstance(shard, ErrorCode):
            return shard
        outcome = await verify(place)
        if outcome is not E.none:
            return outcome
        if began is not None:
            opened = await began()
            if isinstance(opened, ErrorCode):
                return opened
            command = replace(command, began=opened)
        return await self._execute(command.group_id, command)

    async def end_transaction(
        self,
        partition: int,
        producer: Producer,
        *,
        coordinator_epoch: int,
        commit: bool,
        transaction_version: int = 0,
    ) -> ErrorCode:
        """A transaction that stored offsets in this partition of `__consumer_offsets` has been decided."""
        shard = self._coordinator.shard_at(partition)
        if isinstance(shard, ErrorCode):
            return shard
        return await shard.end_transaction(
            producer,
            coordinator_epoch=coordinator_epoch,
            commit=commit,
            transaction_version=transaction_version,
        )

    async def offset_fetch(self, ctx: Caller, body: Any) -> Fields:
        plans = offset_requests.plan_fetch(self._image, ctx, body)
        replies = await a_few_a_turn(self._fetch, plans, self._env.clock)
        answers = [plan.answer(reply) for plan, reply in zip(plans, replies, strict=True)]
        is_batched = ctx.api_version >= offset_requests.BATCHED_FETCH_SINCE
        return {"groups": answers} if is_batched else offset_requests.single(answers[0])

    async def _fetch(self, plan: offset_requests.FetchPlan) -> Any:
        here = isinstance(self._coordinator.shard_of(plan.group_id), Shard)
        if here and not await self._confirm_image():  # another may have newer positions
            return E.not_coordinator
        return await self._execute(plan.group_id, plan.command)  # of the topics in that image

    async def offset_delete(self, ctx: Caller, body: Any) -> Fields:
        if not body.group_id:
            return {"error_code": E.invalid_group_id, "topics": []}
        plan = offset_requests.plan_delete(self._image, body)
        command = OffsetDelete(group_id=body.group_id, topics=plan.known)
        reply = await self._execute(body.group_id, command)
        if isinstance(reply, ErrorCode):
            return {"error_code": reply, "topics": []}
        return plan.answer(reply)

    # -- looking at groups -----------------------------------------------------------------------

    async def list_groups(self, ctx: Caller, body: Any) -> Fields:
        command = ListGroups(
            states=tuple(getattr(body, "states_filter", ())),
            types=tuple(getattr(body, "types_filter", ())),
        )
        replies = await self._coordinator.ask_all(command)
        if isinstance(replies, ErrorCode):
            return {"error_code": replies, "groups": []}
        return {
            "error_code": E.none,
            "groups": list(itertools.chain.from_iterable(replies.values())),
        }

    async def describe_groups(self, ctx: Caller, body: Any) -> Fields:
        def refused(group_id: str, code: ErrorCode) -> Fields:
            return {"group_id": group_id, "error_code": code}

        version = ctx.api_version
        groups = await self._for_each(
            body.groups, lambda ids: DescribeGroups(group_ids=ids, api_version=version), refused
        )
        return {"groups": groups}

    async def delete_groups(self, ctx: Caller, body: Any) -> Fields:
        def refused(group_id: str, code: ErrorCode) -> Fields:
            return {"group_id": group_id, "error_code": code}

        ids = body.groups_names
        results = await self._for_each(ids, lambda ids: DeleteGroups(group_ids=ids), refused)
        return {"results": results}

    async def _for_each(
        self,
        group_ids: Sequence[str],
        command: Callable[[tuple[str, ...]], Any],
        refused: Callable[[str, ErrorCode], Fields],
        *,
        may_be_empty: bool = True,
    ) -> list[Fields]:
        """Ask each partition once for all its groups; each one's row comes once, in the order of the request."""
        by_partition: dict[int | None, list[str]] = {}
        rows: dict[str, Fields] = {}
        for group_id in dict.fromkeys(group_ids):
            if not group_id and not may_be_empty:
                rows[group_id] = refused(group_id, E.invalid_group_id)
                continue
            partition = self._coordinator.partition_of(group_id)
            by_partition.setdefault(partition, []).append(group_id)

        async def ask(ids: list[str]) -> Iterable[Fields]:
            reply = await self._execute(ids[0], command(tuple(ids)))
            if isinstance(reply, ErrorCode):
                return [refused(group_id, reply) for group_id in ids]
            answered: list[Fields] = reply
            return answered

        asked = list(by_partition.values())
        for ids, found in zip(asked, await asyncio.gather(*map(ask, asked)), strict=True):
            rows.update(zip(ids, found, strict=True))
        return [rows[group_id] for group_id in dict.fromkeys(group_ids)]
