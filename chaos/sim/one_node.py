"""One node under idempotent load while it is killed, loses power, and its disk and network misbehave.

    fencepost sim run --campaign one-node --seeds 0..1000

Each seed is a schedule of its own. At the end everything is healed, the node is started, and what it serves is
compared with what it acknowledged.
"""

import asyncio
import errno
import random
from collections.abc import Coroutine
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient
from fencepost.node.broker import Broker
from fencepost.node.config import NodeConfig

from ..workloads.wire_stream import IdempotentProducer, Stream, check, read_all
from .deaths import may_end_a_node
from .habits import drawn
from .node import SimEnv
from .plan import Plan
from .schedule import Schedule, Strike, Struck
from .world import World

MANY: Final = 1_000_000  # until it is taken back
NODE, CLIENT, TOPIC = "node", "client", "stream"
PORT: Final = 9092
PARTITIONS: Final = 2
USUAL: Final = (
    "kill",
    "power",
    "kill-at-a-write",
    "power-at-a-write",
    "reset",
    "cut",
    "slow-disk",
    "full-disk",
    "full-at-a-start",
)
# On top in some seeds, by dice of their own: the others keep the runs that they had.
MORE_ODDS, MORE = 0.3, ("full-then-power", "failing-sync", "no-descriptors")
FAULTS: Final = (*USUAL, *MORE)
FAULTS_S: Final = 8.0
# Longer than any fault, shorter than a human's patience: after healing, all must be acknowledged by then.
CONVERGE_S: Final = 120.0


def node_config() -> NodeConfig:
    flags = [
        f"listeners=PLAINTEXT://0.0.0.0:{PORT}",
        f"advertised.listeners=PLAINTEXT://{NODE}:{PORT}",
        "log.dirs=/data",
        f"num.partitions={PARTITIONS}",
        # Small, so that rolls, snapshots and retention checks happen in every run.
        "log.internal.segment.bytes=4096",
        "log.index.interval.bytes=256",
    ]
    return NodeConfig.load(flags=flags, environment={}, file=None)


