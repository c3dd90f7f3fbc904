"""A cluster under idempotent load while its nodes die, sleep and lose power, its network tears and its disks fail.

    python -m fencepost.chaos.sim.cluster --seeds 0..2000 [--faults kill,pause] [--seconds 8] [--nodes 3] [--jobs 2]

Each seed is a schedule of its own. What the nodes do is watched all the time (`cluster_watch.py`); at the end everything
is healed, the cluster has to become whole within a bounded time, and what it serves is compared with what it
acknowledged. A seed that fails is printed as the command that runs just that one.
"""

import argparse
import asyncio
import contextlib
import sys
import time
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from fencepost.cluster.base.errors import LogDamaged, Trouble
from fencepost.cluster.base.ports import Env

from ..checkers.history import History
from ..checkers.verdict import Verdict, judge
from ..workloads.cluster_client import ClusterClient
from ..workloads.cluster_offsets import OffsetKeeper
from ..workloads.cluster_stream import FINAL, StreamProducer, StreamReader
from .cluster_admin import Admin
from .cluster_faults import AT_ONCE_MAX, FAULTS, USUAL, ClusterFaults
from .cluster_nodes import ClusterNodes
from .cluster_watch import ClusterWatch
from .node import SimEnv
from .quorum import small_limits
from .world import World

TOPIC: Final = "stream"
PARTITIONS: Final = 3
CLIENTS: Final = ("client-a", "client-b")
START_S: Final = 30.0
SWEEP_S: Final = 0.25
# Longer than any fault and any timeout: what is not well by then will not be.
CONVERGE_S: Final = 90.0
EVENTS_SHOWN: Final = 12
TOLD_EVERY: Final = 25
SMALL_LIMITS_ODDS: Final = 0.3


