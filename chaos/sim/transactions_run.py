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
from ..workloads.txn_added import SETTINGS as ADDED_SETTINGS
from ..workloads.txn_added import Shop
from ..workloads.txn_answers import Partition
from ..workloads.txn_dressed import Dressed
from ..workloads.txn_pipeline import GROUP
from ..workloads.txn_reader import CommittedReader, GroupPositions
from .churn_scene import Churn
from .cluster import CLIENTS, CONVERGE_S, FAULTS_S, START_S, SWEEP_S, create_topic, make_world
from .cluster_admin import CHURNED, Admin
from .cluster_builds import OLD, UPGRADE, builds_of, old_features
from .cluster_nodes import ClusterNodes
from .cluster_progress import of_followers, of_writers, until_each_goes_on
from .http import TOKEN
from .limits import (
    SHORT_SESSION_MS,
    cleaner_settings,
    expiry_settings,
    old_ids,
    session_timeout_ms,
    small_limits,
)
from .node import SimEnv
from .plan import Plan
from .scenes import SCENES, drawn_scenes, scenes_of
from .schedule import Struck
from .transaction_clients import (
    ADDED,
    ALL,
    APPEND,
    BANK,
    INPUTS,
    OUTPUTS,
    Client,
    TransactionClients,
    Writer,
)
from .transaction_faults import ALL_USUAL, AT_A_DELETION, TRANSACTION_FAULTS, TransactionFaults
from .transaction_watch import TransactionWatch

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
# Before, as after an upgrade whose levels were not raised, or went down again, there are no half messages.
TRANSACTIONS_LEVEL, PREPARES_SINCE = "transaction.version", 1
# The clients of one workload are enough to break something, and a seed is faster with fewer.
WORKLOADS: Final = ("bank", "append", "pipeline")
# These come on top: a seed of before they were there has the same others.
MORE_WORKLOADS: Final = ("subscribe", "added")
MORE_ODDS: Final = 0.35


