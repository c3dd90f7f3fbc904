"""The clients of a run of the transactions campaign, made from its dice."""

import random
from collections.abc import Callable, Sequence
from typing import Final

from ..checkers.history import Anomaly
from ..workloads.churn import Churner
from ..workloads.churn_clients import LifeFollower, LifeSender
from ..workloads.churn_positions import LifeCommitter
from ..workloads.cluster_client import ClusterClient
from ..workloads.group_member import GroupMember
from ..workloads.tuner import Tuner
from ..workloads.txn_added import GroupJob, HalfChecker, Shop
from ..workloads.txn_answers import Partition
from ..workloads.txn_append import SHARED_GROUP, AppendProcess
from ..workloads.txn_bank import Auditor, Teller
from ..workloads.txn_book import Book
from ..workloads.txn_cut import CutDeleter
from ..workloads.txn_dressed import PLAIN, Dressed, Plain
from ..workloads.txn_follower import Follower
from ..workloads.txn_habits import Habits
from ..workloads.txn_pipeline import GROUP, Feeder, Worker
from ..workloads.txn_reader import CommittedReader
from ..workloads.txn_timed import Timed
from ..workloads.txn_transactor import Transactor
from .added_clients import AddedClients
from .cluster import CLIENTS
from .cluster_admin import CHURNED
from .cluster_nodes import ClusterNodes
from .followers import follower_odds
from .plan import Plan
from .transaction_watch import TransactionWatch
from .world import World

BANK: Final = [("bank", place) for place in range(3)]
APPEND: Final = [("append", place) for place in range(3)]
INPUTS: Final = [("in", place) for place in range(2)]
OUTPUTS: Final = [("out", place) for place in range(2)]
ADDED: Final = [("added", place) for place in range(2)]
DRESSED: Final = "dressed"
DRESSED_ODDS: Final = 1 / 4
ALL: Final = [*BANK, *APPEND, *INPUTS, *OUTPUTS]
# Those of scenes: who changes something, and who reads along.
Hand = AppendProcess | CutDeleter | Transactor | Churner | LifeSender | LifeCommitter | Tuner
Follows = Follower | LifeFollower
Writer = Teller | Feeder | Worker | GroupJob | Shop | Hand
Client = Writer | Auditor | HalfChecker | Follows


def dressed_of(
    plan: Plan,
    stream: Callable[[str], random.Random],
    report: Callable[[list[Anomaly]], None],
) -> Plain:
    """In some seeds, and where it is asked for, records have headers, timestamps and codecs, which readers compare."""
    dice = stream(DRESSED)
    return Dressed(dice, report) if plan.has_scene(DRESSED, DRESSED_ODDS, dice) else PLAIN


