"""Three nodes' replica managers and the streams between them; the metadata log is a hand that the test moves.

The controller here does what is asked of it: a compare-and-set for ISR changes, whatever the test says for leaders.
A node that is `deaf` hears what was logged later, when the test lets it.
"""

import dataclasses
from asyncio import sleep
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from fencepost.chaos.sim.loop import context_of
from fencepost.chaos.sim.node import SimEnv
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode, Outcome, Trouble
from fencepost.cluster.base.ids import BrokerEpoch, BrokerId, TopicPartition
from fencepost.cluster.base.ports import FileSlice
from fencepost.cluster.metadata.image import (
    BrokerState,
    ClusterImage,
    ConfigType,
    ImageDelta,
    PartitionState,
    TopicState,
)
from fencepost.cluster.wire.peer_door import PeerDoor
from fencepost.cluster.wire.records import read_records
from fencepost.replication.manager import ReplicaManager
from fencepost.replication.partition import Appended, Partition, Refusal
from fencepost.replication.replication import IsrWish, Replication
from replica_helpers import FOLDER, NOBODY_VERIFIES, ORDERS, id_of

T = TypeVar("T")
PORT = 9192
Hear = Callable[[ClusterImage, ImageDelta], None]


def log_bytes(partition: Partition, end: int | None = None) -> bytes:
    """The batches of a log, up to `end`."""
    log = partition.log
    offset, data = log.log_start_offset, b""
    limit = log.log_end_offset if end is None else end
    while offset < limit:
        found = log.read(offset, 1 << 20, limit=limit, min_one=True)
        assert found is not None and found.size, (log, offset, limit)
        for piece in found.slices:
            assert isinstance(piece, FileSlice)
            data += piece.file.read(piece.position, piece.length)
        offset = found.next_offset
    return data


def values_of(partition: Partition, end: int | None = None) -> list[bytes]:
    data, position, values = log_bytes(partition, end), 0, []
    while position < len(data):
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        values += [each.value or b"" for each in read_records(data[position : position + size])]
        position += size
    return values


class Replicas:
    """One start of one node."""

    def __init__(
        self, cluster: "Cluster", node_id: int, env: SimEnv, *, is_registered: bool = True
    ) -> None:
        self.node_id = node_id
        self.env = env
        self.image = ClusterImage()
        self.manager = ReplicaManager(
            env,
            FOLDER,
            BrokerId(node_id),
            self.image,
            cluster.node_config,
            is_registered=is_registered,
        )
        self.door = PeerDoor(
            env,
            BrokerId(node_id),
            secret=b"a secret",
            cluster_id=lambda: "the-cluster",
            address_of=lambda peer: (f"node-{peer}", PORT),
        )
        self.replication = Replication(env, self.manager, self.door, cluster.propose_for(node_id))
        self.manager.rounds.confirm_image = cluster.confirm_for(node_id)
        self.is_started = False

    async def start(self) -> None:
        await self.manager.start()
        await self.door.open(f"node-{self.node_id}", PORT)
        await self.replication.start()
        self.is_started = True

    async def stop(self) -> None:
        await self.replication.stop()
        await self.door.close()
        await self.manager.stop()

    def lead(self) -> None:
        self.manager.lead()
        self.replication.registered()

    def do(self, call: Callable[..., T], *args: Any, **more: Any) -> T:
        """As code of this node: what it starts ends with it."""
        return context_of(self.env.incarnation).run(call, *args, **more)

    def hear(self, happened: Hear) -> None:
        delta = ImageDelta(self.image)
        happened(self.image, delta)
        self.image.version += 1
        if self.is_started:
            self.manager.on_image(delta)
            self.replication.on_image(delta)

    def partition(self, name: TopicPartition = ORDERS) -> Partition:
        found = self.manager.partition(name)
        assert isinstance(found, Partition), found
        return found

    def produce(
        self, batch: bytes | bytearray, name: TopicPartition = ORDERS, *, acks: int = -1
    ) -> Appended | Refusal:
        return self.do(
            self.partition(name).append_as_leader,
            batch,
            required_acks=acks,
            now_ms=self.env.clock.now_ms(),
        )

    def append(self, batch: bytes | bytearray, name: TopicPartition = ORDERS) -> Appended:
        done = self.produce(batch, name, acks=1)
        assert isinstance(done, Appended), done
        return done

    async def write(self, batch: bytes | bytearray, name: TopicPartition = ORDERS) -> int:
        """Produce with acks=all; the first offset, once it is committed."""
        done = self.produce(batch, name)
        assert isinstance(done, Appended), done
        outcome = await self.partition(name).committed(done.last_offset)
        assert outcome is ErrorCode.none, outcome
        return done.first_offset


