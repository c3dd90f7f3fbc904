"""Asks a group's coordinator which topics there are of some names, and what the group has committed in them.

Both are asked of one node over one connection: what it does not know yet of topics it can't mix up, and what it knows it must not.
The judge is `checkers/life_positions.py`.
"""

from collections.abc import Sequence
from typing import Final

from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.wire.api import ApiKey

from ..checkers.life_positions import ToldOf
from .cluster_client import ClusterClient
from .coordinator_client import GROUP, Coordinator
from .txn_reader import OFFSET_FETCH_VERSION, RETRY_PAUSE_S, number_of

METADATA_VERSION: Final = 12


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
        for name, row in rows:
            is_there = row.error_code is ErrorCode.none and row.committed_offset >= 0
            if is_there and name in ids:
                number = number_of(row.metadata)
                self.told.append(ToldOf(self.client.name, name, ids[name], number))
        return all(row.error_code is ErrorCode.none for _, row in rows)

    async def find(self) -> None:
        """For the end: until all that is open has ended, and somebody tells."""
        while not await self.ask():
            await self.client.env.clock.sleep(RETRY_PAUSE_S)