class TransactionClients:
    """`make` them; those of one workload each."""

    def __init__(
        self,
        plan: Plan,
        world: World,
        nodes: ClusterNodes,
        watch: TransactionWatch,
        rng: random.Random,
        *,
        session_ms: int,
        protocol: str,
    ) -> None:
        self.plan = plan
        self.world = world
        self.nodes = nodes
        self.watch = watch
        self.rng = rng
        self.session_ms = session_ms
        self.protocol = protocol
        self.book = Book()
        self.tellers: list[Teller] = []
        self.auditors: list[Auditor] = []
        self.processes: list[AppendProcess] = []
        self.feeders: list[Feeder] = []
        self.workers: list[Worker] = []
        self.added: AddedClients | None = None
        self.struck: Callable[[], Sequence[str]] = tuple  # faults, by name
        self.timed = Timed(self._early)
        self.dressed = dressed_of(plan, world.stream, watch.report_heard)
        self.follower_odds = follower_odds(plan, world.stream)
        self.more_groups: dict[str, list[Partition]] = {}  # of scenes

    def make(self, workloads: list[str]) -> None:
        if "bank" in workloads:
            self._make_bank()
        for name in ("append", "subscribe"):
            if name in workloads:
                self._make_appenders(subscribe=name == "subscribe")
        if "pipeline" in workloads:
            self._make_pipeline()
        if "added" in workloads:
            self.added = AddedClients(
                lambda place, name: self.client(CLIENTS[place % 2], name, patient=False),
                self.book,
                ADDED,
                self.habits,
                self.nodes.names,
            )

    @property
    def readers(self) -> list[Client]:
        return [*self.auditors, *(self.added.checkers if self.added is not None else [])]

    def writers(self, *, workers: bool) -> list[Writer]:
        some: list[Writer] = []
        some += self.added.writers if self.added is not None else []
        some += self.tellers
        some += self.processes
        some += self.feeders
        return some + list(self.workers if workers else [])

    @property
    def wholes(self) -> list[list[str]]:
        """A pipeline without its feeder, or half messages without who is asked, are none: they go as a whole."""
        pipeline = [each.client.name for each in self.feeders]
        pipeline += [each.client.name for each in self.workers]
        added = [] if self.added is None else self.added.all_of_them
        return [pipeline, [each.client.name for each in added]]

    @property
    def groups(self) -> dict[str, list[Partition]]:
        found = {group: APPEND for each in self.processes for group in each.groups}
        return found | ({GROUP: INPUTS} if self.workers else {}) | self.more_groups

    def _make_bank(self) -> None:
        twins = self.rng.random() < 0.5
        for place in range(3):
            client = self.client(CLIENTS[place % 2], f"t{place}", patient=False)
            transactional_id = "bank-0" if twins and place == 1 else f"bank-{place}"
            self.tellers.append(Teller(client, self.book, BANK, transactional_id, self.habits()))
        client = self.client(CLIENTS[1], "auditor")
        reader = CommittedReader(client, told=self.watch.told)
        self.auditors.append(Auditor(client, self.book, BANK, reader))

    def _make_appenders(self, *, subscribe: bool) -> None:
        for place in range(3):
            letter = "s" if subscribe else "a"
            client = self.client(CLIENTS[place % 2], f"{letter}{place}", patient=False)
            member = None
            if subscribe:
                member = GroupMember(client, SHARED_GROUP, APPEND, self.session_ms)
            process = AppendProcess(
                client, self.book, APPEND, self.habits(), self.watch.told, member=member
            )
            self.processes.append(process)

    def _make_pipeline(self) -> None:
        feeder = self.client(CLIENTS[0], "feeder", patient=False)
        self.feeders.append(Feeder(feeder, self.book, INPUTS, self.habits()))
        by_group = self.rng.random() < 0.5
        for place in range(3):
            client = self.client(CLIENTS[place % 2], f"w{place}", patient=False)
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
                    self.habits(),
                    member=member,
                )
            )

    def habits(self, dice: random.Random | None = None) -> Habits:
        rng, protocol = dice or self.rng, self.protocol
        return Habits(
            new_protocol=rng.random() < 0.6 if not protocol else protocol == "new",
            timeout_ms=rng.choice((1_000, 3_000, 10_000)),
            pause_s=rng.choice((0.02, 0.05, 0.1)),
            abort_odds=rng.choice((0.0, 0.1, 0.3)),
            crash_odds=rng.choice((0.0, 0.01, 0.05)),
            dawdle_odds=rng.choice((0.0, 0.02, 0.1)),
            doomed=CHURNED if rng.random() < 0.3 else (),
            on_refusal=self.watch.refused,
            on_end=self.watch.ended,
            make=self.timed.producer,
        )

    def _early(self, anomalies: list[Anomaly]) -> None:
        if "clock" not in self.struck():
            self.watch.report_heard(anomalies)

    def client(
        self,
        machine: str,
        name: str,
        *,
        patient: bool = True,
        dice: random.Random | None = None,
    ) -> ClusterClient:
        """One that is not patient asks anew after less than a delayed request takes: both arrive (KAFKA-17754)."""
        timeout_s = 4.0 if patient else (dice or self.rng).choice((0.3, 1.0, 4.0))
        env = self.world.node(machine)
        client = ClusterClient(env, self.nodes.addresses, name=name, timeout_s=timeout_s)
        client.dressed = self.dressed
        client.follower_odds = self.follower_odds
        return client