class ClusterRun:
    """One run of one seed."""

    def __init__(
        self,
        seed: int,
        *,
        seconds: float = 8.0,
        faults: Sequence[str] = (),
        nodes: int = 0,
        churn: bool = True,
        config: Sequence[str] = (),
        at_once: int = AT_ONCE_MAX,
    ) -> None:
        self.seed = seed
        self.world = World(seed, time_limit_s=3600.0, deaths_allowed=may_end_a_node)
        self.rng = self.world.stream("run")
        count = nodes or self.rng.choice((3, 3, 3, 4, 5))
        self.watch = ClusterWatch(self.world)
        self.nodes = ClusterNodes(self.world, count, config=config, on_start=self.watch.hook)
        self.watch.nodes = self.nodes
        self.faults = ClusterFaults(self.world, self.nodes, self.watch, list(CLIENTS))
        self.faults.at_once_max = at_once
        self.fault_names = list(faults or USUAL)
        self.seconds = seconds
        self.churn = churn
        self.history: History = []
        self.producers: list[StreamProducer] = []
        self.readers: list[StreamReader] = []
        self.keepers: list[OffsetKeeper] = []
        self.verdict: Verdict | None = None

    def run(self) -> Verdict:
        # Of many seeds some keep so little of the metadata log that snapshots are taken and sent all the time.
        often = self.world.stream("limits").random() < SMALL_LIMITS_ODDS
        with small_limits() if often else contextlib.nullcontext(), self.world:
            self.world.run(self._scenario())
        assert self.verdict is not None
        return self.verdict

    async def _scenario(self) -> None:
        self.nodes.start_all()
        await self.nodes.until_ready(START_S)
        admin = Admin(self._client(CLIENTS[0], "admin"), self.nodes, TOPIC)
        await self._on(admin.client.env, create_topic(admin, TOPIC, PARTITIONS))
        self._make_clients()
        sweeping = asyncio.ensure_future(self._sweep())
        async with asyncio.TaskGroup() as group:
            clients: list[StreamProducer | StreamReader | OffsetKeeper]
            clients = [*self.producers, *self.readers, *self.keepers]
            running = [group.create_task(self._on(each.client.env, each.run())) for each in clients]
            if self.churn:
                running.append(group.create_task(self._on(admin.client.env, admin.run())))
            await self.faults.run(self.seconds, self.fault_names)
            await self.faults.end()
            admin.stopping = True
            await self._converge()
            for reader in self.readers:
                reader.stopping = True
            for keeper in self.keepers:
                keeper.stopping = True
            await asyncio.wait(running)
        sweeping.cancel()
        await asyncio.wait([sweeping])
        await self._judge()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self.watch.sweep()

    async def _converge(self) -> None:
        """Nothing is broken any more: who is down is started, and all must be well within a bounded time."""
        for producer in self.producers:
            producer.stopping = True

        def complaint() -> str:
            self.nodes.start_all()
            for node_id in self.nodes.ready():
                if self.nodes.brokers[node_id].replicas.offline:
                    self.nodes.start(node_id)  # a failed disk was replaced: an operator restarts
            waiting = [(each.name, each.waiting) for each in self.producers if each.waiting]
            return self.nodes.not_whole() or (f"not acknowledged: {waiting}" if waiting else "")

        await self.nodes.until("after healing", complaint, within_s=CONVERGE_S)

    async def _judge(self) -> None:
        for partition in range(PARTITIONS):
            client = self._client(CLIENTS[0], f"{FINAL}-{partition}")
            final = StreamReader(client, TOPIC, partition, self.history, name=FINAL)
            async with asyncio.timeout(CONVERGE_S):
                await self._on(client.env, final.read_all())
        self.watch.sweep(producers=True)
        self.watch.compare_bytes()
        self.verdict = judge(self.history)
        assert self.verdict.valid, f"\n{self.verdict}"

    # Parts.

    def _make_clients(self) -> None:
        for place in range(PARTITIONS + 1):
            client = self._client(CLIENTS[place % 2], f"p{place}")
            partition = place % PARTITIONS
            pause_s = self.rng.choice((0.02, 0.05, 0.1))
            self.producers.append(
                StreamProducer(client, TOPIC, partition, self.history, pause_s=pause_s)
            )
        for partition in range(PARTITIONS):
            client = self._client(CLIENTS[1], f"r{partition}")
            self.readers.append(
                StreamReader(client, TOPIC, partition, self.history, told=self.watch.told)
            )

        for place in range(2):
            client = self._client(CLIENTS[place], f"g{place}")
            self.keepers.append(OffsetKeeper(client, TOPIC, self.watch.positioned))

    def _client(self, machine: str, name: str) -> ClusterClient:
        return ClusterClient(self.world.node(machine), self.nodes.addresses, name=name)

    def _on(self, env: Env, work: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        assert isinstance(env, SimEnv)
        return self.world.on(env, work)

    # Telling.

    def explain(self) -> str:
        """The last events of each node, and how it all stood."""
        lines = [f"faults: {' '.join(self.faults.done)}"]
        lines += [f"died: {name}: {reason!r}" for name, reason in self.world.deaths[-5:]]
        for name in [*self.nodes.names, "chaos", "watch"]:
            mine = [line for line in self.world.trace.told if line.split(" ", 2)[1] == name]
            lines += [f"-- {name}", *mine[-EVENTS_SHOWN:]]
        return "\n".join(lines)


def may_end_a_node(reason: BaseException) -> bool:
    """A disk that fails may; a broken invariant or a damaged log never."""
    return isinstance(reason, OSError | Trouble) and not isinstance(reason, LogDamaged)


async def create_topic(admin: Admin, topic: str, partitions: int) -> None:
    while True:
        try:
            if await admin.create(topic, partitions) in ("none", "topic_already_exists"):
                return
        except Trouble:
            pass
        await admin.client.env.clock.sleep(0.1)


def root_of(failure: BaseException) -> BaseException:
    """What really happened, beneath the groups of tasks that ended with it."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure


# The campaign.


@dataclass(frozen=True, slots=True)
class Wanted:
    seed: int
    seconds: float
    faults: str
    nodes: int
    config: tuple[str, ...] = ()
    at_once: int = AT_ONCE_MAX

    @property
    def command(self) -> str:
        parts = [f"--seeds {self.seed}", f"--seconds {self.seconds:g}"]
        parts += [f"--faults {self.faults}"] if self.faults else []
        parts += [f"--nodes {self.nodes}"] if self.nodes else []
        parts += [f"--config {each}" for each in self.config]
        parts += [f"--at-once {self.at_once}"] if self.at_once != AT_ONCE_MAX else []
        return f"python -m fencepost.chaos.sim.cluster {' '.join(parts)}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one seed came to. `failure` is for people, empty when all was well."""

    wanted: Wanted
    failure: str
    acknowledged: int
    longest_gap_s: float
    virtual_s: float
    cpu_s: float
    digest: str
    moments: dict[str, int]


def run_seed(wanted: Wanted) -> Outcome:
    faults = [name for name in wanted.faults.split(",") if name]
    run = ClusterRun(
        wanted.seed,
        seconds=wanted.seconds,
        faults=faults,
        nodes=wanted.nodes,
        config=wanted.config,
        at_once=wanted.at_once,
    )
    failure, began = "", time.process_time()
    try:
        run.run()
    except Exception as error:  # noqa: BLE001 - every failure of a seed is reported, and fails the campaign
        failure = (
            f"seed {wanted.seed}: {root_of(error)!r}\n{run.explain()}\nagain: {wanted.command}"
        )
    return Outcome(
        wanted,
        failure,
        sum(each.acknowledged for each in run.producers),
        max((each.longest_gap_s for each in run.producers), default=0.0),
        run.world.loop.time(),
        time.process_time() - began,
        run.world.trace.digest(),
        run.watch.seen,
    )


def _outcomes(wanted: list[Wanted], jobs: int) -> Iterator[Outcome]:
    if jobs == 1:
        yield from map(run_seed, wanted)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run_seed, wanted)


