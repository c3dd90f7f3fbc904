"""A TransactionService on a simulated node: its log in memory, its markers' door in the hands of a test."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.base.ids import (
    GROUP_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicPartition,
)
from fencepost.cluster.metadata.image import ClusterImage, ImageDelta, PartitionState, TopicState
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.render import render, render_request
from fencepost.txn.transactions.config import TransactionConfig
from fencepost.txn.transactions.marker_sender import Marker
from fencepost.txn.transactions.service import TransactionService
from fencepost.txn.transactions.word_sender import Word
from support.fake_log import FakeLog

E = ErrorCode
NODE = BrokerId(1)
ID = "pay"


class Door:
    """Takes every marker, unless a test says otherwise."""

    def __init__(self) -> None:
        self.written: list[tuple[int, Marker]] = []
        self.words: list[tuple[int, Word]] = []
        self.requests = 0
        self.answers: dict[TopicPartition, list[ErrorCode]] = {}
        self.unreachable: set[int] = set()
        self.open = asyncio.Event()
        self.open.set()

    async def write(
        self, broker_id: BrokerId, markers: Sequence[Marker], /
    ) -> list[Mapping[TopicPartition, ErrorCode]]:
        self.requests += 1
        await self.open.wait()
        if broker_id in self.unreachable:
            raise Trouble("nobody there")
        self.written += [(broker_id, marker) for marker in markers]
        return [{each: self._answer(each) for each in marker.partitions} for marker in markers]

    def tell(self, broker_id: BrokerId, word: Word, /) -> None:
        self.words.append((broker_id, word))

    def _answer(self, partition: TopicPartition) -> ErrorCode:
        answers = self.answers.get(partition)
        return answers.pop(0) if answers else E.none


class Cluster:
    """An image and those who follow it."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.image.features["transaction.version"] = 2
        self.listeners: list[Any] = []
        self.serial = 100

    def make_topic(self, name: str, leaders: Sequence[int]) -> None:
        self.serial += 1
        topic = TopicState(name, UUID(int=self.serial), [])
        topic.partitions = [_partition(index, leader, 0) for index, leader in enumerate(leaders)]
        self.image.topics[name] = topic
        self.image.topics_by_id[topic.topic_id] = topic
        delta = self._delta()
        delta.topics_created.append(topic)
        delta.partitions_changed.extend((topic, state) for state in topic.partitions)
        self._tell(delta)

    def delete_topic(self, name: str) -> None:
        topic = self.image.topics.pop(name)
        del self.image.topics_by_id[topic.topic_id]
        delta = self._delta()
        delta.topics_deleted.append(topic)
        self._tell(delta)

    def lead(self, name: str, partition: int, leader: int, epoch: int = 1) -> None:
        topic = self.image.topics[name]
        state = topic.partitions[partition] = _partition(partition, leader, epoch)
        delta = self._delta()
        delta.partitions_changed.append((topic, state))
        self._tell(delta)

    def _delta(self) -> ImageDelta:
        self.image.version += 1
        return ImageDelta(self.image)

    def _tell(self, delta: ImageDelta) -> None:
        for listener in self.listeners:
            listener.on_image(delta)


class TransactionNode(Cluster):
    def __init__(
        self, world: World, *, partitions: int = 3, config: TransactionConfig | None = None
    ) -> None:
        super().__init__()
        self.env = world.node("n")
        self.logs: dict[int, FakeLog] = {}
        self.partition_count = partitions
        self.created = 0
        self.create_fails = False
        self.no_ids = False
        self.id_takes_s = 0.0
        self.is_of_now = True
        self.confirmed = 0
        self.world = world
        self.next_id = 100
        self.door = Door()
        self.service = TransactionService(
            env=self.env,
            node_id=NODE,
            image=self.image,
            partitions=self,
            config=config or TransactionConfig(transaction_two_phase_commit_enable=True),
            create_topic=self.create_state_topic,
            producer_ids=self.take_id,
            markers=self.door,
            words=self.door,
            confirm_image=self.confirm_image,
        )
        self.listeners.append(self.service)

    def record_log(self, partition: TopicPartition) -> FakeLog | ErrorCode:
        return self.logs.get(partition.partition, E.not_leader_or_follower)

    def when_room(self, tell: Callable[[], None]) -> None:
        """Its disk is never full."""

    async def create_state_topic(self, name: str) -> None:
        assert name == TRANSACTION_STATE_TOPIC
        await asyncio.sleep(0.01)
        self.created += 1
        if self.create_fails:
            raise Trouble("no controller")
        for index in range(self.partition_count):
            self.logs[index] = FakeLog()
        self.make_topic(name, [NODE] * self.partition_count)

    async def confirm_image(self) -> bool:
        self.confirmed += 1
        return self.is_of_now

    async def take_id(self) -> int:
        if self.no_ids:
            raise Trouble("no controller")
        await asyncio.sleep(self.id_takes_s)
        self.next_id += 1
        return self.next_id

    async def ask(self, api: str, version: int, /, *, connection: int = 0, **fields: Any) -> Any:
        """One request in that version's own message, and its answer likewise."""
        key = ApiKey[api]
        body = render_request(key, version, fields)
        ctx = SimpleNamespace(
            api_version=version, client_id="c", client_host="127.0.0.1", connection=connection
        )
        return render(key, version, await getattr(self.service, api)(ctx, body))

    async def init(self, transactional_id: str = ID, *, version: int = 5, **more: Any) -> Any:
        fields = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000, **more}
        return await self.ask("init_producer_id", version, **fields)

    async def add(self, who: Any, topic: str = "t", partition: int = 0, version: int = 3) -> Any:
        reply = await self.ask(
            "add_partitions_to_txn",
            version,
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=who.producer_id,
            v3_and_below_producer_epoch=who.producer_epoch,
            v3_and_below_topics=[{"name": topic, "partitions": [partition]}],
        )
        return reply.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

    async def end(self, who: Any, *, commit: bool = True, version: int = 4) -> Any:
        return await self.ask(
            "end_txn",
            version,
            transactional_id=ID,
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            committed=commit,
        )

    async def state(self, transactional_id: str = ID) -> Any:
        reply = await self.ask("describe_transactions", 0, transactional_ids=[transactional_id])
        return reply.transaction_states[0]


def _partition(index: int, leader: int, epoch: int) -> PartitionState:
    return PartitionState(
        index,
        BrokerId(leader),
        LeaderEpoch(epoch),
        PartitionEpoch(epoch),
        (NODE,),
        (NODE,),
    )


def on_node(scenario: Callable[[TransactionNode], Coroutine[Any, Any, None]], **more: Any) -> None:
    """Run a scenario on a node with a started service, a topic `t` of two partitions and one for groups' offsets."""
    with World(seed=1) as world:

        async def go() -> None:
            node = TransactionNode(world, **more)
            await node.service.start()
            node.make_topic("t", [NODE, 2])
            node.make_topic(GROUP_OFFSETS_TOPIC, [NODE] * 3)
            await scenario(node)
            await node.service.stop()

        world.run(world.on(world.node("n"), go()))


async def ready(node: TransactionNode) -> None:
    """The topic of transactions is there and loaded."""
    await node.service.coordinator_of(ID)
    await asyncio.sleep(0.1)


def later(work: Any) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(work)
