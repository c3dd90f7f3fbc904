"""One simulated node for a whole file of tests, with a client to ask it. Asking takes no real time to wait."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from uuid import UUID

from fencepost.chaos.sim.node import SimEnv
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import Trouble
from fencepost.cluster.base.ports import Env
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient
from fencepost.cluster.wire.records import Record, build_batch
from fencepost.node.broker import Broker
from fencepost.node.config import NodeConfig

NODE, CLIENT, PORT = "node", "client", 9092
START_ATTEMPTS = 300
T = TypeVar("T")


class Asker:
    """Questions to one node, by a client that runs in `client`. Subclasses say how its code is run."""

    # What it has answered holds from then on. Kafka's replicas and configs follow a little later.
    answers_at_once = False

    def __init__(self, client: Env, host: str, port: int) -> None:
        self.client = client
        self.port = port
        self.wire = WireClient(client, host, port, client_id="tests", timeout_s=60.0)
        self.topic_ids: dict[str, UUID] = {}

    def run(self, program: Callable[[], Awaitable[T]]) -> T:
        raise NotImplementedError

    @property
    def events(self) -> list[str]:
        """What the node has logged, where that is known: the names of the events."""
        return []

    def sleep(self, seconds: float) -> None:
        self.run(lambda: self.client.clock.sleep(seconds))

    def ask(self, key: ApiKey, version: int | None = None, /, **fields: Any) -> Any:
        return self.run(lambda: self.wire.request(key, version, **fields))

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> UUID:
        reply = self.ask(
            ApiKey.create_topics,
            timeout=10_000,
            topics=[
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": 1,
                    "configs": [{"name": each, "value": configs[each]} for each in configs],
                }
            ],
        )
        assert reply.topics[0].error_code == 0, reply
        self.topic_ids[name] = reply.topics[0].topic_id
        while not self.answers_at_once:
            if all(self.fetch(name, partition=each).error_code == 0 for each in range(partitions)):
                break
            self.sleep(0.05)
        return self.topic_ids[name]

    def produce(self, name: str, data: bytes, *, partition: int = 0, acks: int = -1) -> Any:
        """The partition's part of the answer."""
        reply = self.ask(
            ApiKey.produce,
            acks=acks,
            timeout=10_000,
            topic_data=[
                {
                    "topic_id": self.topic_ids[name],
                    "partition_data": [{"index": partition, "records": data}],
                }
            ],
        )
        return reply.responses[0].partition_responses[0]

    def fetch(self, name: str, offset: int = 0, *, partition: int = 0) -> Any:
        reply = self.ask(
            ApiKey.fetch,
            max_wait=0,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[
                {
                    "topic_id": self.topic_ids[name],
                    "partitions": [
                        {
                            "partition": partition,
                            "fetch_offset": offset,
                            "partition_max_bytes": 1 << 20,
                        }
                    ],
                }
            ],
        )
        return reply.responses[0].partitions[0]


class SimNode(Asker):
    """A broker on a simulated machine of its own and a client on another."""

    answers_at_once = True

    def __init__(self, seed: int | str = 1, **settings: str) -> None:
        self.world = World(seed=seed, time_limit_s=1e9)
        self.settings = settings
        self.broker: Broker
        self.world.node(NODE)
        self.env = self.world.node(CLIENT)
        super().__init__(self.env, NODE, PORT)

    def start(self) -> None:
        """Start the node, or start it anew where it was killed or has lost its power."""

        async def begin() -> None:
            self.world.start(self.world.restart(NODE), self._serve)
            for _ in range(START_ATTEMPTS):
                try:
                    await self.world.on(self.env, self.wire.request(ApiKey.api_versions))
                except Trouble:
                    await asyncio.sleep(0.1)
                else:
                    return
            raise AssertionError("the node did not start")

        self.world.run(begin())

    async def _serve(self, env: SimEnv) -> None:
        flags = [
            f"listeners=PLAINTEXT://0.0.0.0:{PORT}",
            f"advertised.listeners=PLAINTEXT://{NODE}:{PORT}",
            "log.dirs=/data",
            "group.initial.rebalance.delay.ms=0",
            *(f"{name}={value}" for name, value in self.settings.items()),
        ]
        self.broker = Broker(env, NodeConfig.load(flags=flags, environment={}, file=None))
        await self.broker.start()

    @property
    def events(self) -> list[str]:
        return [event for _, event, _ in self.world.machine(NODE).events]

    def run(self, program: Callable[[], Awaitable[T]]) -> T:
        """Run as code of the client's machine."""

        async def on_client() -> T:
            return await program()

        return self.world.run(self.world.on(self.env, on_client()))

    def close(self) -> None:
        self.world.close()


def batch(*values: bytes, **fields: Any) -> bytes:
    records = [Record(place, 1_000 + place, None, each, ()) for place, each in enumerate(values)]
    return build_batch(records, **fields)


__all__ = ["CLIENT", "NODE", "PORT", "Asker", "SimNode", "batch"]
