"""One broker's partitions on a simulated machine, and the batches that clients send."""

import asyncio
import dataclasses
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fencepost.chaos.sim.node import SimEnv
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId, LeaderEpoch, PartitionEpoch, TopicPartition
from fencepost.cluster.base.ports import FileSlice
from fencepost.cluster.metadata.image import (
    ClusterImage,
    ConfigType,
    ImageDelta,
    PartitionState,
    TopicState,
)
from fencepost.cluster.wire.records import Record, build_batch, read_records
from fencepost.replication.manager import ReplicaManager
from fencepost.replication.partition import Appended, Partition, Read, Refusal
from fencepost.replication.survey import Survey

ME = BrokerId(1)
ORDERS = TopicPartition("orders", 0)
FOLDER = "/data"
NONE = ErrorCode.none
# There is no coordinator here that could be asked about a transaction.
NOBODY_VERIFIES = {"transaction.partition.verification.enable": "false"}
PAYMENTS = TopicPartition("payments", 0)


def id_of(text: str) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_DNS, text)


def state_of(
    index: int = 0, *, epoch: int = 1, leader: int = ME, isr: tuple[int, ...] = (ME,)
) -> PartitionState:
    brokers = tuple(BrokerId(each) for each in isr)
    return PartitionState(
        partition=index, leader=BrokerId(leader), leader_epoch=LeaderEpoch(epoch),
        partition_epoch=PartitionEpoch(epoch), replicas=brokers, isr=brokers,
    )  # fmt: skip


def topic_of(name: str, partitions: int = 1, *, incarnation: str = "") -> TopicState:
    return TopicState(name, id_of(name + incarnation), [state_of(i) for i in range(partitions)])


def surveyed(manager: ReplicaManager) -> Survey:
    """A look at all partitions, in one go; when transactions began is not asked."""
    survey = manager.survey()
    for partition in manager.partitions.values():
        survey.take(partition, by_topic=True)
    return survey


