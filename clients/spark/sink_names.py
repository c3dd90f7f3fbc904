"""Who is who in a sink: the group, its numbers, and its members' names. Knows nothing of Spark.

INVARIANT  a group belongs to one query, and a number of it to one batch of that query.
PREVENTS   a query that takes another one's decision for its own, and leaves its batch out.
PROVED BY  tests/spark/test_spark_sink_names.py::test_another_querys_members_are_told_apart

A member is one attempt at one partition: `q1a2b3c4d.p3.a0`, so that a speculative copy does not fence the original,
and a new run of the query fences the old one. The names are drawn from a bounded set: nothing grows with the batches.

Whoever says the number of a batch write may say it twice, for two topics: `q1a2b3c4d.t5e6f7a8b.p3.a0` says which. Without
that the second write would find its number decided, by the same query, and be left out. So it is in streams: a copy of
a checkpoint has the same query id and batch ids, and may write elsewhere. Builds before 2026-11-22 named no topic there.
"""

import logging
import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, NamedTuple

from .options import WrongOption

MEMBER: Final = re.compile(r"((?:q[0-9a-f]{8}|job)(?:\.t[0-9a-f]{8})?)\.p(\d+)\.a(\d+)", re.ASCII)
TOPIC: Final = ".t"  # in an owner, before the digest
# Owns the numbers of batch writes outside of queries: whoever says the same number and topic means the same data.
JOB: Final = "job"
BESIDE: Final = (
    "this write is in a query's session, and not in its thread: no task is told which query it is"
)
INHERIT: Final = "Have foreachBatch write in its own thread, or in a pyspark.InheritableThread"

log = logging.getLogger("fencepost.clients")


class Task(NamedTuple):
    """What Spark tells a task of itself."""

    partition: int
    attempt: int
    query_id: str  # empty outside of a streaming query
    batch_id: int | None
    is_of_a_query: bool = False  # its session is, whether it is told which one or not


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a group a task writes."""

    group: str
    number: int
    owner: str
    member: str
    is_used_once: bool = False  # the group, by this batch alone
    is_batch_id: bool = False  # the number: counted by Spark, and not chosen by somebody

    @property
    def task(self) -> str:
        """The same for all attempts."""
        return self.member.rpartition(".a")[0]

    @property
    def task_of_any_topic(self) -> str:
        """As tasks were called before topics were in their names."""
        return f"{whose(self.owner)}{self.task.removeprefix(self.owner)}"


def owner_of_query(query_id: str) -> str:
    return f"q{_digest(query_id)}"


def owner_of_write(query_id: str, topic: str | None) -> str:
    """Without the option topic rows name their own, which are not looked at: all such writes are one."""
    return f"{owner_of_query(query_id) if query_id else JOB}{TOPIC}{_digest(topic or '')}"


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:8]


def whose(owner: str) -> str:
    """The query, or JOB."""
    return owner.partition(TOPIC)[0]


def is_own(owner: str, other: str) -> bool:
    """Who knew no topics may have been this one: what an older build decided is not written again."""
    return other in (owner, whose(owner))


def member_name(owner: str, task: Task) -> str:
    return f"{owner}.p{task.partition}.a{task.attempt}"


def owner_of(member: str) -> str | None:
    """None for a name that no sink gives."""
    found = MEMBER.fullmatch(member)
    return found[1] if found else None


def place_in_stream(task: Task, group: str | None, topic: str | None) -> Place:
    """The query's id is in its checkpoint: it stays the same however often the query is started again. `topic` is the option:
    a copy of the checkpoint that writes to another one must not find its batches decided."""
    if not task.query_id or task.batch_id is None:
        raise WrongOption(
            "Spark did not tell this task its query and batch (sql.streaming.queryId, streaming.sql.batchId): is it "
            "another engine than Structured Streaming's? Without them no batch could be known again"
        )
    owner = owner_of_write(task.query_id, topic)
    name = group or f"spark-{task.query_id}"
    return Place(name, task.batch_id, owner, member_name(owner, task), is_batch_id=True)


def place_in_batch(
    task: Task, group: str | None, number: int | None, job_id: str, topic: str | None
) -> Place:
    """In foreachBatch the query is the owner, as in a stream; `topic` is the option.

    1. Query one says its batch ids as numbers. Its checkpoint is deleted, and it is started as query two.
    2. Batch ids begin at 0 again. If both were called the same, 0 would be found decided, and its new rows left out.
    """
    if group is not None and number is not None:
        owner = owner_of_write(task.query_id, topic)
        is_batch_id = bool(task.query_id) and number == task.batch_id
        if task.is_of_a_query and not task.query_id:
            log.warning("%s: %s; its numbers are no query's. %s", group, BESIDE, INHERIT)
        return Place(group, number, owner, member_name(owner, task), is_batch_id=is_batch_id)
    if task.query_id or task.is_of_a_query:
        beside = "" if task.query_id else f". And {BESIDE}. {INHERIT}"
        raise WrongOption(
            "a write in foreachBatch comes again when the query is started anew, and can't be known again by itself: "
            "say transactionGroup (one for each write in the function) and transactionNumber=the batch id; or write "
            f"with writeStream.format('fencepost'){beside}"
        )
    return Place(f"spark-batch-{job_id}", 0, JOB, member_name(JOB, task), is_used_once=True)
