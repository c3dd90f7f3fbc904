"""What Spark calls to write: thin shells around `sink_writer.py` and `sink_commit.py`.

Spark pickles the writer to the tasks. A stream's driver makes a new one, in a new process, for each commit: what that
has to know it is told by the tasks' messages.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ..transactional.admin_api import AdminApi
from ..transactional.groups import SEPARATOR, MemberWrote, TransactionGroup
from . import sink_commit
from .fencing import fence
from .options import BOOTSTRAP, GROUP, TASK, WriteOptions
from .sink_commit import Wrote
from .sink_names import Place, Task, place_in_batch, place_in_stream
from .sink_writer import MemberWriter, Row, rows_of
from .task_decisions import DecisionRecords

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


@dataclass(frozen=True)
class TaskWrote(WriterCommitMessage):
    """A task's word to its driver. Who wrote nothing has producer id -1."""

    place: Place
    producer_id: int
    producer_epoch: int
    records: int


def _this_task() -> Task:
    context = TaskContext.get()
    assert context is not None, "writers run in tasks"
    batch = context.getLocalProperty(BATCH_ID)
    return Task(
        context.partitionId(),
        context.attemptNumber(),
        context.getLocalProperty(QUERY_ID) or "",
        int(batch) if batch else None,
    )


def _write(options: WriteOptions, place: Place, batches: Iterator[pa.RecordBatch]) -> TaskWrote:
    rows = rows_of(batches, options.topic)
    first = next(rows, None)
    if first is None:  # nothing to write, and nobody to be asked
        return TaskWrote(place, -1, -1, 0)
    is_alone = options.transactions == TASK
    name = f"{place.group}{SEPARATOR}{place.task if is_alone else place.member}"
    writer = MemberWriter(options.client[BOOTSTRAP], name, options.client)
    writer.begin()
    is_written = False
    try:
        identity = (_alone if is_alone else _in_group)(
            writer, name, options, place, chain([first], rows)
        )
        is_written = True
    finally:
        if not is_written:
            writer.give_up()
    return TaskWrote(place, *identity, writer.records)


def _in_group(
    writer: MemberWriter, name: str, options: WriteOptions, place: Place, rows: Iterable[Row]
) -> tuple[int, int]:
    """Left open: the driver decides."""
    writer.write(rows)
    return writer.written()


def _alone(
    writer: MemberWriter, name: str, options: WriteOptions, place: Place, rows: Iterable[Row]
) -> tuple[int, int]:
    """Where there are no groups: committed here, unless it was before."""
    decisions = DecisionRecords(
        options.client[BOOTSTRAP], options.client, options.decision_topic, name
    )
    if decisions.committed_up_to() < place.number:
        writer.write(rows)
        writer.commit_with(decisions.record(place.number))
    return -1, -1


class Driver:
    """The commit and the abort of a batch. Where tasks commit for themselves nothing is left to do."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def commit(self, messages: Sequence[WriterCommitMessage | None], number: int | None) -> None:
        told = _told(messages, number)
        if told and self._options.transactions == GROUP:
            group, wrote = self.group(told[0]), _wrote(told)
            sink_commit.commit(group, wrote, self._fence)

    def abort(self, messages: Sequence[WriterCommitMessage | None], number: int | None) -> None:
        told = _told(messages, number)
        if told and self._options.transactions == GROUP:
            members = [each.place.member for each in told if each.producer_id >= 0]
            sink_commit.abort(self.group(told[0]), told[0].place.owner, members, self._fence)

    def group(self, told: TaskWrote) -> TransactionGroup:
        admin = AdminApi(self._options.admin_url, token=self._options.admin_token)
        return TransactionGroup(told.place.group, admin)

    def _fence(self, group: str, members: Sequence[str]) -> None:
        fence(self._options.client[BOOTSTRAP], self._options.client, group, members)


def _told(messages: Sequence[WriterCommitMessage | None], number: int | None) -> list[TaskWrote]:
    told = [each for each in messages if isinstance(each, TaskWrote)]
    assert len({(each.place.group, each.place.number) for each in told}) <= 1, told
    assert all(number in (None, each.place.number) for each in told), f"{number}: {told}"
    return told


def _wrote(told: Sequence[TaskWrote]) -> Wrote:
    members = tuple(
        MemberWrote(each.place.member, each.producer_id, each.producer_epoch)
        for each in told
        if each.producer_id >= 0
    )
    return Wrote(told[0].place.number, told[0].place.owner, members)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def driver(self) -> Driver:
        return Driver(self._options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWrote:
        place = place_in_stream(_this_task(), self._options.group)
        return _write(self._options, place, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self.driver().commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self.driver().abort(messages, batchId)


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._job_id = str(uuid4())  # pickled with it: the tasks and the driver have the same

    def driver(self) -> Driver:
        return Driver(self._options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWrote:
        options = self._options
        place = place_in_batch(_this_task(), options.group, options.number, self._job_id)
        return _write(options, place, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.driver().commit(messages, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.driver().abort(messages, None)
