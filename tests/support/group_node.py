"""A GroupService on a simulated node, with partitions of `__consumer_offsets` in memory."""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.base.ids import (
    GROUP_OFFSETS_TOPIC,
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    TopicPartition,
)
from fencepost.cluster.metadata.image import ClusterImage, ImageDelta, PartitionState, TopicState
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.render import render, render_request
from fencepost.txn.groups.config import GroupConfig
from fencepost.txn.groups.consumer_config import ConsumerConfig
from fencepost.txn.groups.service import GroupService
from support.fake_log import FakeLog

NODE = BrokerId(1)


class GroupNode:
    def __init__(
        self, world: World, *, partitions: int = 3, config: GroupConfig | None = None
    ) -> None:
        self.env = world.node("n")
        self.image = ClusterImage()
        self.logs: dict[int, FakeLog] = {}
        self.partition_count = partitions
        self.created = 0
        self.create_fails = False
        self.commits_at_once = True
        self.serial = 100
        self.verdict = ErrorCode.none
        self.verified: list[TopicPartition] = []
        config = config or GroupConfig(group_initial_rebalance_delay_ms=0)
        self.service = GroupService(
            env=self.env,
            node_id=NODE,
            image=self.image,
            partitions=self,
            config=config,
            consumer_config=ConsumerConfig(),
            create_topic=self.create_offsets_topic,
            confirm_image=self.confirm_image,
        )

    # -- the cluster -------------------------------------------------------------------------------

    def record_log(self, partition: TopicPartition) -> FakeLog | ErrorCode:
        return self.logs.get(partition.partition, ErrorCode.not_leader_or_follower)

    def when_room(self, tell: Callable[[], None]) -> None:
        """Its disk is never full."""

    async def confirm_image(self) -> bool:
        return True

    async def create_offsets_topic(self, name: str) -> None:
        assert name == GROUP_OFFSETS_TOPIC
        await asyncio.sleep(0.01)
        self.created += 1
        if self.create_fails:
            raise Trouble("no controller")
        for index in range(self.partition_count):
            self.logs[index] = FakeLog(commits_at_once=self.commits_at_once)
        self.make_topic(name, self.partition_count)

    def make_topic(self, name: str, partitions: int) -> TopicState:
        self.serial += 1
        topic = TopicState(name, UUID(int=self.serial), [])
        delta = self._delta()
        for index in range(partitions):
            topic.partitions.append(_partition(index, NODE, 0))
        self.image.topics[name] = topic
        self.image.topics_by_id[topic.topic_id] = topic
        delta.topics_created.append(topic)
        delta.partitions_changed.extend((topic, state) for state in topic.partitions)
        self.service.on_image(delta)
        return topic

    def add_partition(self, name: str) -> None:
        topic = self.image.topics[name]
        topic.partitions.append(_partition(len(topic.partitions), NODE, 0))
        delta = self._delta()
        delta.partitions_changed.append((topic, topic.partitions[-1]))
        self.service.on_image(delta)

    def delete_topic(self, name: str) -> None:
        topic = self.image.topics.pop(name)
        del self.image.topics_by_id[topic.topic_id]
        delta = self._delta()
        delta.topics_deleted.append(topic)
        self.service.on_image(delta)

    def lead(self, partition: int, leader: int, epoch: int = 1) -> None:
        topic = self.image.topics[GROUP_OFFSETS_TOPIC]
        state = topic.partitions[partition] = _partition(partition, BrokerId(leader), epoch)
        delta = self._delta()
        delta.partitions_changed.append((topic, state))
        self.service.on_image(delta)

    def _delta(self) -> ImageDelta:
        self.image.version += 1
        return ImageDelta(self.image)

    # -- clients -----------------------------------------------------------------------------------

    async def ask(self, api: str, version: int, /, *, client: str = "c", **fields: Any) -> Any:
        """One request in that version's own message, and its answer likewise."""
        key = ApiKey[api]
        body = render_request(key, version, fields)
        ctx = SimpleNamespace(api_version=version, client_id=client, client_host="127.0.0.1")
        more = {"verify": self.verify} if api == "txn_offset_commit" else {}
        reply = await getattr(self.service, api)(ctx, body, **more)
        return render(key, version, reply)

    async def verify(self, place: TopicPartition) -> ErrorCode:
        """What the coordinators of transactions say."""
        self.verified.append(place)
        return self.verdict

    async def join(self, member_id: str = "", *, version: int = 9, **more: Any) -> Any:
        fields = {
            "group_id": "g",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
            **more,
        }
        if version == 0:
            del fields["rebalance_timeout_ms"]
        return await self.ask("join_group", version, **fields)

    async def commit(self, offset: int, *, version: int = 9, **more: Any) -> Any:
        """Offset of partition 0 of the topic `t`, from nobody in particular."""
        topic: dict[str, Any] = {
            "name": "t",
            "partitions": [
                {"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}
            ],
        }
        return await self.ask(
            "offset_commit",
            version,
            **{"group_id": "g", "member_id": "", "topics": [topic], **more},
        )

    async def fetch(self, group_id: str = "g") -> int:
        reply = await self.ask(
            "offset_fetch",
            8,
            groups=[{"group_id": group_id, "topics": [{"name": "t", "partition_indexes": [0]}]}],
        )
        (group,) = reply.groups
        assert group.error_code is ErrorCode.none, group
        return int(group.topics[0].partitions[0].committed_offset)


def _partition(index: int, leader: BrokerId, epoch: int) -> PartitionState:
    return PartitionState(
        index, leader, LeaderEpoch(epoch), PartitionEpoch(epoch), (NODE,), (NODE,)
    )


def on_node(scenario: Callable[[GroupNode], Coroutine[Any, Any, None]], **more: Any) -> None:
    """Run a scenario on a node with a started service and a topic `t` of two partitions."""
    with World(seed=1) as world:

        async def go() -> None:
            node = GroupNode(world, **more)
            await node.service.start()
            node.make_topic("t", 2)
            await scenario(node)
            await node.service.stop()

        world.run(world.on(world.node("n"), go()))


async def ready(node: GroupNode) -> None:
    """The offsets topic is there and loaded."""
    await node.service.coordinator_of("g")
    await asyncio.sleep(0.1)
