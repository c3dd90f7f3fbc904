"""Records that are deleted on request (DeleteRecords) of partitions that are written in transactions: also in the middle of one."""

import random
from itertools import count
from typing import Final

from ..checkers.history import FINAL
from ..checkers.txn_verdict import OF_TABLES, judge
from ..workloads.txn_book import Book
from ..workloads.txn_cut import CutDeleter, CutWriter
from ..workloads.txn_follower import Follower
from .deleting import Deleting
from .scene import On, Scene, Told
from .transaction_clients import TransactionClients

TOPIC: Final = "cut"
PARTITIONS, WRITERS = 2, 3
SETTLE_S: Final = 60.0  # less than all of judging has, or nobody is told what was waited for


class Cut(Scene):
    """What was aborted is shown to nobody, also where its beginning was deleted; of the rest everything is there."""

    name = "cut"
    config = ("log.retention.check.interval.ms=100", "log.segment.delete.delay.ms=300")
    shares_book = False

    def __init__(self, clients: TransactionClients, dice: random.Random) -> None:
        super().__init__(clients, dice)
        self.book = Book()
        self.places = [(TOPIC, place) for place in range(PARTITIONS)]
        self.settings[TOPIC] = {"internal.segment.bytes": dice.choice(("1024", "2048", "4096"))}
        # Where a log does not begin at its beginning the watch counts no markers.
        self.unmarked = (TOPIC,)
        self.deleting = Deleting(clients.nodes, clients.watch, (TOPIC, PARTITIONS), self._client)
        self.deleting.struck = clients.struck

    def make(self) -> None:
        keys = count(1)
        for place in range(WRITERS):
            client = self._client(place, f"cut{place}")
            habits = self.clients.habits(self.dice)
            self.writers.append(
                CutWriter(client, self.book, self.places, f"cut-{place}", habits, keys)
            )
        for place in range(PARTITIONS):
            client = self._client(place, f"cutter{place}")
            self.writers.append(CutDeleter(client, TOPIC, place, self.deleting.judge))
        for place, rereads in enumerate((False, True)):
            client = self._client(place, f"cuts{place}", patient=True)
            told = self.clients.watch.told
            one = Follower(client, self.book, self.places, told=told, rereads=rereads)
            self.followers.append(one)

    def look(self) -> None:
        self.deleting.look()

    async def judge(self, on: On) -> Told:
        nodes = self.clients.nodes
        await nodes.until("of deletions", self.deleting.not_everywhere, within_s=SETTLE_S)
        self.deleting.look()
        await super().judge(on)
        client = self._client(0, FINAL, patient=True)
        await on(client.env, Follower(client, self.book, self.places).read_on())
        verdict = judge(self.book.history, OF_TABLES)
        keys = [f"{topic}-{place}" for topic, place in self.places]
        gone = sum(self.deleting.deletions.low(key) for key in keys)
        return verdict.anomalies, {"cut off": gone, "left of it": verdict.counts["read at the end"]}