class Cluster:
    """Nodes 1, 2, 3 in a world, and their metadata."""

    def __init__(self, world: World, nodes: Sequence[int] = (1, 2, 3), **node_config: str) -> None:
        self.world = world
        self.node_config: Mapping[str, str] = {
            **NOBODY_VERIFIES,
            **{name.replace("_", "."): value for name, value in node_config.items()},
        }
        self.log: list[Hear] = []
        self.heard: dict[int, int] = {}
        self.deaf: set[int] = set()
        self.topics: dict[str, TopicState] = {}
        self.nodes: dict[int, Replicas] = {}
        self.proposals: list[tuple[int, IsrWish, ErrorCode]] = []
        self.calls = 0
        self.cut_off: set[int] = set()  # from the controller
        self.answer: Callable[[int, IsrWish], ErrorCode | None] = lambda _node, _wish: None
        for node in nodes:
            self.register(node)

    # -- nodes -----------------------------------------------------------------------------------------

    async def start(self, *node_ids: int, is_registered: bool = True) -> None:
        for node_id in node_ids or (1, 2, 3):
            env = self.world.node(f"node-{node_id}")
            node = Replicas(self, node_id, env, is_registered=is_registered)
            self.nodes[node_id] = node
            self.heard[node_id] = 0
            self.spread(node_id)
            await self.world.on(env, node.start())
            self.spread(node_id)

    async def stop(self, node_id: int) -> None:
        node = self.nodes.pop(node_id)
        await self.world.on(node.env, node.stop())
        self.world.kill(f"node-{node_id}")

    def kill(self, node_id: int) -> None:
        del self.nodes[node_id]
        self.world.kill(f"node-{node_id}")

    def crash(self, node_id: int) -> None:
        del self.nodes[node_id]
        self.world.crash(f"node-{node_id}")

    async def restart(self, node_id: int) -> None:
        self.world.restart(f"node-{node_id}")
        await self.start(node_id, is_registered=False)
        self.register(node_id)
        self.nodes[node_id].do(self.nodes[node_id].lead)

    def resume(self, node_id: int) -> None:
        self.world.resume(f"node-{node_id}")
        self.spread(node_id)

    def __getitem__(self, node_id: int) -> Replicas:
        return self.nodes[node_id]

    async def until(self, check: Callable[[], bool], seconds: float = 30.0) -> None:
        end = self.world.loop.time() + seconds
        while not check():
            assert self.world.loop.time() < end, "it did not happen"
            await sleep(0.01)

    # -- the metadata log ------------------------------------------------------------------------------

    def say(self, happened: Hear) -> None:
        self.log.append(happened)
        for node_id in sorted(self.nodes):
            self.spread(node_id)

    def spread(self, node_id: int) -> None:
        """Let a node hear all that was logged."""
        node = self.nodes[node_id]
        if node_id in self.deaf or not node.env.incarnation.alive or node.env.incarnation.paused:
            return
        while self.heard[node_id] < len(self.log):
            happened = self.log[self.heard[node_id]]
            self.heard[node_id] += 1
            node.do(node.hear, happened)

    def confirm_for(self, node_id: int) -> Callable[[float], Awaitable[bool]]:
        async def confirm(within_s: float) -> bool:
            """As `FreshImage` answers: one that is deaf learns nothing."""
            end = self.world.loop.time() + within_s
            while self.heard[node_id] < len(self.log) and self.world.loop.time() < end:
                await sleep(0.01)
            return self.heard[node_id] == len(self.log)

        return confirm

    def register(self, node_id: int, *, fenced: bool = False, leaving: bool = False) -> None:
        broker = BrokerState(
            BrokerId(node_id), BrokerEpoch(len(self.log) + 1), id_of(f"n{node_id}"), (),
            fenced=fenced, in_controlled_shutdown=leaving,
        )  # fmt: skip

        def happened(image: ClusterImage, delta: ImageDelta) -> None:
            image.brokers[broker.broker_id] = broker
            delta.brokers_changed = [broker.broker_id]

        self.say(happened)

    def change_broker(self, node_id: int, **fields: Any) -> None:
        def happened(image: ClusterImage, delta: ImageDelta) -> None:
            broker = image.brokers[BrokerId(node_id)]
            image.brokers[broker.broker_id] = dataclasses.replace(broker, **fields)
            delta.brokers_changed = [broker.broker_id]

        self.say(happened)

    def create(
        self,
        name: str = "orders",
        partitions: int = 1,
        *,
        replicas: Sequence[int] = (1, 2, 3),
        leaders: Sequence[int] = (),
        **configs: str,
    ) -> None:
        """Partition i is led by replica i mod n, or as `leaders` says; everyone is in sync."""
        members = tuple(BrokerId(each) for each in replicas)
        states = [
            PartitionState(
                partition=index,
                leader=BrokerId(leaders[index] if leaders else replicas[index % len(replicas)]),
                leader_epoch=0, partition_epoch=0, replicas=members, isr=members,
            )  # type: ignore[arg-type]
            for index in range(partitions)
        ]  # fmt: skip
        topic = self.topics[name] = TopicState(name, id_of(name), states)
        values = {key.replace("_", "."): value for key, value in configs.items()}

        def happened(image: ClusterImage, delta: ImageDelta) -> None:
            mine = TopicState(name, topic.topic_id, list(states))
            image.topics[name] = image.topics_by_id[topic.topic_id] = mine
            if values:
                image.configs[ConfigType.TOPIC, name] = values
            delta.topics_created = [mine]
            delta.partitions_changed = [(mine, each) for each in mine.partitions]

        self.say(happened)

    def delete(self, name: str = "orders") -> None:
        topic_id = self.topics.pop(name).topic_id

        def happened(image: ClusterImage, delta: ImageDelta) -> None:
            topic = image.topics.pop(name)
            del image.topics_by_id[topic_id]
            delta.topics_deleted = [topic]

        self.say(happened)

    def configure(self, name: str = "orders", **configs: str) -> None:
        values = {key.replace("_", "."): value for key, value in configs.items()}

        def happened(image: ClusterImage, delta: ImageDelta) -> None:
            key = (ConfigType.TOPIC, name)
            image.configs[key] = {**image.configs.get(key, {}), **values}
            delta.configs_changed = [key]

        self.say(happened)

    def state(self, name: str = "orders", index: int = 0) -> PartitionState:
        return self.topics[name].partitions[index]

    def change(self, name: str = "orders", index: int = 0, **fields: Any) -> PartitionState:
        """The partition epoch goes up; so does the leader epoch when a leader is named."""
        old = self.state(name, index)
        if "leader" in fields:
            fields.setdefault("leader_epoch", old.leader_epoch + 1)
        new = dataclasses.replace(old, partition_epoch=old.partition_epoch + 1, **fields)
        self.topics[name].partitions[index] = new

        def happened(image: ClusterImage, delta: ImageDelta) -> None:
            image.topics[name].partitions[index] = new
            delta.partitions_changed = [(image.topics[name], new)]

        self.say(happened)
        return new

    def elect(self, leader: int, name: str = "orders", index: int = 0, **fields: Any) -> None:
        self.change(name, index, leader=BrokerId(leader), **fields)

    # -- ISR changes -----------------------------------------------------------------------------------

    def propose_for(
        self, node_id: int
    ) -> Callable[[Sequence[IsrWish]], Awaitable[Sequence[ErrorCode]]]:
        async def propose(wishes: Sequence[IsrWish]) -> Sequence[ErrorCode]:
            self.calls += 1
            await sleep(0.002)
            if node_id in self.cut_off:
                raise Trouble("the controller can't be reached", Outcome.REFUSED)
            answers = []
            for wish in wishes:
                error = self.answer(node_id, wish)
                if error is None:
                    error = self._decide(node_id, wish)
                self.proposals.append((node_id, wish, error))
                answers.append(error)
            return answers

        return propose

    def _decide(self, node_id: int, wish: IsrWish) -> ErrorCode:
        for name, topic in self.topics.items():
            if topic.topic_id != wish.topic_id:
                continue
            now = topic.partitions[wish.partition]
            proposal = wish.proposal
            if proposal.leader_epoch != now.leader_epoch or now.leader != node_id:
                return ErrorCode.fenced_leader_epoch
            if proposal.partition_epoch != now.partition_epoch:
                return ErrorCode.invalid_update_version
            isr = tuple(BrokerId(each) for each in proposal.isr)
            self.change(name, wish.partition, isr=isr)
            return ErrorCode.none
        return ErrorCode.unknown_topic_id


Scene = Callable[[Cluster], Awaitable[None]]


def play(scene: Scene, *, seed: int | str = 1, **node_config: str) -> None:
    """Three nodes, and a scene on them."""
    with World(seed) as world:
        cluster = Cluster(world, **node_config)

        async def main() -> None:
            await cluster.start()
            await scene(cluster)

        world.run(main())