class TransactionsRun:
    """One run of one seed."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.world = make_world(plan, lambda: self.nodes)
        self.rng = self.world.stream("run")
        drawn = self.rng.choice((3, 3, 3, 4, 5))
        self.workloads = list(plan.workloads)
        if not self.workloads:
            self.workloads = self.rng.sample(WORKLOADS, self.rng.choice((1, 1, 2, 3)))
            more = self.world.stream("more workloads")
            self.workloads += [name for name in MORE_WORKLOADS if more.random() < MORE_ODDS]
            self.workloads += drawn_scenes(self.world.stream)
        self.watch = TransactionWatch(self.world, inside=plan.looks_inside)
        drawn_settings = cleaner_settings(self.world.stream)
        if not any(SCENES[name].keeps_groups for name in self.workloads if name in SCENES):
            drawn_settings += expiry_settings(self.world.stream)
        config = (*SETTINGS, *drawn_settings, *plan.config)
        config += ADDED_SETTINGS if self._has_added else ()
        for name in SCENES:
            config += SCENES[name].config if name in self.workloads else ()
        self.nodes = ClusterNodes(
            self.world, plan.nodes or drawn, config=config, on_start=self.watch.hook
        )
        if self._upgrades:
            self.nodes.builds = dict.fromkeys(self.nodes.ids, OLD)
        self.watch.nodes = self.nodes
        self.faults = TransactionFaults(self.world, self.nodes, self.watch, list(CLIENTS), plan)
        self.faults.table = TRANSACTION_FAULTS
        of_churn = [AT_A_DELETION] * 2 if Churn.name in self.workloads else []
        self.faults.usual = (*ALL_USUAL, *of_churn)
        self.all = TransactionClients(
            plan,
            self.world,
            self.nodes,
            self.watch,
            self.rng,
            session_ms=session_timeout_ms(self.world.stream),
            # The new one would have to wait for the level that allows it.
            protocol="old" if self._upgrades else plan.protocol,
        )
        self.all.struck = lambda: [each.name for each in self.struck]
        self.scenes = scenes_of(self.workloads, self.all)
        self.faults.book = self.all.book
        self.verdict: Verdict | None = None

    def run(self) -> Verdict:
        odds = self.world.stream("limits")
        often, is_old = odds.random() < SMALL_LIMITS_ODDS, odds.random() < OLD_IDS_ODDS
        with (
            small_limits() if often else contextlib.nullcontext(),
            old_ids() if is_old else contextlib.nullcontext(),
            old_features() if self._upgrades else contextlib.nullcontext(),
            contextlib.ExitStack() as small,
            builds_of(self.nodes),
            self.world,
        ):
            for scene in self.scenes:
                small.enter_context(scene.limits())
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
        of_scenes = [place for scene in self.scenes for place in scene.places]
        return [*ALL, *(ADDED if self._has_added else ()), *of_scenes]

    @property
    def clients(self) -> list[Client]:
        """Those that run, but for the administrator."""
        some: list[Client] = [*self._writers(), *self.all.readers]
        some += [each for scene in self.scenes for each in scene.followers]
        return [each for each in some if self.plan.keeps_client(each.client.name)]

    @property
    def client_groups(self) -> list[list[str]]:
        wholes = self.all.wholes
        together = {name for whole in wholes for name in whole}
        alone = [each.client.name for each in self.clients if each.client.name not in together]
        kept = [whole for whole in wholes if whole and self.plan.keeps_client(whole[0])]
        return [*([name] for name in alone), *kept, ["admin"]]

    def _writers(self, *, workers: bool = True) -> list[Writer]:
        some = self.all.writers(workers=workers)
        return some + [each for scene in self.scenes for each in scene.writers]

    async def _scenario(self) -> None:
        self.nodes.start_all()
        await self.nodes.until_ready(START_S)
        admin = Admin(self.all.client(CLIENTS[0], "admin"), self.nodes, "bank")
        settings = {name: each for scene in self.scenes for name, each in scene.settings.items()}
        for topic in dict.fromkeys(topic for topic, _ in self._places):
            partitions = sum(1 for name, _ in self._places if name == topic)
            creating = create_topic(admin, topic, partitions, settings.get(topic))
            await self._on(admin.client.env, creating)
        self.all.make(self.workloads)
        for scene in self.scenes:
            scene.make()
        sweeping = self.world.beside(self._sweep())
        async with asyncio.TaskGroup() as group:
            running = [
                group.create_task(self._on(each.client.env, each.run())) for each in self.clients
            ]
            admin.stopping = not self.plan.keeps_client(admin.client.name)
            churning = group.create_task(self._on(admin.client.env, admin.run()))
            await self.faults.run(FAULTS_S)
            await self.faults.end()
            admin.stopping = True
            async with admin.a_person_helps(self.watch.given_up):
                await self._converge(running)
            await asyncio.wait([churning])
        sweeping.cancel()
        await asyncio.wait([sweeping])
        await self._judge()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self.watch.sweep()
            for scene in self.scenes:
                scene.look()

    async def _converge(self, running: "list[asyncio.Task[Any]]") -> None:
        """Nothing is broken any more: every client must end, all inputs be worked off, no transaction stay open."""
        await until_each_goes_on(self.nodes, self.faults, self._done, within_s=CONVERGE_S)
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

    def _done(self) -> dict[str, int]:
        """What the clients that run, and that are owed anything, have done so far."""
        writers = [each for each in self._writers() if self.plan.keeps_client(each.client.name)]
        image = self.nodes.image
        if image is None or image.features.get(TRANSACTIONS_LEVEL, 0) < PREPARES_SINCE:
            writers = [each for each in writers if not isinstance(each, Shop)]
        return of_writers(writers) | of_followers(each.client for each in self.clients)

    async def _drain(self) -> None:
        """Until every half message has ended, and the pipeline has worked off everything that was fed."""
        added = self.all.added
        if added is not None and self.plan.keeps_client(added.writers[0].client.name):
            await self.nodes.until("half messages end", added.unsettled, within_s=CONVERGE_S)
        if not any(self.plan.keeps_client(each.client.name) for each in self.all.workers):
            return
        client = self.all.client(CLIENTS[0], "drain")
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
            *(place for scene in self.scenes for place in scene.wanted_stable()),
            *self.faults.made,
            *(("__consumer_offsets", place) for place in range(2)),
        ]:
            state = image.partition(topic, partition)
            if state is None:
                continue
            for name, here in self.nodes.broker(state.leader).replicas.partitions.items():
                at = here.last_stable_offset, here.high_watermark, here.log.log_end_offset
                if (name.topic, name.partition) == (topic, partition) and len(set(at)) > 1:
                    return f"{name} on {state.leader} is stable to {at[0]}, committed to {at[1:]}"
        gone = [*CHURNED, *self.faults.unmarked]
        gone += [topic for scene in self.scenes for topic in scene.unmarked]
        late = [str(each) for each in self.watch.decisions.unfinished(gone=gone)]
        return "; ".join(late[:5])

    async def _judge(self) -> None:
        client = self.all.client(CLIENTS[0], FINAL)
        op = Txn("read", "ok", FINAL)
        places = [("bank", BANK), ("append", APPEND), ("subscribe", APPEND), ("added", ADDED)]
        places += [("pipeline", [*INPUTS, *OUTPUTS])]
        named = [each for name, some in places if name in self.workloads for each in some]
        named += [place for scene in self.scenes if scene.shares_book for place in scene.places]
        wanted = list(dict.fromkeys(named))
        async with asyncio.timeout(CONVERGE_S):
            reader = CommittedReader(client)
            op.began_s = self.world.loop.time()
            await self._on(client.env, reader.read_all(wanted, op))
            op.ended_s = self.world.loop.time()
            self.all.book.close(op)
            for group, partitions in self.all.groups.items():
                seen = Txn("position", "ok", FINAL)
                await self._on(client.env, GroupPositions(client, group).observe(partitions, seen))
                self.all.book.close(seen)
            for job in self.all.added.jobs if self.all.added is not None else ():
                await self._on(job.client.env, job.verify())
            told = [await scene.judge(self._on) for scene in self.scenes]
        self.watch.sweep(producers=True)
        self.watch.compare_bytes()
        self.watch.compare_tables()
        own = judge(self.all.book.history)
        anomalies = [each for anomalies, _ in told for each in anomalies]
        counts = {name: count for _, counts in told for name, count in counts.items()}
        self.verdict = Verdict((*own.anomalies, *anomalies), {**own.counts, **counts})
        # Of a seed in which nothing was acknowledged at all, the counts of the campaign tell.
        assert not self.verdict.anomalies, f"\n{self.verdict}"
        self.nodes.check_damaged(self.damaged_answers)

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
    def damaged_answers(self) -> int:
        return sum(each.client.damaged for each in self.clients)

    @property
    def counts(self) -> dict[str, int]:
        damaged = {"damaged answers": self.damaged_answers}
        if isinstance(self.all.dressed, Dressed):
            damaged["looks compared"] = self.all.dressed.compared
        if self.all.follower_odds:
            damaged["followers read"] = sum(each.client.followers_read for each in self.clients)
        judged = self.verdict.counts if self.verdict else {}
        return {**judged, **self.watch.seen, **self.faults.played, **damaged}
