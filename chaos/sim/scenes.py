"""Scenes: workloads of the transactions campaign that bring topics, clients and judges of their own.

Each is in a part of the seeds, by dice of its own (`World.stream`): a seed without it is the run that it was. `--workloads` names them.
"""

import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar, Final

from ..checkers.compacted import tombstones
from ..checkers.history import FINAL
from ..checkers.txn_verdict import OF_TABLES, judge
from ..workloads.txn_book import Book
from ..workloads.txn_follower import Follower
from ..workloads.txn_long import LONG, SHORT, LongWriter
from ..workloads.txn_table import TableWriter
from .churn_scene import Churn
from .consumers_scene import Consumers
from .cut_scene import Cut
from .limits import small_maps
from .scene import On, Scene, Told
from .transaction_clients import TransactionClients
from .tuned_scene import Tuned

ODDS: Final = 0.2
FOR_LONG_MS: Final = "86400000"  # a clock that is set may be set by more
DIRTY: Final = 0.01  # a part of a table's log
SETTLE_S: Final = 60.0  # less than all of judging has, or nobody is told what was waited for


class Compacted(Scene):
    """Tables that are written in transactions while the cleaner works on them."""

    name = "compacted"
    config = ("log.cleaner.backoff.ms=100",)
    shares_book = False

    def __init__(self, clients: TransactionClients, dice: random.Random) -> None:
        super().__init__(clients, dice)
        self.book = Book()
        self.has_small_maps = dice.random() < 0.5
        self.places = [("table", 0), ("table", 1)]
        keeps_ms = dice.choice(("0", "300", "5000", FOR_LONG_MS))
        self.keeps_tombstones = keeps_ms == FOR_LONG_MS
        table = {
            "min.cleanable.dirty.ratio": str(DIRTY),
            "delete.retention.ms": keeps_ms,
            "internal.segment.bytes": dice.choice(("1024", "2048")),
        }
        self.settings["table"] = {**table, "cleanup.policy": "compact"}
        if dice.random() < 0.4:
            self.places.append(("table-cut", 0))
            cut = {"cleanup.policy": "compact,delete", "retention.bytes": "6000"}
            self.settings["table-cut"] = {**table, **cut}
            self.unmarked = ("table-cut",)
            clients.watch.shortened.add("table-cut")

    def limits(self) -> contextlib.AbstractContextManager[None]:
        return small_maps() if self.has_small_maps else contextlib.nullcontext()

    def make(self) -> None:
        has_twins = self.dice.random() < 0.3
        for place in range(3):
            client = self._client(place, f"table{place}")
            transactional_id = "table-0" if has_twins and place == 1 else f"table-{place}"
            habits = self.clients.habits(self.dice)
            self.writers.append(
                TableWriter(client, self.book, self.places, transactional_id, habits)
            )
        for place, rereads in enumerate((False, True)):
            client = self._client(place, f"tables{place}", patient=True)
            told = self.clients.watch.told
            one = Follower(client, self.book, self.places, told=told, rereads=rereads)
            self.followers.append(one)

    async def judge(self, on: On) -> Told:
        nodes = self.clients.nodes
        await nodes.until("of compaction", self._left_dirty, within_s=SETTLE_S)
        await super().judge(on)
        client = self._client(0, FINAL, patient=True)
        final = Follower(client, self.book, self.places)
        await on(client.env, final.read_on())
        verdict = judge(self.book.history, OF_TABLES)
        anomalies = list(verdict.anomalies)
        if self.keeps_tombstones and "clock" not in self.clients.struck():
            anomalies += tombstones(self.book.history)
        there = verdict.counts["read at the end"]
        sent = sum(len(op.sends) for op in self.book.history if op.type == "ok")
        return anomalies, {"entries": sent, "entries at the end": there}

    def _left_dirty(self) -> str:
        """A table's log in which more was sealed since the cleaner was there than it leaves. All is stable, and every log's own
        cleaner works on: one that stands still on one node shows nowhere else."""
        nodes, topics = self.clients.nodes, {topic for topic, _ in self.places}
        for node_id in nodes.up():
            for name, partition in nodes.broker(node_id).replicas.partitions.items():
                log = partition.log
                sizes = [(each.base_offset, each.size) for each in log.segments[:-1]]
                dirty = sum(size for base, size in sizes if base >= log.cleaned_to)
                if name.topic in topics and dirty > DIRTY * sum(size for _, size in sizes):
                    return f"{name} on {node_id} is cleaned to {log.cleaned_to} of {log.active.base_offset}"
        return ""


class Long(Scene):
    """Transactions of hundreds of records and more that take up to all of their time, and short ones beside them."""

    name = "long"
    BYTES_MAX: ClassVar[int] = 20_000

    def __init__(self, clients: TransactionClients, dice: random.Random) -> None:
        super().__init__(clients, dice)
        self.places = [("long", place) for place in range(3)]
        # A batch has to fit a segment.
        sizes = {"max.message.bytes": self.BYTES_MAX, "internal.segment.bytes": 2 * self.BYTES_MAX}
        self.settings["long"] = {name: str(size) for name, size in sizes.items()}

    def make(self) -> None:
        large = replace(LONG, bytes_max=self.BYTES_MAX)
        sizes = (large, replace(large, records=(150, 300)), SHORT)
        for place, size in enumerate(sizes):
            client = self._client(place, f"long{place}")
            habits = self.clients.habits(self.dice)
            if size is not SHORT:
                timeout_ms = self.dice.choice((1_500, 3_000, 8_000))
                habits = replace(habits, timeout_ms=timeout_ms, dawdle_odds=0.0, crash_odds=0.01)
            self.writers.append(
                LongWriter(client, self.clients.book, self.places, f"long-{place}", habits, size)
            )
        client = self._client(1, "longs", patient=True)
        told = self.clients.watch.told
        self.followers.append(Follower(client, self.clients.book, self.places, told=told))

    async def judge(self, on: On) -> Told:
        await super().judge(on)
        mine = [op for op in self.clients.book.history if op.process in ("long0", "long1")]
        committed = [op for op in mine if op.type == "ok"]
        return (), {
            "long": len(committed),
            "records of those": sum(len(op.sends) for op in committed),
        }


SCENES: Final[dict[str, type[Scene]]] = {
    each.name: each for each in (Compacted, Long, Churn, Tuned, Consumers, Cut)
}


def drawn_scenes(stream: Callable[[str], random.Random]) -> list[str]:
    """Those of a seed, by name. `stream` is `World.stream`."""
    return [name for name in SCENES if stream(f"scene/{name}").random() < ODDS]


def scenes_of(workloads: Sequence[str], clients: TransactionClients) -> list[Scene]:
    return [
        scene(clients, clients.world.stream(f"scene/{name}/clients"))
        for name, scene in SCENES.items()
        if name in workloads
    ]
