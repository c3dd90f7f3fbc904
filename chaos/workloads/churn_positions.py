"""Positions of groups in topics that come and go: who commits them, and who asks for them.

Who asks has the group's coordinator say which topics there are of some names, and what the group has committed in them. Both are
asked of one node over one connection: what it does not know yet of topics it can't mix up, and what it knows it must not.
The judges are `checkers/life_positions.py` and `checkers/kept_positions.py`.
"""

from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.wire.api import ApiKey

from ..checkers.life_positions import Placed, ToldOf
from ..checkers.txn_history import NO_NUMBER
from .cluster_client import ClusterClient
from .cluster_offsets import COMMIT_VERSION
from .coordinator_client import GROUP, MOVED, Coordinator
from .txn_client import TransactionalProducer
from .txn_reader import OFFSET_FETCH_VERSION, RETRY_PAUSE_S, number_of

METADATA_VERSION: Final = 12
PAUSE_S: Final = 0.1
ASK_ODDS: Final = 0.3
AGAIN_ODDS: Final = 0.03


class LifePositions:
    """`told` is all that it was told."""

    def __init__(self, client: ClusterClient, group: str, topics: Sequence[str]) -> None:
        self.client = client
        self.group = group
        self.topics = list(topics)
        self.told: list[ToldOf] = []
        self._coordinator = Coordinator(client, group, GROUP)

    async def ask(self) -> bool:
        """Once; whether somebody could tell."""
        clock = self.client.env.clock
        asked_s = clock.steady()
        try:
            known = await self._coordinator.ask(
                ApiKey.metadata,
                METADATA_VERSION,
                topics=[{"name": topic} for topic in self.topics],
                allow_auto_topic_creation=False,
            )
            reply = await self._coordinator.ask(
                ApiKey.offset_fetch,
                OFFSET_FETCH_VERSION,
                group_id=self.group,
                topics=[{"name": topic, "partition_indexes": [0]} for topic in self.topics],
                require_stable=True,
            )
        except Trouble:
            return False
        if reply.error_code is not ErrorCode.none:
            self._coordinator.forget()
            return False
        ids = {
            each.name: str(each.topic_id)
            for each in known.topics
            if each.error_code is ErrorCode.none
        }
        rows = [(topic.name, row) for topic in reply.topics for row in topic.partitions]
        times = asked_s, clock.steady()
        for name, row in rows:
            if row.error_code is ErrorCode.none and name in ids:
                number = number_of(row.metadata) if row.committed_offset >= 0 else NO_NUMBER
                told = ToldOf(self.client.name, self.group, name, ids[name], number, *times)
                self.told.append(told)
        return all(row.error_code is ErrorCode.none for _, row in rows)

    async def find(self) -> None:
        """For the end: until all that is open has ended, and somebody tells."""
        while not await self.ask():
            await self.client.env.clock.sleep(RETRY_PAUSE_S)


class LifeCommitter:
    """A group's position in each topic as soon as that is made, and seldom another one: the next would cover a lost one.

    By the topic's name, and outside of transactions: each is sent once, whatever becomes of it. Of a topic it knows by whoever
    makes it, so at once: before the group's coordinator has heard of it, maybe. Most of the time it asks what it has committed."""

    def __init__(
        self,
        client: ClusterClient,
        group: str,
        topics: Sequence[str],
        next_number: Callable[[], int],
        living: Callable[[str], UUID | None],
    ) -> None:
        self.client = client
        self.group = group
        self.topics = list(topics)
        self.stopping = False
        self.acknowledged = 0
        self.producers: list[TransactionalProducer] = []
        self.placed: list[Placed] = []
        self.positions = [LifePositions(client, group, topics)]
        self._begun: set[str] = set()  # in which there is one, or one is under way
        self._next_number = next_number
        self._living = living
        self._coordinator = Coordinator(client, group, GROUP)

    async def run(self) -> None:
        rng, clock = self.client.env.rng, self.client.env.clock
        while not self.stopping:
            for topic in self.topics:
                is_begun = str(self._living(topic)) in self._begun
                if not is_begun or rng.random() < AGAIN_ODDS:
                    await self.commit(topic)
            if rng.random() < ASK_ODDS:
                await self.positions[0].ask()
            await clock.sleep(PAUSE_S * rng.random())

    async def commit(self, topic: str) -> None:
        """Once, if there is such a topic."""
        topic_id = self._living(topic)
        if topic_id is None:
            return
        self._begun.add(str(topic_id))
        is_begun = False
        try:
            is_begun = await self._commit(topic, str(topic_id))
        except Trouble:
            pass
        finally:
            if not is_begun:
                self._begun.discard(str(topic_id))

    async def _commit(self, topic: str, meant: str) -> bool:
        clock = self.client.env.clock
        number = self._next_number()
        placed = Placed(self.group, topic, meant, number, clock.steady())
        self.placed.append(placed)
        row = {"partition_index": 0, "committed_offset": number}
        reply = await self._coordinator.ask(
            ApiKey.offset_commit,
            COMMIT_VERSION,
            group_id=self.group,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=[{"name": topic, "partitions": [{**row, "committed_metadata": str(number)}]}],
        )
        error = reply.topics[0].partitions[0].error_code
        if error is ErrorCode.none:
            placed.acknowledged_s, placed.is_once = clock.steady(), True
            self.acknowledged += 1
        elif error in MOVED:
            self._coordinator.forget()
        return error is ErrorCode.none
