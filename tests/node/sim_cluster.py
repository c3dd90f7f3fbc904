"""A cluster of simulated nodes and a client to ask each of them."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from uuid import UUID

from fencepost.chaos.sim.cluster_nodes import CLIENT_PORT, ClusterNodes, node_name
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.metadata.image import PartitionState
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient
from fencepost.cluster.wire.records import Record, build_batch

CLIENT = "client"


class Cluster:
    """`play(scenario)` runs it with all nodes up."""

    def __init__(
        self, nodes: int = 3, *, seed: int | str = 1, config: Any = (), **world: Any
    ) -> None:
        self.world = World(seed=seed, **world)
        self.nodes = ClusterNodes(self.world, nodes, config=config)
        self.topic_id: UUID | None = None

    def play(
        self, scenario: Callable[[], Coroutine[Any, Any, Any]], *, only: Sequence[int] = ()
    ) -> Any:
        """With all nodes up, or with those only."""
        started = only or self.nodes.ids

        async def all_up() -> Any:
            for node_id in started:
                self.nodes.start(node_id)
            await self.until(lambda: set(started) <= set(self.nodes.ready()))
            return await scenario()

        with self.world:
            return self.world.run(all_up())

    @property
    def now(self) -> float:
        return self.world.loop.time()

    def events(self, node_id: int, name: str) -> list[dict[str, Any]]:
        logged = self.world.machine(node_name(node_id)).events
        return [fields for _, event, fields in logged if event == name]

    async def ask(self, node_id: int, key: ApiKey, **fields: Any) -> Any:
        client = self.world.node(CLIENT)

        async def work() -> Any:
            wire = WireClient(client, node_name(node_id), CLIENT_PORT, timeout_s=60.0)
            try:
                return await wire.request(key, **fields)
            finally:
                await wire.close()

        return await self.world.on(client, work())

    async def create(
        self, name: str, node_id: int = 1, *, partitions: int = 1, copies: int = 3
    ) -> Any:
        wanted = {"name": name, "num_partitions": partitions, "replication_factor": copies}
        reply = await self.ask(
            node_id,
            ApiKey.create_topics,
            timeout=10_000,
            topics=[{**wanted, "assignments": [], "configs": []}],
        )
        self.topic_id = reply.topics[0].topic_id
        return reply.topics[0]

    async def produce(self, node_id: int, value: bytes = b"x", *, partition: int = 0) -> ErrorCode:
        data = build_batch([Record(0, 1_000, None, value, ())])
        reply = await self.ask(
            node_id,
            ApiKey.produce,
            acks=-1,
            timeout=5_000,
            topic_data=[
                {
                    "topic_id": self.topic_id,
                    "partition_data": [{"index": partition, "records": data}],
                }
            ],
        )
        error: ErrorCode = reply.responses[0].partition_responses[0].error_code
        return error

    async def fetch(self, node_id: int, offset: int = 0, *, partition: int = 0) -> Any:
        wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        reply = await self.ask(
            node_id,
            ApiKey.fetch,
            max_wait=0,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[{"topic_id": self.topic_id, "partitions": [wanted]}],
        )
        return reply.responses[0].partitions[0]

    def partition(self, index: int = 0, topic: str = "t") -> PartitionState:
        state = self.nodes.partition(topic, index)
        assert state is not None
        return state

    def leaders(self, topic: str = "t") -> list[int]:
        image = self.nodes.image
        assert image is not None
        return [state.leader for state in image.topics[topic].partitions]

    async def until(self, done: Callable[[], bool], within_s: float = 30.0) -> float:
        """How long it took."""
        began = self.now
        while not done():
            assert self.now - began < within_s, "it does not happen"
            await asyncio.sleep(0.005)
        return self.now - began

    def kill(self, node_id: int) -> None:
        self.world.kill(node_name(node_id))
