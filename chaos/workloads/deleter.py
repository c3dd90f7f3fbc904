"""Somebody has records deleted all the while (DeleteRecords), of partitions that are written to and read.

What he asks is told before it is sent, and what became of it when that is known; the judge is `checkers/deletions.py`. Now and then
he asks where the partition begins and ends, and not always before he deletes: a leader that was cut off answers no such question.
What no later try mends ends the run.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from fencepost.cluster.base.errors import ErrorCode, Outcome, Trouble
from fencepost.cluster.wire.api import ApiKey

from ..checkers.deletions import ALL_COMMITTED
from ..checkers.observations import Begins, Deletion
from .cluster_client import EARLIEST, LOOK_AGAIN, ClusterClient, Leader, end_offset
from .txn_answers import asks_again

PAUSE_S: Final = (0.0, 0.3)
RETRY_PAUSE_S: Final = 0.2
# The shortest is over before followers can have heard of it.
TIMEOUTS_MS: Final = (1, 500, 3000, 3000)
LOOK_ODDS, ALL_ODDS, END_ODDS, BEYOND_ODDS = 0.5, 0.1, 0.1, 0.05
# Said before anything is done.
NOT_DONE: Final = frozenset({ErrorCode.offset_out_of_range})


class Judge(NamedTuple):
    """Who is told of what is asked and seen; how many deletions he knows to be acknowledged, and the newest leader epoch."""

    see: Callable[[Deletion | Begins], None]
    acknowledged: Callable[[str], int]
    newest_epoch: Callable[[int], int]


async def where_it_begins(
    leader: Leader, topic: str, partition: int, judge: Judge, who: str
) -> int | None:
    """As ListOffsets says it; None when the leader does not say."""
    key = f"{topic}-{partition}"
    since = judge.acknowledged(key)
    start = await end_offset(leader, topic, partition, timestamp=EARLIEST)
    if start is not None:
        judge.see(Begins(f"{who}'s ListOffsets", key, leader.leader_epoch, start, since))
    return start


class Deleter:
    """One request after another, all of one partition, until told to stop."""

    def __init__(self, client: ClusterClient, topic: str, partition: int, judge: Judge) -> None:
        self.client = client
        self.topic = topic
        self.partition = partition
        self.judge = judge
        self.stopping = False
        self.answers: dict[str, int] = {}
        self._known: tuple[int, int] | None = None

    @property
    def acknowledged(self) -> int:
        """Deletions."""
        return self.answers.get(ErrorCode.none.name, 0)

    async def run(self) -> None:
        rng, clock = self.client.env.rng, self.client.env.clock
        while not self.stopping:
            well = await self._step()
            await clock.sleep(rng.uniform(*PAUSE_S) if well else RETRY_PAUSE_S)

    async def _step(self) -> bool:
        """False when nobody could be asked."""
        rng, partition = self.client.env.rng, self.partition
        try:
            leader = await self.client.leader_now(self.topic, partition)
        except Trouble:
            return False
        if rng.random() < LOOK_ODDS or self._known is None:
            self._known = await self._look(leader)
        if self._known is None:
            self.client.forget(self.topic, partition, leader)
            return False
        await self._delete(leader, self._place(*self._known))
        return True

    async def once_more(self) -> None:
        """Half of what there is, asked for until that is acknowledged."""
        before = self.acknowledged
        while self.acknowledged == before:
            await self._try_half()
            await self.client.env.clock.sleep(RETRY_PAUSE_S)

    async def _try_half(self) -> None:
        try:
            leader = await self.client.leader_now(self.topic, self.partition)
        except Trouble:
            return
        found = await self._look(leader)
        if found is None:
            self.client.forget(self.topic, self.partition, leader)
        else:
            await self._delete(leader, sum(found) // 2)

    async def _look(self, leader: Leader) -> tuple[int, int] | None:
        """Where it begins and ends."""
        try:
            start = await where_it_begins(
                leader, self.topic, self.partition, self.judge, self.client.name
            )
            end = await end_offset(leader, self.topic, self.partition)
        except Trouble:
            return None
        return None if start is None or end is None else (start, end)

    def _place(self, start: int, end: int) -> int:
        """All before this shall go: often a little, now and then all that there is, or more than that; or it has gone."""
        rng = self.client.env.rng
        odds = rng.random()
        if odds < ALL_ODDS:
            return ALL_COMMITTED
        if odds < ALL_ODDS + END_ODDS:
            return end
        if odds < ALL_ODDS + END_ODDS + BEYOND_ODDS:
            return end + rng.randint(1, 1000)
        return start + int(max(0, end - start) * rng.random() ** 2)

    async def _delete(self, leader: Leader, before: int) -> None:
        name, partition = self.client.name, self.partition
        key = f"{self.topic}-{partition}"
        self.judge.see(Deletion(name, key, "asked", before))
        wanted = {"partition_index": partition, "offset": before}
        try:
            reply = await leader.wire.request(
                ApiKey.delete_records,
                topics=[{"name": self.topic, "partitions": [wanted]}],
                timeout=self.client.env.rng.choice(TIMEOUTS_MS),
            )
        except Trouble as trouble:
            self.client.forget(self.topic, partition, leader)
            self._count(f"trouble {trouble.outcome.value}")
            was_sent = trouble.outcome is not Outcome.REFUSED
            self.judge.see(Deletion(name, key, "info" if was_sent else "fail", before))
            return
        answer = reply.topics[0].partitions[0]
        error, epoch = answer.error_code, self.judge.newest_epoch(partition)
        self._count(error.name)
        if error is ErrorCode.none:
            self.judge.see(Deletion(name, key, "ok", before, answer.low_watermark, epoch))
            return
        asks_again(name, f"a deletion of {key} before {before}", error, LOOK_AGAIN | NOT_DONE)
        if error in LOOK_AGAIN:
            self.client.forget(self.topic, partition, leader)
        self.judge.see(Deletion(name, key, "fail" if error in NOT_DONE else "info", before))

    def _count(self, what: str) -> None:
        self.answers[what] = self.answers.get(what, 0) + 1
