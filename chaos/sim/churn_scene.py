"""Topics that come and go under the same names while others produce, consume and transact in them."""

import random
from dataclasses import replace
from typing import Final

from ..checkers import life_positions, lives
from ..checkers.history import FINAL
from ..checkers.txn_verdict import OF_LIVES, judge
from ..workloads.churn import Churner
from ..workloads.churn_clients import ChurnWriter, LifeFollower, LifeSender
from ..workloads.txn_answers import Partition
from ..workloads.txn_book import Book
from .scene import On, Scene, Told
from .transaction_clients import TransactionClients

TOPICS: Final = ("lives-a", "lives-b")


class Churn(Scene):
    """What was acknowledged of a topic that lives at the end is there, and nothing of those before it: no record, and no position."""

    name = "churn"
    shares_book = False

    def __init__(self, clients: TransactionClients, dice: random.Random) -> None:
        super().__init__(clients, dice)
        self.book = Book()
        self.places = [("lives-stays", place) for place in range(2)]
        self.unmarked = TOPICS
        self.placing: list[ChurnWriter] = []
        self.asking: list[LifeFollower] = []
        self.churner = Churner(
            self._client(0, "churner", patient=True), TOPICS, pause_s=dice.choice((0.15, 0.5))
        )

    def make(self) -> None:
        for place in range(2):
            client = self._client(place, f"churn{place}")
            transactional_id = f"churn-{place}"
            habits = replace(self.clients.habits(self.dice), doomed=TOPICS)
            one = ChurnWriter(client, self.book, TOPICS, self.places, transactional_id, habits)
            self.placing.append(one)
        self.writers += self.placing
        self.writers.append(LifeSender(self._client(0, "sender"), self.book, TOPICS))
        self.writers.append(self.churner)
        reader = self._client(1, "lives", patient=True)
        dice = self.clients.world.stream("scene/churn/positions")
        one_reader = LifeFollower(reader, self.book, TOPICS, self.places, dice=dice)
        self.asking.append(one_reader)
        self.followers += self.asking

    def wanted_stable(self) -> list[Partition]:
        image = self.clients.nodes.image
        assert image is not None, "somebody is up"
        there = [image.topics[name] for name in TOPICS if name in image.topics]
        return [(topic.name, each.partition) for topic in there for each in topic.partitions]

    async def judge(self, on: On) -> Told:
        await super().judge(on)
        client = self._client(0, FINAL, patient=True)
        final = LifeFollower(client, self.book, TOPICS, self.places)
        found = await on(client.env, final.read_on())
        # Positions in transactions of which a topic was deleted are settled, too.
        await on(client.env, final.positions.find())
        history, all_changes = self.book.history, self.churner.changes
        anomalies = lives.check(history, all_changes, found)
        told = [each for one in (*self.asking, final) for each in one.positions.told]
        placed = [each for one in self.placing for each in one.placed]
        anomalies += life_positions.check(placed, told, all_changes)
        verdict = judge(lives.owed(history, found), OF_LIVES)
        changes = {"topics made": 0, "topics deleted": 0}
        for each in self.churner.changes:
            name = "topics made" if each.f == "create" else "topics deleted"
            changes[name] += each.type == "ok"
        sent = sum(len(op.sends) for op in history if op.type == "ok")
        kept = {"sent to them": sent, "kept of them": verdict.counts["read at the end"]}
        kept |= {"positions in them": len(placed), "positions told of them": len(told)}
        return [*anomalies, *verdict.anomalies], {**changes, **kept}
