"""A consumer that commits its position in a group all the time, and now and then asks what the group has.

It finds the coordinator as a good client does, and tells `told` what it learned; the judge is
`checkers/group_offsets.py`. An answer that never came leaves the commit's fate open; one that no later try mends ends the run.
"""

from collections.abc import Callable
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode, Outcome, Trouble
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient

from ..checkers.observations import Position, PositionKind
from .cluster_client import ClusterClient
from .coordinator_client import BUSY, MOVED
from .txn_answers import asks_again

COMMIT_VERSION: Final = 8  # topics by name, groups without generation
FETCH_VERSION: Final = 7
FIND_VERSION: Final = 3
PAUSE_S: Final = 0.2
# Certain not to be stored, now or later. NOT_COORDINATOR and COORDINATOR_NOT_AVAILABLE may follow an append.
NOT_STORED: Final = frozenset({ErrorCode.coordinator_load_in_progress})
# A node that has just come may not have heard of the topic.
AGAIN: Final = BUSY | MOVED | {ErrorCode.unknown_topic_or_partition}


class OffsetKeeper:
    """One group, one partition, positions that rise."""

    def __init__(
        self,
        client: ClusterClient,
        topic: str,
        told: Callable[[Position], None],
        *,
        pause_s: float = PAUSE_S,
    ) -> None:
        self.client = client
        self.topic = topic
        self.pause_s = pause_s
        self.stopping = False
        self.stored = 0
        self.found = -1
        self._told = told
        self._next = 0
        self._coordinator: WireClient | None = None

    async def run(self) -> None:
        """At the end it finds what it has stored."""
        rng, clock = self.client.env.rng, self.client.env.clock
        while not self.stopping:
            well = await (self.find() if rng.random() < 0.3 else self._commit())
            await clock.sleep(self.pause_s * rng.random() * (1 if well else 2))
        while not await self.find():
            await clock.sleep(PAUSE_S)

    async def _ask(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """None when there is no coordinator to ask: nothing was sent."""
        if self._coordinator is None:
            try:
                reply = await self.client.any().request(
                    ApiKey.find_coordinator, FIND_VERSION, key=self.client.name, key_type=0
                )
            except Trouble:
                return None
            if reply.error_code is not ErrorCode.none:
                return None
            self._coordinator = self.client.wire_to((reply.host, reply.port))
        return await self._coordinator.request(
            api_key, version, group_id=self.client.name, **fields
        )

    async def _commit(self) -> bool:
        offset = self._next
        self._next += 1
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        self._tell("sent", offset)
        try:
            reply = await self._ask(
                ApiKey.offset_commit,
                COMMIT_VERSION,
                generation_id_or_member_epoch=-1,
                member_id="",
                group_instance_id=None,
                topics=[{"name": self.topic, "partitions": [partition]}],
            )
        except Trouble as trouble:
            self._coordinator = None
            if trouble.outcome is not Outcome.UNKNOWN:
                self._tell("refused", offset)
            return False
        if reply is None:
            self._tell("refused", offset)
            return False
        error = reply.topics[0].partitions[0].error_code
        if error is ErrorCode.none:
            self.stored += 1
            self._tell("ok", offset)
            return True
        self._coordinator = None
        asks_again(self.client.name, f"a commit of {offset}", error, AGAIN)
        if error in NOT_STORED:
            self._tell("refused", offset)
        return False

    async def find(self) -> bool:
        """What the group has; False when nobody could tell."""
        topics = [{"name": self.topic, "partition_indexes": [0]}]
        try:
            reply = await self._ask(
                ApiKey.offset_fetch, FETCH_VERSION, topics=topics, require_stable=True
            )
        except Trouble:
            self._coordinator = None
            return False
        if reply is None:
            return False
        answer = reply.topics[0].partitions[0] if reply.topics else None
        if reply.error_code is not ErrorCode.none or answer is None:
            self._coordinator = None
            asks_again(self.client.name, "a position", reply.error_code, AGAIN | {ErrorCode.none})
            return False
        if answer.error_code is not ErrorCode.none:
            asks_again(self.client.name, "a position", answer.error_code, AGAIN)
            return False
        self.found = answer.committed_offset
        self._tell("read", self.found)
        return True

    def _tell(self, kind: PositionKind, offset: int) -> None:
        self._told(Position(self.client.name, kind, offset))