class OneNode:
    """One run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.world = World(
            seed=plan.seed, deaths_allowed=self._may_end_it, trace_kept=plan.trace_kept
        )
        self.world.disk_habits = drawn(self.world.stream)
        has_more = self.world.stream("disks in trouble").random() < MORE_ODDS
        names = FAULTS if has_more else USUAL
        self.schedule = Schedule(self.world, plan, names, pause=lambda rng: rng.uniform(0.02, 1.0))
        self.streams = [Stream(f"p{place}", place % PARTITIONS) for place in range(3)]
        self.counts: dict[str, int] = {}
        self.is_failing = False  # its disk, so that a person is at hand

    @property
    def struck(self) -> list[Struck]:
        return self.schedule.struck

    @property
    def acknowledged(self) -> int:
        return sum(len(stream.acknowledged) for stream in self.streams)

    @property
    def client_groups(self) -> list[list[str]]:
        return [[each.name] for each in self.streams if self.plan.keeps_client(each.name)]

    def explain(self) -> str:
        return f"faults: {', '.join(map(str, self.struck))}\n{self.world.trace.tail(30)}"

    def run(self) -> None:
        with self.world:
            self.world.run(self._scenario())

    def _may_end_it(self, name: str, reason: BaseException) -> bool:
        """A disk that fails may, while it does."""
        return self.is_failing and may_end_a_node(self.world.disk(name), reason)

    def _start_node(self) -> None:
        self.world.start(self.world.restart(NODE), _serve)

    async def _scenario(self) -> None:
        self._start_node()
        client = self.world.node(CLIENT)
        address = (NODE, PORT)
        await self._on(client, _create_topic(client, address))
        producers = [
            IdempotentProducer(client, address, TOPIC, stream)
            for stream in self.streams
            if self.plan.keeps_client(stream.name)
        ]
        async with asyncio.TaskGroup() as group:
            running = [
                group.create_task(self._on(client, producer.run()), name=producer.stream.name)
                for producer in producers
            ]
            await self._break_things()
            self.world.heal()
            self._start_node()
            for producer in producers:
                producer.stopping = True
            async with asyncio.timeout(CONVERGE_S):
                await asyncio.wait(running)
                await self._on(client, _is_served(client, address))
        found = {
            partition: await self._on(client, read_all(client, address, TOPIC, partition))
            for partition in range(PARTITIONS)
        }
        check(self.streams, found)

    def _on(self, env: SimEnv, work: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        return self.world.on(env, work)

    async def _break_things(self) -> None:
        self.schedule.begin(FAULTS_S)
        while (strike := await self.schedule.next()) is not None:
            self.schedule.strikes(strike)
            await self._inject(strike)
            await asyncio.sleep(strike.rng.uniform(0.0, 0.5))
            if not self.world.is_up(NODE):
                self._start_node()

    async def _inject(self, strike: Strike) -> None:
        world, rng, fault = self.world, strike.rng, strike.name
        match fault:
            case "kill":
                world.kill(NODE)
            case "power":
                world.crash(NODE, torn=rng.random() < 0.8)
            case "kill-at-a-write" | "power-at-a-write":
                world.crash_at_disk_op(NODE, rng.randint(1, 60), kill=fault.startswith("kill"))
                await asyncio.sleep(0.5)
                world.disk(NODE).on_operation = None
            case "reset":
                world.net.reset(CLIENT, NODE)
            case "cut":
                world.net.cut(CLIENT, NODE, one_way=rng.random() < 0.5)
                await asyncio.sleep(rng.choice((0.1, 0.5, 5.0)) * rng.random())
                world.net.heal(CLIENT, NODE)
            case "slow-disk":
                world.disk(NODE).faults.slow_sync_odds = rng.choice((0.0, 0.02, 0.2))
            case "full-at-a-start":
                world.crash(NODE) if rng.random() < 0.5 else world.kill(NODE)
                await self._is_full(rng, starts=True)
            case "failing-sync" | "no-descriptors":
                await self._fails(fault, rng)
            case "full-then-power":
                await self._is_full(rng)
                await asyncio.sleep(rng.choice((0.0, 0.1, 1.0)) * rng.random())
                world.crash(NODE, torn=rng.random() < 0.8)
            case _:
                await self._is_full(rng)

    async def _fails(self, fault: str, rng: random.Random) -> None:
        """For a while; then a person restarts it, or its machine ends. Nobody else has what it called synced."""
        wrong = self.world.disk(NODE).faults
        if fault == "failing-sync":
            number = rng.choice((errno.EIO, errno.ENOSPC))
            path = rng.choice(("*", "*.log", "/data/metadata/*"))
            wrong.fail("sync", path=path, number=number, times=rng.choice((1, 3, MANY)))
        else:
            for kind in ("open", "create"):
                wrong.fail(kind, number=errno.EMFILE, times=MANY)
        self.is_failing = True
        await asyncio.sleep(rng.choice((0.1, 0.5, 3.0)) * rng.random())
        self.is_failing = False
        wrong.planned.clear()
        end = rng.choice((self.world.kill, self.world.crash))
        end(NODE)

    async def _is_full(self, rng: random.Random, *, starts: bool = False) -> None:
        files = self.world.disk(NODE).files
        files.capacity = files.used + rng.randint(0, 2000)
        if starts:
            self._start_node()
        await asyncio.sleep(rng.uniform(0.1, 3.0))
        files.capacity = None


async def _serve(env: SimEnv) -> None:
    await Broker(env, node_config()).start()


async def _is_served(env: SimEnv, address: tuple[str, int]) -> None:
    """Producers that had nothing under way end at once, before the node has started."""
    wire = WireClient(env, *address, timeout_s=4.0)
    while True:
        try:
            reply = await wire.request(
                ApiKey.metadata, topics=[{"name": TOPIC}], allow_auto_topic_creation=False
            )
            if all(each.leader_id >= 0 for each in reply.topics[0].partitions):
                break
        except Trouble:
            await env.clock.sleep(0.1)
    await wire.close()


async def _create_topic(env: SimEnv, address: tuple[str, int]) -> None:
    wire = WireClient(env, *address, timeout_s=4.0)
    topic = {"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": 1}
    while True:
        try:
            reply = await wire.request(
                ApiKey.create_topics, topics=[{**topic, "assignments": [], "configs": []}]
            )
            if reply.topics[0].error_code in (ErrorCode.none, ErrorCode.topic_already_exists):
                break
        except Trouble:
            await env.clock.sleep(0.1)
    await wire.close()
