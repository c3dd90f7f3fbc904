"""One node under idempotent load while it is killed, loses power, and its disk and network misbehave.

    python -m fencepost.chaos.sim.one_node --seeds 0..1000

Each seed is a schedule of its own. At the end everything is healed, the node is started, and what it serves is
compared with what it acknowledged. A seed that fails is printed as the command that runs just that one.
"""

import argparse
import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient
from fencepost.node.broker import Broker
from fencepost.node.config import NodeConfig

from ..workloads.wire_stream import IdempotentProducer, Stream, check, read_all
from .node import SimEnv
from .world import World

NODE, CLIENT, TOPIC = "node", "client", "stream"
PORT: Final = 9092
PARTITIONS: Final = 2
FAULTS: Final = (
    "kill",
    "power",
    "kill at a write",
    "power at a write",
    "reset",
    "cut",
    "slow disk",
    "full disk",
)
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

    def __init__(self, seed: int, *, seconds: float) -> None:
        self.world = World(seed=seed)
        self.seconds = seconds
        self.rng = self.world.stream("faults")
        self.streams = [Stream(f"p{place}", place % PARTITIONS) for place in range(3)]
        self.brokers: list[Broker] = []
        self.faults: list[str] = []

    def run(self) -> None:
        with self.world:
            self.world.run(self._scenario())

    def _start_node(self) -> None:
        self.world.start(self.world.restart(NODE), _serve)

    async def _scenario(self) -> None:
        self._start_node()
        client = self.world.node(CLIENT)
        address = (NODE, PORT)
        await self._on(client, _create_topic(client, address))
        producers = [IdempotentProducer(client, address, TOPIC, stream) for stream in self.streams]
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
        found = {
            partition: await self._on(client, read_all(client, address, TOPIC, partition))
            for partition in range(PARTITIONS)
        }
        check(self.streams, found)

    def _on(self, env: SimEnv, work: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        return self.world.on(env, work)

    async def _break_things(self) -> None:
        rng, until = self.rng, self.world.loop.time() + self.seconds
        while self.world.loop.time() < until:
            await asyncio.sleep(rng.uniform(0.02, 0.5))
            fault = rng.choice(FAULTS)
            self.faults.append(fault)
            self.world.trace.event("chaos", fault)
            await self._inject(fault)
            await asyncio.sleep(rng.uniform(0.0, 0.5))
            if not self.world.is_up(NODE):
                self._start_node()

    async def _inject(self, fault: str) -> None:
        world, rng = self.world, self.rng
        match fault:
            case "kill":
                world.kill(NODE)
            case "power":
                world.crash(NODE, torn=rng.random() < 0.8)
            case "kill at a write" | "power at a write":
                world.crash_at_disk_op(NODE, rng.randint(1, 60), kill=fault.startswith("kill"))
                await asyncio.sleep(0.5)
                world.disk(NODE).on_operation = None
            case "reset":
                world.net.reset(CLIENT, NODE)
            case "cut":
                world.net.cut(CLIENT, NODE, one_way=rng.random() < 0.5)
                await asyncio.sleep(rng.choice((0.1, 0.5, 5.0)) * rng.random())
                world.net.heal(CLIENT, NODE)
            case "slow disk":
                world.disk(NODE).faults.slow_sync_odds = rng.choice((0.0, 0.02, 0.2))
            case _:
                files = world.disk(NODE).files
                files.capacity = files.used + rng.randint(0, 2000)
                await asyncio.sleep(rng.uniform(0.1, 3.0))
                files.capacity = None


async def _serve(env: SimEnv) -> None:
    await Broker(env, node_config()).start()


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


def _root(failure: BaseException) -> BaseException:
    """What really happened, beneath the groups of tasks that ended with it."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fencepost.chaos.sim.one_node", description=__doc__
    )
    parser.add_argument(
        "--seeds", default="0..100", metavar="A..B", help="from A up to, not including, B"
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="virtual seconds of faults")
    arguments = parser.parse_args()
    first, _, end = arguments.seeds.partition("..")
    acknowledged, failed = 0, []
    for seed in range(int(first), int(end or int(first) + 1)):
        run = OneNode(seed, seconds=arguments.seconds)
        try:
            run.run()
        except Exception as failure:  # noqa: BLE001 - every failure of a seed is reported, and fails the run
            failed.append(seed)
            print(f"seed {seed}: {_root(failure)!r}", file=sys.stderr)
            print(
                f"  again: python -m fencepost.chaos.sim.one_node --seeds {seed}..{seed + 1} "
                f"--seconds {arguments.seconds}",
                file=sys.stderr,
            )
        acknowledged += sum(len(stream.acknowledged) for stream in run.streams)
    print(f"{acknowledged:,} records acknowledged, {len(failed)} seeds failed {failed[:20]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
