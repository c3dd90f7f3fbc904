"""Three nodes in a World, watched all the time, with a producer and a reader: for scenarios that are told step by step."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from fencepost.chaos.checkers.history import History, Operation
from fencepost.chaos.checkers.verdict import Verdict, judge
from fencepost.chaos.sim.cluster_admin import Admin
from fencepost.chaos.sim.cluster_nodes import ClusterNodes, node_name
from fencepost.chaos.sim.cluster_watch import ClusterWatch
from fencepost.chaos.sim.world import World
from fencepost.chaos.workloads.cluster_client import ClusterClient
from fencepost.chaos.workloads.cluster_stream import StreamProducer, StreamReader
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.records import Record, build_batch

TOPIC = "stream"


class Scene:
    """`leader` and `followers` are of the topic's only partition, as the newest image has it."""

    def __init__(self, world: World, count: int = 3, config: Sequence[str] = ()) -> None:
        self.world = world
        self.watch = ClusterWatch(world)
        self.nodes = ClusterNodes(world, count, config=config, on_start=self.watch.hook)
        self.watch.nodes = self.nodes
        self.history: History = []
        self.producer = StreamProducer(self.client("p0"), TOPIC, 0, self.history, pause_s=0.01)
        self._running: asyncio.Future[None] | None = None
        self._finals = 0

    def client(self, name: str) -> ClusterClient:
        return ClusterClient(self.world.node("client"), self.nodes.addresses, name=name)

    @property
    def leader(self) -> BrokerId:
        found = self.nodes.leader(TOPIC, 0)
        assert found is not None, "the partition is offline"
        return found

    @property
    def followers(self) -> list[BrokerId]:
        return [id_ for id_ in self.nodes.ids if id_ != self.leader]

    @property
    def isr(self) -> list[int]:
        state = self.nodes.partition(TOPIC, 0)
        assert state is not None
        return sorted(state.isr)

    async def start(self) -> None:
        """All nodes serve, the topic is there, the producer writes."""
        self.nodes.start_all()
        await self.nodes.until_ready()
        admin = Admin(self.client("admin"), self.nodes, TOPIC)
        assert await self.world.on(self.env, admin.create(TOPIC, 1)) == "none"
        await self.nodes.until_whole()
        self._running = asyncio.ensure_future(self.world.on(self.env, self.producer.run()))
        await self.until_acknowledged(20)

    @property
    def env(self):
        return self.world.node("client")

    async def until_acknowledged(self, more: int, within_s: float = 20.0) -> None:
        """So many records more than now."""
        wanted = self.producer.acknowledged + more

        def missing() -> str:
            there = self.producer.acknowledged
            return "" if there >= wanted else f"{there} of {wanted}: {self.producer.errors}"

        await self.nodes.until("records are acknowledged", missing, within_s=within_s)

    async def until(self, what: str, done: Callable[[], bool], within_s: float = 20.0) -> None:
        await self.nodes.until(what, lambda: "" if done() else "not yet", within_s=within_s)

    def kill(self, node_id: int) -> None:
        self.world.kill(node_name(node_id))

    async def write(self, node_id: int, *, timeout_ms: int = 1500) -> ErrorCode:
        """One record with acks=all, written by nobody's producer, to this node; what it is answered."""
        image = self.nodes.image
        assert image is not None
        topic_id = image.topics[TOPIC].topic_id
        wire = self.client("writer").wire_to((node_name(node_id), 9092))
        batch = build_batch([Record(0, self.env.clock.now_ms(), None, b"other/0", ())])
        # Refused or not, it may be there when another one leads.
        sent = Operation("send", "info", "other", f"{TOPIC}-0", 0, error="nobody's producer")
        self.history.append(sent)
        reply = await self.world.on(
            self.env,
            wire.request(
                ApiKey.produce,
                acks=-1,
                timeout=timeout_ms,
                topic_data=[
                    {"topic_id": topic_id, "partition_data": [{"index": 0, "records": batch}]}
                ],
            ),
        )
        return reply.responses[0].partition_responses[0].error_code

    async def read(self, name: str = "") -> int:
        """A pass over everything, by a reader of its own; how many records it saw."""
        self._finals += 1
        name = name or f"pass-{self._finals}"
        reader = StreamReader(self.client(name), TOPIC, 0, self.history, name=name)
        async with asyncio.timeout(20):
            await self.world.on(self.env, reader.read_all())
        return sum(1 for op in self.history if op.f == "read" and op.process == name)

    async def finish(self) -> Verdict:
        """Everything is healed and started; all is acknowledged, whole and valid, or this says what is not."""
        self.world.heal()
        self.nodes.start_all()
        self.producer.stopping = True

        def complaint() -> str:
            return self.nodes.not_whole() or (
                f"{self.producer.waiting} batches wait" if self.producer.waiting else ""
            )

        await self.nodes.until("after healing", complaint, within_s=60)
        assert self._running is not None
        await self._running
        await self.read("final")
        self.watch.sweep(producers=True)
        self.watch.compare_bytes()
        verdict = judge(self.history)
        assert verdict.valid, str(verdict)
        return verdict


def play(
    seed: int,
    scenario: Callable[[Scene], Awaitable[None]],
    count: int = 3,
    config: Sequence[str] = (),
) -> Scene:
    """Run a scenario to its end and check all of it."""
    with World(seed, time_limit_s=600) as world:
        scene = Scene(world, count, config)

        async def all_of_it() -> None:
            await scene.start()
            await scenario(scene)
            await scene.finish()

        world.run(all_of_it())
    return scene