class Metadata:
    """A metadata log by hand: changes go into the image and, as deltas, to who listens."""

    def __init__(
        self, *topics: TopicState, configs: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        self.image = ClusterImage()
        for topic in topics:
            self.image.topics[topic.name] = topic
            self.image.topics_by_id[topic.topic_id] = topic
        for name, values in (configs or {}).items():
            self.image.configs[ConfigType.TOPIC, name] = dict(values)

    def create(self, manager: ReplicaManager, topic: TopicState) -> None:
        self.image.topics[topic.name] = topic
        self.image.topics_by_id[topic.topic_id] = topic
        delta = ImageDelta(self.image)
        delta.topics_created = [topic]
        delta.partitions_changed = [(topic, each) for each in topic.partitions]
        manager.on_image(delta)

    def delete(self, manager: ReplicaManager, name: str) -> None:
        topic = self.image.topics.pop(name)
        del self.image.topics_by_id[topic.topic_id]
        delta = ImageDelta(self.image)
        delta.topics_deleted = [topic]
        manager.on_image(delta)

    def change(self, manager: ReplicaManager, name: str, index: int = 0, **fields: Any) -> None:
        """A partition's fields; its epochs go up by one."""
        topic = self.image.topics[name]
        old = topic.partitions[index]
        fields.setdefault("leader_epoch", LeaderEpoch(old.leader_epoch + 1))
        new = dataclasses.replace(
            old, partition_epoch=PartitionEpoch(old.partition_epoch + 1), **fields
        )
        topic.partitions[index] = new
        delta = ImageDelta(self.image)
        delta.partitions_changed = [(topic, new)]
        manager.on_image(delta)

    def configure(self, manager: ReplicaManager, name: str, **values: str) -> None:
        key = (ConfigType.TOPIC, name)
        self.image.configs[key] = {k.replace("_", "."): v for k, v in values.items()}
        delta = ImageDelta(self.image)
        delta.configs_changed = [key]
        manager.on_image(delta)


class Node:
    """The manager of one start of one machine, and shorthands for its users."""

    def __init__(
        self, env: SimEnv, metadata: Metadata, node_config: Mapping[str, str] | None = None
    ) -> None:
        self.env = env
        self.metadata = metadata
        settings = {**NOBODY_VERIFIES, **(node_config or {})}
        self.manager = ReplicaManager(env, FOLDER, ME, metadata.image, settings)

    async def start(self) -> "Node":
        await self.manager.start()
        return self

    def partition(self, name: TopicPartition = ORDERS) -> Partition:
        found = self.manager.partition(name)
        assert isinstance(found, Partition), found
        return found

    def produce(
        self, batch: bytes, name: TopicPartition = ORDERS, *, acks: int = -1
    ) -> Appended | Refusal:
        return self.partition(name).append_as_leader(
            batch, required_acks=acks, now_ms=self.env.clock.now_ms()
        )

    async def write(self, batch: bytes, name: TopicPartition = ORDERS) -> int:
        """Produce and wait until it is committed; its first offset."""
        done = self.produce(batch, name)
        assert isinstance(done, Appended), done
        assert await self.partition(name).committed(done.last_offset) is NONE
        return done.first_offset

    async def read_values(
        self, name: TopicPartition = ORDERS, *, isolation: int = 0
    ) -> list[bytes]:
        """All values that are committed, in order."""
        partition = self.partition(name)
        offset, values = partition.log_start_offset, []
        while True:
            found = await partition.read_waiting(offset, 1 << 20, isolation=isolation, min_one=True)
            assert isinstance(found, Read), found
            data = bytes_of(found)
            if not data:
                return values
            position = 0
            while position < len(data):
                records = read_records(data, position)
                values += [record.value or b"" for record in records if record.offset >= offset]
                first, last = data[position : position + 8], data[position + 23 : position + 27]
                offset = int.from_bytes(first, "big") + int.from_bytes(last, "big") + 1
                position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")


def bytes_of(read: Read) -> bytes:
    return b"".join(
        piece.file.read(piece.position, piece.length)
        if isinstance(piece, FileSlice)
        else bytes(piece)
        for piece in read.records
    )


def batch(
    *values: bytes | str,
    pid: int = -1,
    epoch: int = 0,
    sequence: int = 0,
    timestamp: int = 1_000,
    transactional: bool = False,
    compression: int = 0,
    key: bytes | None = None,
) -> bytearray:
    records = [
        Record(i, timestamp, key, value.encode() if isinstance(value, str) else value)
        for i, value in enumerate(values or (b"v",))
    ]
    has_producer = pid >= 0
    return build_batch(
        records,
        producer_id=pid,
        producer_epoch=epoch if has_producer else -1,
        base_sequence=sequence if has_producer else -1,
        transactional=transactional,
        compression=compression,
    )


Scene = Callable[[Node], Awaitable[None]]


def play(
    scene: Scene,
    *topics: TopicState,
    configs: Mapping[str, Mapping[str, str]] | None = None,
    node_config: Mapping[str, str] | None = None,
    seed: int = 1,
) -> None:
    """Start one node with these topics (`orders` with one partition, unless said) and run the scene on it."""
    with World(seed) as world:
        metadata = Metadata(*(topics or (topic_of("orders"),)), configs=configs)

        async def main(env: SimEnv) -> None:
            await scene(await Node(env, metadata, node_config).start())

        env = world.node("a")
        world.run(world.on(env, main(env)))


class Restarts:
    """Scenes on one machine, a start of the node each."""

    def __init__(self, world: World, metadata: Metadata) -> None:
        self.world = world
        self.metadata = metadata

    def __call__(self, scene, *, stop: bool = True) -> None:
        env = self.world.node("a")

        async def main(env: SimEnv) -> None:
            node = await Node(env, self.metadata).start()
            await scene(node)
            if stop:
                await node.manager.stop()

        self.world.run(self.world.on(env, main(env)))
        if not stop:
            self.world.kill("a")
        self.world.restart("a")


def said(node: Node, event: str) -> list[dict[str, object]]:
    """The fields of each such line of the node's log."""
    return [fields for _, each, fields in node.env.log.events if each == event]


def error_of(answer: object) -> ErrorCode:
    assert isinstance(answer, Refusal), answer
    return answer.error


async def acknowledged(partition: Partition, offset: int, acks: int) -> tuple[str, ErrorCode]:
    told: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    wait = partition.when_acknowledged(offset, acks, told.set_result)
    return ("at once", wait) if isinstance(wait, ErrorCode) else ("later", await told)
