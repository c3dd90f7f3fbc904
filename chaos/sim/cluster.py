"""A cluster under idempotent load while its nodes die, sleep and lose power, its network tears and its disks fail.

    fencepost sim run --campaign cluster --seeds 0..2000 [--faults kill,pause] [--nodes 3]

Each seed is a schedule of its own. What the nodes do is watched all the time (`cluster_watch.py`); at the end everything
is healed, the cluster has to become whole within a bounded time, and what it serves is compared with what it
acknowledged.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final

from fencepost.cluster.base.errors import Trouble
from fencepost.cluster.base.ports import Env
from fencepost.cluster.metadata.codec import CommandUnreadable
from fencepost.cluster.metadata.snapshot import SnapshotUnreadable
from fencepost.node.broker import Broker

from ..checkers import sought
from ..checkers.history import Anomaly, History
from ..checkers.verdict import Verdict, judge
from ..workloads.cluster_client import ClusterClient
from ..workloads.cluster_offsets import PAUSE_S, OffsetKeeper
from ..workloads.cluster_stream import FINAL, MAX_WAIT_MS, StreamProducer, StreamReader
from ..workloads.deleter import Deleter
from ..workloads.session_reader import SessionReader
from ..workloads.sleeping_producer import SleepingProducer
from ..workloads.time_seeker import Noted, TimeSeeker
from . import deleting
from .cluster_admin import Admin, Mover
from .cluster_builds import UPGRADE, builds_of
from .cluster_fault_table import FAULTS, USUAL
from .cluster_faults import ClusterFaults
from .cluster_nodes import ClusterNodes, node_name
from .cluster_progress import (
    Progress,
    as_long_as_it_goes_on,
    of_consumers,
    until_each_goes_on,
)
from .cluster_watch import ClusterBroken, ClusterWatch
from .deaths import may_end_a_node
from .deleting import SLEEPERS_NODES, Deleting
from .expiring import EXPIRING, Expiring, scene_of
from .followers import follower_odds
from .habits import drawn
from .limits import cleaner_settings, expiry_settings, small_limits
from .node import SimEnv
from .plan import Plan
from .schedule import Struck
from .sessions import FETCHER, has_sessions, untold
from .world import World

TOPIC: Final = "stream"
PARTITIONS: Final = 3
CLIENTS: Final = ("client-a", "client-b")
START_S: Final = 30.0
SWEEP_S: Final = 0.25
# Longer than any fault and any timeout: what is not well by then will not be.
CONVERGE_S: Final = 90.0
FAULTS_S: Final = 8.0
EVENTS_SHOWN: Final = 12
SMALL_LIMITS_ODDS: Final = 0.3
# For how fast the simulator is: of each client a round a second, one to five batches of a producer, and consumers that wait
# as long as Java's do.
LIGHT, LIGHT_PAUSE_S, LIGHT_WAIT_MS = "light", 1.0, 500
STREAM: Final = "stream"  # and no scene beside it
# What no later try mends.
NEVER: Final = ("invalid_config", "invalid_request")
Client = (
    StreamProducer | StreamReader | OffsetKeeper | TimeSeeker | Deleter | SleepingProducer | Mover
)
# Where nothing is deleted: records are of times that go up and down, and somebody asks for the offsets of times.
TIMES: Final = "times"
TIMES_ODDS: Final = 0.25


class ClusterRun:
    """One run of one seed."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.world = make_world(plan, lambda: self.nodes)
        self.rng = self.world.stream("run")
        drawn = self.rng.choice((3, 3, 3, 4, 5))
        self.watch = ClusterWatch(self.world, inside=plan.looks_inside)
        stream = self.world.stream
        scene, has_sleepers = scene_of(plan, stream)
        if has_sleepers:
            drawn = self.rng.choice(SLEEPERS_NODES)
        small = deleting.settings(stream) if scene else ()
        config = (*cleaner_settings(stream), *expiry_settings(stream), *small, *plan.config)
        self.nodes = ClusterNodes(
            self.world, plan.nodes or drawn, config=config, on_start=self._hook
        )
        self.watch.nodes = self.nodes
        self.faults = ClusterFaults(self.world, self.nodes, self.watch, list(CLIENTS), plan)
        self.faults.table, self.faults.usual = FAULTS, USUAL
        self.history: History = []
        self.producers: list[StreamProducer] = []
        self.readers: list[StreamReader] = []
        self.keepers: list[OffsetKeeper] = []
        self.times = None if scene else noted_of(plan, stream, self.watch.report_heard)
        self.seekers: list[TimeSeeker] = []
        self.has_sessions = not scene and has_sessions(plan, stream) and plan.keeps_client(FETCHER)
        self.in_sessions: list[SessionReader] = []  # they go on until nobody writes any more
        self.follower_odds = follower_odds(plan, stream)
        self.deleting: Deleting | None = None
        if scene:
            kind = Expiring if scene == EXPIRING else Deleting
            self.deleting = kind(self.nodes, self.watch, (TOPIC, PARTITIONS), self._client_at)
            self.deleting.struck = lambda: [each.name for each in self.struck]
            if has_sleepers:
                self.deleting.add_sleepers(self._client_at, self.history)
        self.progress = Progress(self.world, self.faults, self.producers)
        self.verdict: Verdict | None = None

    def run(self) -> Verdict:
        # Of many seeds some keep so little of the metadata log that snapshots are taken and sent all the time.
        often = self.world.stream("limits").random() < SMALL_LIMITS_ODDS
        with (
            small_limits() if often else contextlib.nullcontext(),
            builds_of(self.nodes),
            self.world,
        ):
            self.world.run(self._scenario())
        assert self.verdict is not None
        return self.verdict

    async def _scenario(self) -> None:
        self.nodes.start_all()
        await self.nodes.until_ready(START_S)
        admin = Admin(self._client(CLIENTS[0], "admin"), self.nodes, TOPIC)
        configs = None if self.deleting is None else self.deleting.configs
        await self._on(admin.client.env, create_topic(admin, TOPIC, PARTITIONS, configs))
        self._make_clients()
        sweeping = self.world.beside(self._sweep())
        async with asyncio.TaskGroup() as group:
            running = [
                group.create_task(self._on(each.client.env, each.run())) for each in self.clients
            ]
            for fetcher in self.in_sessions:
                group.create_task(self._on(fetcher.client.env, fetcher.run()))
            if self.plan.keeps_client(admin.client.name):
                running.append(group.create_task(self._on(admin.client.env, admin.run())))
            await self.faults.run(FAULTS_S)
            await self.faults.end()
            admin.stopping = True
            for fetcher in self.in_sessions:
                fetcher.is_steady = True
            if self.deleting is not None:
                self.deleting.stop()
            meanwhile: list[Client] = [*self.readers, *self.keepers, *self.seekers]
            kept = [each for each in meanwhile if self.plan.keeps_client(each.client.name)]
            done = partial(of_consumers, kept)
            async with admin.a_person_helps(self.watch.given_up):
                await self._converge()
                await until_each_goes_on(self.nodes, self.faults, done, within_s=CONVERGE_S)
            for each in meanwhile:
                each.stopping = True
            if running:
                await asyncio.wait(running)
            await self.nodes.until("in silence", self.nodes.uncommitted, within_s=CONVERGE_S)
            for fetcher in self.in_sessions:
                waits = partial(untold, self.nodes, fetcher)
                await self.nodes.until_none_waits("of fetch sessions", waits, within_s=CONVERGE_S)
                fetcher.stopping = True
            if self.deleting is not None:
                await self.deleting.settle(self._on, CONVERGE_S)
        sweeping.cancel()
        await asyncio.wait([sweeping])
        await self._judge()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self.watch.sweep()
            if self.deleting is not None:
                self.deleting.look()
            self.progress.look()

    async def _converge(self) -> None:
        """Nothing is broken any more: who is down is started, and all must be well, and written to by everybody, within a
        bounded time."""
        sleepers = [] if self.deleting is None else self.deleting.sleepers
        producers = [*self.producers, *sleepers]
        writing = [each for each in producers if self.plan.keeps_client(each.client.name)]
        before = {each: each.acknowledged for each in writing}

        def complaint() -> str:
            waits = self.faults.mend()
            for each in writing:
                each.stopping = each.acknowledged > before[each]
            waiting = [
                (each.name, each.waiting) for each in writing if each.waiting or not each.stopping
            ]
            return (
                waits
                or self.nodes.not_whole()
                or (f"not acknowledged: {waiting}" if waiting else "")
            )

        await self.nodes.until("after healing", complaint, within_s=CONVERGE_S)

    async def _judge(self) -> None:
        for partition in range(PARTITIONS):
            client = self._client(CLIENTS[0], f"{FINAL}-{partition}")
            final = self._reader(client, partition, name=FINAL)
            reading = self._on(client.env, final.read_all())
            await as_long_as_it_goes_on(reading, final, CONVERGE_S)
        self.watch.sweep(producers=True)
        self.watch.compare_bytes()
        self.watch.compare_tables()
        if self.times is not None:
            answers = [answer for each in self.seekers for answer in each.answers]
            self.watch.report_heard(sought.check(answers, self.times.times))
        self.verdict = judge(self.history)
        # A run of which clients were left out may prove nothing; that is not what it is for.
        # Nor has one of which all has expired when it is read.
        may_be_void = self.plan.keep_clients or isinstance(self.deleting, Expiring)
        is_well = self.verdict.valid or (may_be_void and not self.verdict.anomalies)
        assert is_well, f"\n{self.verdict}"
        if self.deleting is not None:
            await self.deleting.at_the_end()
        self.nodes.check_damaged(self.damaged_answers)

    # Parts.

    def _hook(self, node_id: int, env: SimEnv, broker: Broker) -> None:
        self.watch.hook(node_id, env, broker)
        if self.deleting is not None:
            self.deleting.hook(node_id, broker)

    @property
    def clients(self) -> list[Client]:
        """Those that run, but for the administrator."""
        all_of_them: list[Client] = [
            *self.producers,
            *self.readers,
            *self.keepers,
            *self.seekers,
        ]
        if self.deleting is not None:
            all_of_them += self.deleting.clients
        return [each for each in all_of_them if self.plan.keeps_client(each.client.name)]

    @property
    def client_groups(self) -> list[list[str]]:
        """What may be left out to make a failure smaller."""
        clients = [each.client for each in self.clients] + [
            each.client for each in self.in_sessions
        ]
        return [*([each.name] for each in clients), ["admin"]]

    @property
    def acknowledged(self) -> int:
        return sum(each.acknowledged for each in self.producers)

    @property
    def struck(self) -> list[Struck]:
        return self.faults.struck

    @property
    def damaged_answers(self) -> int:
        clients = [each.client for each in self.readers] + [
            each.client for each in self.in_sessions
        ]
        return sum(each.damaged for each in clients)

    @property
    def counts(self) -> dict[str, int]:
        gap_ms = max((each.longest_gap_s for each in self.producers), default=0.0) * 1000
        found = {**self.watch.seen, **self.faults.played, "longest gap ms": int(gap_ms)}
        found["damaged answers"] = self.damaged_answers
        found["synced bytes seen again"] = self.watch.synced.compared
        if self.deleting is not None:
            found |= self.deleting.counts
        if self.times is not None:
            found["times sought"] = sum(len(each.answers) for each in self.seekers)
            found["looks compared"] = self.times.compared
        if self.follower_odds:
            found["followers read"] = sum(each.client.followers_read for each in self.readers)
        for fetcher in self.in_sessions:
            found["answers in sessions"] = fetcher.incremental
            found["partitions left out"] = fetcher.left_out
        if self.progress.is_owed:
            found["longest wait ms"] = int(self.progress.longest_s * 1000)
        return found

    def _make_clients(self) -> None:
        is_light = LIGHT in self.plan.workloads
        for place in range(PARTITIONS + 1):
            client = self._client(CLIENTS[place % 2], f"p{place}")
            partition = place % PARTITIONS
            drawn = self.rng.choice((0.02, 0.05, 0.1))
            pause_s = LIGHT_PAUSE_S if is_light else drawn
            self.producers.append(
                StreamProducer(client, TOPIC, partition, self.history, pause_s=pause_s)
            )
        for partition in range(PARTITIONS):
            client = self._client(CLIENTS[1], f"r{partition}")
            client.follower_odds = self.follower_odds
            wait_ms = LIGHT_WAIT_MS if is_light else MAX_WAIT_MS
            one = self._reader(client, partition, told=self.watch.told, max_wait_ms=wait_ms)
            self.readers.append(one)
        for place in range(2):
            client = self._client(CLIENTS[place], f"g{place}")
            pause_s = 2 * LIGHT_PAUSE_S if is_light else PAUSE_S
            self.keepers.append(OffsetKeeper(client, TOPIC, self.watch.positioned, pause_s=pause_s))

        if self.times is not None:
            for partition in range(PARTITIONS):
                client = self._client_at(partition, f"t{partition}")
                self.seekers.append(TimeSeeker(client, TOPIC, partition))
        if self.has_sessions:
            client = self._client(CLIENTS[0], FETCHER)
            parts = [
                self._reader(client, each, name=f"{FETCHER}-{each}", told=self.watch.told)
                for each in range(PARTITIONS)
            ]
            self.in_sessions.append(SessionReader(client, TOPIC, parts))

    def _reader(self, client: ClusterClient, partition: int, **how: Any) -> StreamReader:
        if self.deleting is not None:
            return self.deleting.reader(client, partition, self.history, **how)
        return StreamReader(client, TOPIC, partition, self.history, **how)

    def _client_at(self, place: int, name: str) -> ClusterClient:
        return self._client(CLIENTS[place % 2], name)

    def _client(self, machine: str, name: str) -> ClusterClient:
        client = ClusterClient(self.world.node(machine), self.nodes.addresses, name=name)
        if self.times is not None:
            client.dressed = self.times
        return client

    def _on(self, env: Env, work: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        assert isinstance(env, SimEnv)
        return self.world.on(env, work)

    # Telling.

    def explain(self) -> str:
        """The last events of each node, and how it all stood."""
        lines = [f"faults: {', '.join(map(str, self.struck))}"]
        lines += [f"died: {name}: {reason!r}" for name, reason in self.world.deaths[-5:]]
        for name in [*self.nodes.names, "chaos", "watch"]:
            mine = [line for line in self.world.trace.told if line.split(" ", 2)[1] == name]
            lines += [f"-- {name}", *mine[-EVENTS_SHOWN:]]
        return "\n".join(lines)


def make_world(plan: Plan, nodes: Callable[[], ClusterNodes]) -> World:
    is_upgrade = UPGRADE in plan.faults and "older-build" not in plan.faults

    def may_end(name: str, why: BaseException) -> bool:
        if is_upgrade and isinstance(why, CommandUnreadable | SnapshotUnreadable):
            # Nobody goes back to an older build: what is written is what those can read who are on theirs still.
            unreadable = Anomaly("metadata-unreadable", "metadata", str(why))
            world.fail(ClusterBroken(str(unreadable)))
        rotten, older = nodes().rotten, map(node_name, nodes().builds)
        is_rotten = rotten is not None and name == node_name(rotten)
        return may_end_a_node(world.disk(name), why, rotten=is_rotten, older=name in older)

    world = World(
        plan.seed,
        time_limit_s=3600.0,
        deaths_allowed=may_end,
        trace_kept=plan.trace_kept,
    )
    world.disk_habits = drawn(world.stream)
    world.blames_nodes = True
    return world


def noted_of(
    plan: Plan, stream: Callable[[str], random.Random], report: Callable[[list[Anomaly]], None]
) -> Noted | None:
    """In some seeds, and where it is asked for."""
    dice = stream(TIMES)
    return Noted(dice, report) if plan.has_scene(TIMES, TIMES_ODDS, dice) else None


async def create_topic(
    admin: Admin, topic: str, partitions: int, configs: Mapping[str, str] | None = None
) -> None:
    while True:
        try:
            answer = await admin.create(topic, partitions, configs=configs)
            if answer in ("none", "topic_already_exists"):
                return
            assert answer not in NEVER, f"{topic} with {configs}: {answer}"
        except Trouble:
            pass
        await admin.client.env.clock.sleep(0.1)
