"""A consumer that wants to begin at a time: it asks for the offset of one (ListOffsets), again and again, whoever leads.

An answer that no later try mends ends the run. What it was told is judged by what is there in the end (`checkers/sought.py`); timestamps go up and down (`txn_dressed.py`).
"""

import random
from collections.abc import Callable, Sequence
from typing import Final

from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.records import Record

from ..checkers.history import Anomaly
from ..checkers.observations import Sought
from ..checkers.sought import YOUNGEST
from .cluster_client import LATEST, LOOK_AGAIN, ClusterClient, Leader
from .txn_answers import asks_again
from .txn_dressed import APART_MS, Dressed, Place

PAUSE_S: Final = 0.1
YOUNGEST_ODDS: Final = 0.1
BACK_MS: Final = 8_000
# Also a leader that does not know yet what was committed before it led (KIP-207), or whose disk has rotted there.
AGAIN: Final = LOOK_AGAIN | {ErrorCode.offset_not_available, ErrorCode.corrupt_message}


class Noted(Dressed):
    """Also of each record that somebody was shown when it is from."""

    def __init__(self, dice: random.Random, report: Callable[[list[Anomaly]], None]) -> None:
        super().__init__(dice, report)
        self.times: dict[str, dict[int, int]] = {}

    def check(self, place: Place, records: Sequence[Record]) -> None:
        super().check(place, records)
        times = self.times.setdefault(f"{place[0]}-{place[1]}", {})
        for each in records:
            times[each.offset] = each.timestamp


class TimeSeeker:
    """Of one partition, until told to stop. It asks where that ends before, and the same leader for the time."""

    def __init__(self, client: ClusterClient, topic: str, partition: int) -> None:
        self.client = client
        self.topic = topic
        self.partition = partition
        self.stopping = False
        self.answers: list[Sought] = []

    async def run(self) -> None:
        rng, clock = self.client.env.rng, self.client.env.clock
        while not self.stopping:
            try:
                leader = await self.client.leader_now(self.topic, self.partition)
                await self._ask(leader)
            except Trouble:
                known = self.client.leader(self.topic, self.partition)
                if known is not None:
                    self.client.forget(self.topic, self.partition, known)
            await clock.sleep(2 * PAUSE_S * rng.random())

    async def _ask(self, leader: Leader) -> None:
        rng, now_ms = self.client.env.rng, self.client.env.clock.now_ms()
        wanted_ms = now_ms - rng.randint(-APART_MS, BACK_MS)
        if rng.random() < YOUNGEST_ODDS:
            wanted_ms = YOUNGEST
        end = await self._offset(leader, LATEST)
        found = None if end is None else await self._offset(leader, wanted_ms)
        if end is not None and found is not None:
            key = f"{self.topic}-{self.partition}"
            self.answers.append(Sought(self.client.name, key, wanted_ms, *found, end[0]))

    async def _offset(self, leader: Leader, timestamp: int) -> tuple[int, int] | None:
        """And its time; None when this leader does not say."""
        wanted = {
            "partition_index": self.partition,
            "current_leader_epoch": leader.leader_epoch,
            "timestamp": timestamp,
        }
        reply = await leader.wire.request(
            ApiKey.list_offsets,
            replica_id=-1,
            isolation_level=0,
            topics=[{"name": self.topic, "partitions": [wanted]}],
        )
        answer = reply.topics[0].partitions[0]
        if answer.error_code in LOOK_AGAIN:
            self.client.forget(self.topic, self.partition, leader)
        if answer.error_code is not ErrorCode.none:
            asks_again(self.client.name, f"the offset of {timestamp}", answer.error_code, AGAIN)
            return None
        return answer.offset, answer.timestamp
