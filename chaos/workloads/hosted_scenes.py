"""Who changes a cluster while others use it, in a process that may be killed: what he asks for is written down before.

INVARIANT  a topic is asked to be deleted, a setting to be changed, behind the line that says so; of what was not answered that
           line says that nobody knows.
PREVENTS   a topic that an administrator's last word has taken away, or a setting that it has changed, passing for lost.
PROVED BY  tests/chaos/test_hosted_scenes.py::test_a_deletion_whose_administrator_was_killed_is_of_unknown_outcome
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from ..checkers import settings
from ..checkers.lives import Change
from ..checkers.settings import Asked
from ..checkers.txn_history import Txn
from .churn import Churner
from .cluster_client import ClusterClient
from .hosted_book import NotedBook
from .hosted_cast import Cast
from .tuner import HERE, OF_BROKERS, OF_IDLE, OF_TOPICS, Knobs, Tuner
from .txn_answers import Partition

COMING_AND_GOING: Final = ("lives-a", "lives-b")
TABLES: Final = "compacted"  # the workload of which all topics are followed
# Apache Kafka has no smaller segments, does not show `internal.segment.bytes`, and has no log of slow requests.
KAFKA_SEGMENTS: Final = {"segment.bytes": ("1048576", "2097152", "1073741824")}
_HIDDEN: Final = frozenset({"internal.segment.bytes", "request.log.slow.ms"})


def _without_hidden(table: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {name: values for name, values in table.items() if name not in _HIDDEN}


KAFKA: Final = Knobs(
    _without_hidden(OF_TOPICS) | KAFKA_SEGMENTS,
    _without_hidden(OF_IDLE) | KAFKA_SEGMENTS,
    _without_hidden(OF_BROKERS),
)


def knobs_for(target: str) -> Knobs:
    return KAFKA if target == "kafka" else HERE


def followed(cast: Cast, workload: str, partitions: int) -> list[Partition]:
    """What its followers read: what came last to it, or all of its tables."""
    topics = cast.topics if workload == TABLES else cast.topics[-1:]
    return [(topic, partition) for topic in topics for partition in range(partitions)]


def idle_and_used(cast: Cast) -> tuple[str, tuple[str, ...]]:
    """Of the topics whose settings change: that which nobody writes to, and the others."""
    return cast.topics[0], cast.topics[1:]


class HostedChurner(Churner):
    """One life of an administrator. What the one before it has asked for may still come, and be found to be done."""

    def __init__(
        self, client: ClusterClient, book: NotedBook, topics: Sequence[str], *, pause_s: float
    ) -> None:
        super().__init__(client, topics, pause_s=pause_s)
        self._book = book
        self._under_way: Txn | None = None

    def begun(self, change: Change) -> None:
        super().begun(change)
        op = Txn(change.f, change.type, self.client.name, self._book.next_number())
        op.named, op.began_s = {change.topic: change.topic_id}, self.client.env.clock.steady()
        self._under_way = op
        self._book.begun(op)

    def ended(self, change: Change) -> None:
        op = self._under_way
        assert op is not None, "it has begun"
        op.type = change.type
        self._book.close(op)

    async def _delete(self, topic: str, topic_id: UUID) -> None:
        await super()._delete(topic, topic_id)
        if self.changes[-1].type == "info":  # it may be gone by the word of the life before
            self._living[topic] = None


class HostedTuner(Tuner):
    def __init__(
        self, client: ClusterClient, book: NotedBook, topics: Sequence[str], idle: str, knobs: Knobs
    ) -> None:
        super().__init__(client, topics, idle, knobs)
        self._book = book
        self._under_way: Txn | None = None

    def begun(self, changes: Sequence[Asked]) -> None:
        super().begun(changes)
        op = Txn("alter", "info", self.client.name, self._book.next_number())
        op.named = {settings.key_of((one.resource, one.setting)): one.value for one in changes}
        op.began_s = self.client.env.clock.steady()
        self._under_way = op
        self._book.begun(op)

    def ended(self, changes: Sequence[Asked]) -> None:
        op = self._under_way
        assert op is not None, "it has begun"
        op.type = changes[0].type  # all of them, or none
        self._book.close(op)
