"""Topics that come and go under the same names while others produce, consume and transact in them."""

import random
from dataclasses import replace
from typing import Final

from fencepost.cluster.base.ids import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from fencepost.txn.runtime.ownership import partition_for

from ..checkers import life_positions, lives
from ..checkers.history import FINAL
from ..checkers.kept_positions import KeptPositions
from ..checkers.txn_verdict import OF_LIVES, judge
from ..workloads.churn import Churner
from ..workloads.churn_clients import (
    CHURN_GROUP,
    PLAIN_GROUP,
    ChurnWriter,
    LifeFollower,
    LifeSender,
)
from ..workloads.churn_positions import LifeCommitter
from ..workloads.txn_answers import Partition
from ..workloads.txn_book import Book
from .scene import On, Scene, Told
from .transaction_clients import TransactionClients

TOPICS: Final = ("lives-a", "lives-b")
IDS: Final = ("churn-0", "churn-1")
# Who coordinates what is done in these topics.
COORDINATED: Final = (
    (GROUP_OFFSETS_TOPIC, CHURN_GROUP),
    (GROUP_OFFSETS_TOPIC, PLAIN_GROUP),
    (TRANSACTION_STATE_TOPIC, IDS[0]),
    (TRANSACTION_STATE_TOPIC, IDS[1]),
)


class Churn(Scene):
    """What was acknowledged of a topic that lives at the end is there, and nothing of those before it: no record, and no position."""

    name = "churn"
    shares_book = False

    def __init__(self, clients: TransactionClients, dice: random.Random) -> None:
        super().__init__(clients, dice)
        self.book = Book()
        self.places = [("lives-stays", place) for place in range(2)]
        self.unmarked = TOPICS
        self.placing: list[ChurnWriter | LifeCommitter] = []
        self.asking: list[LifeFollower | LifeCommitter] = []
        self.churner = Churner(
            self._client(0, "churner", patient=True),
            TOPICS,
            pause_s=dice.choice((0.15, 0.5)),
            on_delete=self._tell_of_deletion,
            on_made=self._begin_in,
        )
        self.keeper = LifeCommitter(
            self._client(0, "keeper"),
            PLAIN_GROUP,
            TOPICS,
            self.book.next_number,
            self.churner.living,
        )
        self._whom = clients.world.stream("scene/churn/coordinators")

    def make(self) -> None:
        for place in range(2):
            client = self._client(place, f"churn{place}")
            habits = replace(self.clients.habits(self.dice), doomed=TOPICS)
            one = ChurnWriter(client, self.book, TOPICS, self.places, IDS[place], habits)
            self.placing.append(one)
        self.placing.append(self.keeper)
        self.asking.append(self.keeper)
        self.writers += self.placing
        self.writers.append(LifeSender(self._client(0, "sender"), self.book, TOPICS))
        self.writers.append(self.churner)
        reader = self._client(1, "lives", patient=True)
        dice = self.clients.world.stream("scene/churn/positions")
        one_reader = LifeFollower(reader, self.book, TOPICS, self.places, dice=dice)
        self.asking.append(one_reader)
        self.followers.append(one_reader)

    async def _begin_in(self, topic: str) -> None:
        if self.clients.plan.keeps_client(self.keeper.client.name):
            await self.keeper.commit(topic)

    def _tell_of_deletion(self) -> None:
        """The faults are told of a coordinator that had better hear of it soon."""
        image = self.clients.nodes.image
        topic, key = self._whom.choice(COORDINATED)
        if image is not None and topic in image.topics:
            states = image.topics[topic].partitions
            leader = states[partition_for(key, len(states))].leader
            if leader in self.clients.nodes.ids:
                self.clients.watch.deleting(leader)

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
        for each in final.positions:
            await on(client.env, each.find())
        history, all_changes = self.book.history, self.churner.changes
        anomalies = lives.check(history, all_changes, found)
        asked = [one for each in (*self.asking, final) for one in each.positions]
        told = [each for one in asked for each in one.told]
        placed = [each for one in self.placing for each in one.placed]
        anomalies += life_positions.check(placed, told, all_changes)
        owed = lives.owed(history, found)
        kept_positions = KeptPositions(placed, told, all_changes, owed)
        anomalies += kept_positions.check()
        verdict = judge(owed, OF_LIVES)
        changes = {"topics made": 0, "topics deleted": 0}
        for change in self.churner.changes:
            name = "topics made" if change.f == "create" else "topics deleted"
            changes[name] += change.type == "ok"
        sent = sum(len(op.sends) for op in history if op.type == "ok")
        kept = {"sent to them": sent, "kept of them": verdict.counts["read at the end"]}
        kept |= {"positions in them": len(placed), "positions told of them": len(told)}
        kept |= {"positions owed of them": len(kept_positions.owed)}
        return [*anomalies, *verdict.anomalies], {**changes, **kept}
