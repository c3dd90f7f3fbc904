"""A cluster under transactions while everything fails that can: nothing torn, lost, doubled or read before its time.

    fencepost sim run --campaign transactions --seeds 0..2000 [--faults hunt,pause] [--workloads bank] [--protocol old]

Clients of the wire client of `workloads/txn_client.py`, of the old protocol, the new one or both: tellers who move money,
Jepsen's processes that append and poll (assigned or subscribed), pipelines that consume, transform and produce, kept apart
by transactional id or by group, jobs that commit as groups, and half messages; some have a twin with the same id, some
dawdle longer than their timeout, some crash. Topics that they write to are deleted and made again. At the end everything is
healed, every transaction has to end within a bounded time, and the history is judged (`checkers/txn_verdict.py`).
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Coroutine
from typing import Any, Final

from fencepost.cluster.base.ports import Env

from ..checkers.history import FINAL
from ..checkers.txn_history import Txn
from ..checkers.txn_verdict import judge
from ..checkers.verdict import Verdict
from ..workloads.cluster_client import ClusterClient
from ..workloads.group_member import GroupMember
from ..workloads.txn_added import SETTINGS as ADDED_SETTINGS
from ..workloads.txn_added import GroupJob, HalfChecker, Shop
from ..workloads.txn_answers import Partition
from ..workloads.txn_append import SHARED_GROUP, AppendProcess
from ..workloads.txn_bank import Auditor, Habits, Teller
from ..workloads.txn_book import Book
from ..workloads.txn_pipeline import GROUP, Feeder, Worker
from ..workloads.txn_reader import CommittedReader, GroupPositions
from .added_clients import AddedClients
from .cluster import CLIENTS, CONVERGE_S, FAULTS_S, START_S, SWEEP_S, create_topic, make_world
from .cluster_admin import CHURNED, Admin
from .cluster_builds import OLD, builds_of, old_features
from .cluster_nodes import ClusterNodes
from .cluster_progress import until_somebody_commits
from .http import TOKEN
from .limits import SHORT_SESSION_MS, cleaner_settings, old_ids, session_timeout_ms, small_limits
from .node import SimEnv
from .plan import Plan
from .schedule import Struck
from .transaction_faults import ALL_USUAL, TRANSACTION_FAULTS, UPGRADE, TransactionFaults
from .transaction_watch import TransactionWatch

BANK: Final = [("bank", place) for place in range(3)]
APPEND: Final = [("append", place) for place in range(3)]
INPUTS: Final = [("in", place) for place in range(2)]
OUTPUTS: Final = [("out", place) for place in range(2)]
ADDED: Final = [("added", place) for place in range(2)]
ALL: Final = [*BANK, *APPEND, *INPUTS, *OUTPUTS]
SETTINGS: Final = (
    "transaction.state.log.num.partitions=2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=300",
    "group.initial.rebalance.delay.ms=100",
    f"group.min.session.timeout.ms={SHORT_SESSION_MS}",
    f"admin.token={TOKEN}",
)
SMALL_LIMITS_ODDS: Final = 0.2
OLD_IDS_ODDS: Final = 0.25
EVENTS_SHOWN: Final = 12
# The clients of one workload are enough to break something, and a seed is faster with fewer.
WORKLOADS: Final = ("bank", "append", "pipeline")
# These come on top: a seed of before they were there has the same others.
MORE_WORKLOADS: Final = ("subscribe", "added")
MORE_ODDS: Final = 0.35
Writer = Teller | AppendProcess | Feeder | Worker | GroupJob | Shop
Client = Writer | Auditor | HalfChecker


class TransactionsRun:
    """One run of one seed."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.world = make_world(plan, lambda: self.nodes.rotten is not None)
        self.rng = self.world.stream("run")
        drawn = self.rng.choice((3, 3, 3, 4, 5))
        self.workloads = list(plan.workloads)
        if not self.workloads:
            self.workloads = self.rng.sample(WORKLOADS, self.rng.choice((1, 1, 2, 3)))
            more = self.world.stream("more workloads")
            self.workloads += [name for name in MORE_WORKLOADS if more.random() < MORE_ODDS]
        self.watch = TransactionWatch(self.world)
        config = (*SETTINGS, *cleaner_settings(self.world.stream), *plan.config)
        config += ADDED_SETTINGS if self._has_added else ()
        self.nodes = ClusterNodes(
            self.world, plan.nodes or drawn, config=config, on_start=self.watch.hook
        )
        if self._upgrades:
            self.nodes.builds = dict.fromkeys(self.nodes.ids, OLD)
        self.watch.nodes = self.nodes
        self.faults = TransactionFaults(self.world, self.nodes, self.watch, list(CLIENTS), plan)
        self.faults.table, self.faults.usual = TRANSACTION_FAULTS, ALL_USUAL
        self.session_ms = session_timeout_ms(self.world.stream)
        self.book = self.faults.book = Book()
        self.tellers: list[Teller] = []
        self.auditors: list[Auditor] = []
        self.processes: list[AppendProcess] = []
        self.feeders: list[Feeder] = []
        self.workers: list[Worker] = []
        self.added: AddedClients | None = None
        self.verdict: Verdict | None = None

    def run(self) -> Verdict:
        odds = self.world.stream("limits")
        often, is_old = odds.random() < SMALL_LIMITS_ODDS, odds.random() < OLD_IDS_ODDS
        with (
            small_limits() if often else contextlib.nullcontext(),
            old_ids() if is_old else contextlib.nullcontext(),
            old_features() if self._upgrades else contextlib.nullcontext(),
            builds_of(self.nodes),
            self.world,
        ):
            self.world.run(self._scenario())
        assert self.verdict is not None
        return self.verdict

    @property
    def _upgrades(self) -> bool:
        return UPGRADE in self.plan.faults

    @property
    def _has_added(self) -> bool:
        return "added" in self.workloads

    @property
    def _places(self) -> list[Partition]:
        return [*ALL, *(ADDED if self._has_added else ())]

    @property
    def clients(self) -> list[Client]:
        """Those that run, but for the administrator."""
        some: list[Client] = []
        some += self._writers()
        some += self.auditors
        some += self.added.checkers if self.added is not None else []
        return [each for each in some if self.plan.keeps_client(each.client.name)]

    @property
    def client_groups(self) -> list[list[str]]:
        """A pipeline without its feeder, or half messages without who is asked, are none: they go as a whole."""
        pipeline = [each.client.name for each in self.feeders]
        pipeline += [each.client.name for each in self.workers]
        wholes: list[list[str]] = [
            pipeline,
            [] if self.added is None else [each.client.name for each in self.added.all_of_them],
        ]
        together = {name for whole in wholes for name in whole}
        alone = [each.client.name for each in self.clients if each.client.name not in together]
        kept = [whole for whole in wholes if whole and self.plan.keeps_client(whole[0])]
        return [*([name] for name in alone), *kept, ["admin"]]

    def _writers(self, *, workers: bool = True) -> list[Writer]:
        some: list[Writer] = []
        some += self.added.writers if self.added is not None else []
        some += self.tellers
        some += self.processes
        some += self.feeders
        return some + list(self.workers if workers else [])

    async def _scenario(self) -> None:
        self.nodes.start_all()
        await self.nodes.until_ready(START_S)
        admin = Admin(self._client(CLIENTS[0], "admin"), self.nodes, "bank")
        for topic in dict.fromkeys(topic for topic, _ in self._places):
            partitions = sum(1 for name, _ in self._places if name == topic)
            await self._on(admin.client.env, create_topic(admin, topic, partitions))
        self._make_clients()
        sweeping = asyncio.ensure_future(self._sweep())
        async with asyncio.TaskGroup() as group:
            running = [
                group.create_task(self._on(each.client.env, each.run())) for each in self.clients
            ]
            admin.stopping = not self.plan.keeps_client(admin.client.name)
            churning = group.create_task(self._on(admin.client.env, admin.run()))
            await self.faults.run(FAULTS_S)
            await self.faults.end()
            admin.stopping = True
            async with admin.a_person_helps():
                await self._converge(running)
            await asyncio.wait([churning])
        sweeping.cancel()
        await asyncio.wait([sweeping])
        await self._judge()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self.watch.sweep()

    async def _converge(self, running: "list[asyncio.Task[Any]]") -> None:
        """Nothing is broken any more: every client must end, all inputs be worked off, no transaction stay open."""
        await until_somebody_commits(self.nodes, self.faults, self.clients, within_s=CONVERGE_S)
        for writer in self._writers(workers=False):
            writer.stopping = True

        def complaint() -> str:
            waits = self.faults.mend()
            late = [
                each.client.name
                for each, task in zip(self.clients, running, strict=True)
                if each.stopping and not task.done()
            ]
            ends = f"clients that do not end: {late}" if late else ""
            return waits or self.nodes.not_whole() or ends

        await self.nodes.until("after healing", complaint, within_s=CONVERGE_S)
        async with asyncio.timeout(CONVERGE_S):
            await self._drain()
        for each in self.clients:
            each.stopping = True
        await self.nodes.until("after draining", complaint, within_s=CONVERGE_S)
        await self.nodes.until("the last transactions end", self._unstable, within_s=CONVERGE_S)
        await self.nodes.until("in silence", self.nodes.uncommitted, within_s=CONVERGE_S)

    async def _drain(self) -> None:
        """Until every half message has ended, and the pipeline has worked off everything that was fed."""
        added = self.added
        if added is not None and self.plan.keeps_client(added.writers[0].client.name):
            await self.nodes.until("half messages end", added.unsettled, within_s=CONVERGE_S)
        if not any(self.plan.keeps_client(each.client.name) for each in self.workers):
            return
        client = self._client(CLIENTS[0], "drain")
        positions = GroupPositions(client, GROUP)
        while True:
            reader = CommittedReader(client)
            found = await self._on(client.env, positions.find(INPUTS))
            reader.positions = {place: max(0, at) for place, (at, _) in found.items()}
            rest = Txn("read", "ok", "drain")
            await self._on(client.env, reader.read_all(INPUTS, rest))
            if not rest.polls:
                return
            await asyncio.sleep(0.5)

    def _unstable(self) -> str:
        """Partitions whose stable offset stands, and ids whose transaction is open."""
        image = self.nodes.image
        assert image is not None
        for topic, partition in [
            *self._places,
            *(("__consumer_offsets", place) for place in range(2)),
        ]:
            state = image.partition(topic, partition)
            if state is None:
                continue
            for name, here in self.nodes.broker(state.leader).replicas.partitions.items():
                at = here.last_stable_offset, here.high_watermark, here.log.log_end_offset
                if (name.topic, name.partition) == (topic, partition) and len(set(at)) > 1:
                    return f"{name} on {state.leader} is stable to {at[0]}, committed to {at[1:]}"
        late = [str(each) for each in self.watch.decisions.unfinished(gone=CHURNED)]
        return "; ".join(late[:5])

    async def _judge(self) -> None:
        client = self._client(CLIENTS[0], FINAL)
        op = Txn("read", "ok", FINAL)
        places = [("bank", BANK), ("append", APPEND), ("subscribe", APPEND), ("added", ADDED)]
        places += [("pipeline", [*INPUTS, *OUTPUTS])]
        named = [each for name, some in places if name in self.workloads for each in some]
        wanted = list(dict.fromkeys(named))
        groups = {group: APPEND for each in self.processes for group in each.groups}
        groups |= {GROUP: INPUTS} if self.workers else {}
        async with asyncio.timeout(CONVERGE_S):
            reader = CommittedReader(client)
            op.began_s = self.world.loop.time()
            await self._on(client.env, reader.read_all(wanted, op))
            op.ended_s = self.world.loop.time()
            self.book.close(op)
            for group, partitions in groups.items():
                seen = Txn("position", "ok", FINAL)
                await self._on(client.env, GroupPositions(client, group).observe(partitions, seen))
                self.book.close(seen)
            for job in self.added.jobs if self.added is not None else ():
                await self._on(job.client.env, job.verify())
        self.watch.sweep(producers=True)
        self.watch.compare_bytes()
        self.watch.compare_tables()
        self.verdict = judge(self.book.history)
        # Of a seed in which nothing was acknowledged at all, the counts of the campaign tell.
        assert not self.verdict.anomalies, f"\n{self.verdict}"

    # Parts.

    def _make_clients(self) -> None:
        if "bank" in self.workloads:
            self._make_bank()
        for name in ("append", "subscribe"):
            if name in self.workloads:
                self._make_appenders(subscribe=name == "subscribe")
        if "pipeline" in self.workloads:
            self._make_pipeline()
        if self._has_added:
            self.added = AddedClients(
                lambda place, name: self._client(CLIENTS[place % 2], name, patient=False),
                self.book,
                ADDED,
                self._habits,
                self.nodes.names,
            )

    def _make_bank(self) -> None:
        twins = self.rng.random() < 0.5
        for place in range(3):
            client = self._client(CLIENTS[place % 2], f"t{place}", patient=False)
            transactional_id = "bank-0" if twins and place == 1 else f"bank-{place}"
            self.tellers.append(Teller(client, self.book, BANK, transactional_id, self._habits()))
        client = self._client(CLIENTS[1], "auditor")
        reader = CommittedReader(client, told=self.watch.told)
        self.auditors.append(Auditor(client, self.book, BANK, reader))

    def _make_appenders(self, *, subscribe: bool) -> None:
        for place in range(3):
            letter = "s" if subscribe else "a"
            client = self._client(CLIENTS[place % 2], f"{letter}{place}", patient=False)
            member = None
            if subscribe:
                member = GroupMember(client, SHARED_GROUP, APPEND, self.session_ms)
            process = AppendProcess(
                client, self.book, APPEND, self._habits(), self.watch.told, member=member
            )
            self.processes.append(process)

    def _make_pipeline(self) -> None:
        feeder = self._client(CLIENTS[0], "feeder", patient=False)
        self.feeders.append(Feeder(feeder, self.book, INPUTS, self._habits()))
        by_group = self.rng.random() < 0.5
        for place in range(3):
            client = self._client(CLIENTS[place % 2], f"w{place}", patient=False)
            member, transactional_id = None, f"pipeline-{place % 2}"
            if by_group:
                member = GroupMember(client, GROUP, INPUTS, self.session_ms)
                transactional_id = f"pipeline::w{place}"
            self.workers.append(
                Worker(
                    client,
                    self.book,
                    INPUTS if by_group else [INPUTS[place % 2]],
                    OUTPUTS,
                    transactional_id,
                    self._habits(),
                    member=member,
                )
            )

    def _habits(self) -> Habits:
        # The new one would have to wait for the level that allows it.
        protocol = "old" if self._upgrades else self.plan.protocol
        return Habits(
            new_protocol=self.rng.random() < 0.6 if not protocol else protocol == "new",
            timeout_ms=self.rng.choice((1_000, 3_000, 10_000)),
            pause_s=self.rng.choice((0.02, 0.05, 0.1)),
            abort_odds=self.rng.choice((0.0, 0.1, 0.3)),
            crash_odds=self.rng.choice((0.0, 0.01, 0.05)),
            dawdle_odds=self.rng.choice((0.0, 0.02, 0.1)),
            doomed=CHURNED if self.rng.random() < 0.3 else (),
            on_refusal=self.watch.refused,
            on_end=self.watch.ended,
        )

    def _client(self, machine: str, name: str, *, patient: bool = True) -> ClusterClient:
        """One that is not patient asks anew after less than a delayed request takes: both arrive (KAFKA-17754)."""
        timeout_s = 4.0 if patient else self.rng.choice((0.3, 1.0, 4.0))
        env = self.world.node(machine)
        return ClusterClient(env, self.nodes.addresses, name=name, timeout_s=timeout_s)

    def _on(self, env: Env, work: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        assert isinstance(env, SimEnv)
        return self.world.on(env, work)

    # Telling.

    def explain(self) -> str:
        """The last events of each node, and how it all stood."""
        faults = ", ".join(map(str, self.struck))
        lines = [f"workloads: {' '.join(self.workloads)}; faults: {faults}"]
        lines += [f"died: {name}: {reason!r}" for name, reason in self.world.deaths[-5:]]
        for name in [*self.nodes.names, "chaos", "watch"]:
            mine = [line for line in self.world.trace.told if line.split(" ", 2)[1] == name]
            lines += [f"-- {name}", *mine[-EVENTS_SHOWN:]]
        for writer in self._writers():
            errors: Counter[str] = Counter()
            for producer in writer.producers:
                errors.update(producer.errors)
            lines.append(f"-- client {writer.client.name}: {dict(errors.most_common(8))}")
        return "\n".join(lines)

    @property
    def acknowledged(self) -> int:
        return sum(each.acknowledged for each in self._writers())

    @property
    def struck(self) -> list[Struck]:
        return self.faults.struck

    @property
    def counts(self) -> dict[str, int]:
        damaged = {"damaged answers": sum(each.client.damaged for each in self.clients)}
        return {**(self.verdict.counts if self.verdict else {}), **self.watch.seen, **damaged}