def seeds_of(text: str) -> range:
    first, dots, end = text.partition("..")
    return range(int(first), int(end) if dots else int(first) + 1)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fencepost.chaos.sim.cluster", description=__doc__
    )
    parser.add_argument(
        "--seeds", default="0..20", metavar="A..B", help="from A up to, not including, B"
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="virtual seconds of faults")
    parser.add_argument("--faults", default="", help=f"some of {','.join(FAULTS)}")
    parser.add_argument("--nodes", type=int, default=0, help="how many; the seed says when not")
    parser.add_argument(
        "--config", action="append", default=[], metavar="NAME=VALUE", help="of every node"
    )
    parser.add_argument("--at-once", type=int, default=AT_ONCE_MAX, help="faults at one time")
    parser.add_argument("--jobs", type=int, default=1, help="seeds at one time")
    asked = parser.parse_args()
    wanted = [
        Wanted(seed, asked.seconds, asked.faults, asked.nodes, tuple(asked.config), asked.at_once)
        for seed in seeds_of(asked.seeds)
    ]
    began, virtual_s, cpu_s, acknowledged = time.monotonic(), 0.0, 0.0, 0
    failed: list[int] = []
    gaps: list[float] = []
    moments: Counter[str] = Counter()
    for number, outcome in enumerate(_outcomes(wanted, asked.jobs), 1):
        virtual_s += outcome.virtual_s
        cpu_s += outcome.cpu_s
        acknowledged += outcome.acknowledged
        moments.update(outcome.moments)
        gaps.append(outcome.longest_gap_s)
        if outcome.failure:
            failed.append(outcome.wanted.seed)
            print(outcome.failure, file=sys.stderr, flush=True)
        if number % TOLD_EVERY == 0:
            print(
                f"{number} seeds, {len(failed)} failed, {time.monotonic() - began:,.0f} s",
                flush=True,
            )
        if len(wanted) == 1:
            print(f"digest {outcome.digest}")
    print(f"{acknowledged:,} records acknowledged; {dict(moments)}")
    gaps.sort()
    print(
        f"longest gap in a producer's acknowledgements: half of the seeds {gaps[len(gaps) // 2]:.2f} s,"
        f" worst {gaps[-1]:.2f} s"
    )
    print(
        f"{virtual_s:,.0f} virtual seconds in {time.monotonic() - began:,.0f} real ones, of which"
        f" {cpu_s:,.0f} of a processor: {virtual_s / cpu_s:.1f} to 1"
    )
    print(f"{len(failed)} of {len(wanted)} seeds failed {failed[:20]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
