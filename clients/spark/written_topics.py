"""Which topics a task's rows went to: one that is deleted, and made again by the next row, takes what it had with it.

INVARIANT  all rows of a batch that is committed went to the topics that have their names then.
PREVENTS   a batch of which half is gone with a topic that was deleted under it, and which counts as committed.
PROVED BY  tests/spark/test_spark_written_topics.py::test_a_topic_deleted_between_a_task_s_rows_is_told_and_nothing_is_committed

 1. A task's first rows to a topic are acknowledged: it notes the topic's id.
 2. The topic is deleted. Brokers that make topics by themselves (Kafka's default) make another one for the next row.
 3. When all its rows are acknowledged the task asks for the id again: it is another one.
 4. The driver compares what its tasks noted, and asks once more: it may have been deleted when some of them had written.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Final

from confluent_kafka.admin import AdminClient

from ..transactional.kept_topics import readers
from .offsets import TopicIds
from .topic_ids import ids_of, made_anew

# A broker that has just started may not know a topic yet.
GONE_S: Final = 5.0
PAUSE_S: Final = 0.2
WHAT_TO_DO: Final = "See who deletes topics that are being written to, and create it with as many partitions as it is to have"


class WrittenTopics:
    """Of a task, or of its driver. Brokers that have no ids (Kafka before 2.8) are not compared."""

    def __init__(self, client: Mapping[str, str]) -> None:
        self._client = client
        self._made: AdminClient | None = None
        self._noted: set[str] = set()  # whether or not it has an id
        self.ids: TopicIds = {}
        self.new: set[str] = set()  # had their first rows since

    def see(self, names: Iterable[str]) -> None:
        self.new |= set(names) - self._noted

    def note(self) -> None:
        """The ids of those whose first rows were acknowledged just now."""
        if self.new:
            self.ids |= ids_of(self._admin, self.new)
        self._noted |= self.new
        self.new = set()

    def trouble(self) -> str:
        """What became of one of them since it was noted; empty when all are what they were."""
        return self.unlike(self.ids)

    def unlike(self, ids: TopicIds) -> str:
        deadline = time.monotonic() + GONE_S
        while gone := ids.keys() - (now := ids_of(self._admin, ids)).keys():
            if time.monotonic() > deadline:
                return f"the topic {min(gone)} was deleted while its rows were written"
            time.sleep(PAUSE_S)
        return told(ids, now)

    @property
    def _admin(self) -> AdminClient:
        if self._made is None:
            settings = {k: v for k, v in readers(self._client).items() if k != "isolation.level"}
            # Without a word to each task's log of what it has thrown away as it ended.
            self._made = AdminClient({"log_level": "5", **settings})
        return self._made


def told(noted: TopicIds, now: TopicIds) -> str:
    for topic in made_anew(noted, {each: now[each] for each in now if each in noted}):
        return (
            f"the topic {topic} was deleted and created again while its rows were written: some went to the one with "
            f"the id {noted[topic]}, and are gone with it, and {topic} has the id {now[topic]} now"
        )
    return ""


def of_all(client: Mapping[str, str], noted: Iterable[TopicIds]) -> str:
    """What became of a topic between the first task's note and now; empty when nothing did."""
    ids: TopicIds = {}
    for each in noted:
        if said := told(ids, each):
            return said
        ids |= each
    return WrittenTopics(client).unlike(ids) if ids else ""
