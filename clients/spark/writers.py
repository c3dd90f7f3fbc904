"""What Spark calls to write: thin shells around `sink_writer.py` and `sink_commit.py`.

Spark pickles the writer to the tasks. A stream's driver makes a new one, in a new process, for each commit: what that
has to know it is told by the tasks' messages.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
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
from ..transactional.groups import UNDECIDED, MemberWrote, TransactionGroup
from ..transactional.names import SEPARATOR
from . import sink_commit, written_topics
from .c_producer import Identity
from .commit_refusals import Wrote, why_other_rows
from .fencing import fence
from .input_end import check_whole
from .offsets import TopicIds
from .options import BOOTSTRAP, GROUP, TASK, WriteOptions
from .row_marks import MarkedRows, RowMarks, marks_of, total
from .sink_names import Place, Task, place_in_batch, place_in_stream, whose
from .sink_writer import CouldNotWrite, MemberWriter
from .takeover import standing, why_taken_over
from .task_decisions import NOT_YET, DecisionRecords, Last
from .task_owners import TaskOwners

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
# Spark (4.2) has it in the session of a query, which foreachBatch is handed, and in no other; all settings of a session go to its
# tasks, and from whichever thread.
QUERYS_OWN = "spark.sql.streaming.internal.stateStore.partitions"
NOBODY = Identity(-1, -1)


@dataclass(frozen=True)
class TaskWrote(WriterCommitMessage):
    """A task's word to its driver. Who wrote nothing has producer id -1, and may have found its batch decided."""

    place: Place
    producer_id: int
    producer_epoch: int
    marks: RowMarks  # of all rows that it was given
    found_decided: bool = False
    topics: TopicIds = field(default_factory=dict)  # as they were when it wrote there


def _this_task() -> Task:
    context = TaskContext.get()
    assert context is not None, "writers run in tasks"
    batch = context.getLocalProperty(BATCH_ID)
    return Task(
        context.partitionId(),
        context.attemptNumber(),
        context.getLocalProperty(QUERY_ID) or "",
        int(batch) if batch else None,
        is_of_a_query=context.getLocalProperty(QUERYS_OWN) is not None,
    )


def _write(options: WriteOptions, place: Place, given: Iterator[pa.RecordBatch]) -> TaskWrote:
    seen = MarkedRows(with_topics=not options.topic)  # of a group that is used once nobody asks
    batches: Iterator[pa.RecordBatch] = (each for each in given if each.num_rows)
    if not place.is_used_once:
        batches = _seen(seen, batches)
    first = next(batches, None)
    is_alone = options.transactions == TASK
    if first is None:  # nothing to write; in a group its driver asks whether there was
        if is_alone and not place.is_used_once:
            _check_empty(options, place)
        return TaskWrote(place, *NOBODY, seen.marks)
    # Where it is alone its id is that of older builds: theirs are fenced, too.
    name = f"{place.group}{SEPARATOR}{place.task_of_any_topic if is_alone else place.member}"
    writer = MemberWriter(options.client[BOOTSTRAP], name, options.client)
    with closing(writer):
        writer.begin()
        who = None
        try:
            who = (_alone if is_alone else _in_group)(
                writer, options, place, chain([first], batches), seen
            )
        finally:
            if who is None:
                writer.give_up()
    if who is None and not place.is_used_once:  # what a decided batch is compared with
        for _ in batches:
            pass
        check_whole(place.member, surely=False)
    return TaskWrote(
        place,
        *(who or NOBODY),
        seen.marks,
        found_decided=who is None,
        topics=writer.topics.ids if who and not is_alone else {},
    )


def _seen(seen: MarkedRows, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for each in batches:
        seen.see(each)
        yield each


def _in_group(
    writer: MemberWriter,
    options: WriteOptions,
    place: Place,
    batches: Iterator[pa.RecordBatch],
    _: MarkedRows,
) -> Identity | None:
    """Left open: the driver decides. Unless it has: nobody would end what comes after that, and nothing is written.

    1. The driver decides, and ends what it finds open of attempts that lost.
    2. An attempt that lost may begin later still: a speculative copy, a task of an executor that was thought dead.
    3. It asks when its transaction is open. Either it was found in 1, or the decision is found now.
    """
    first = next(batches)
    writer.write(first.slice(0, 1), options.topic)
    writer.settle()
    if _is_decided(_group(options, place), place):
        return None
    for each in chain([first.slice(1)], batches):
        writer.write(each, options.topic)
        writer.settle_new()
    check_whole(place.member, surely=False)
    return writer.written()


def _is_decided(group: TransactionGroup, place: Place) -> bool:
    """A task of a query that has lost the group to a newer one writes nothing: `CouldNotWrite`."""
    number = place.number
    if place.is_batch_id:
        found = standing(group, place.owner)
        if found.newer:
            what = f"{place.member} in batch {number}"
            raise CouldNotWrite(why_taken_over(group.name, place.owner, found.newer, what))
        if not found.may_be_decided(number):
            return False
        number = found.number(number)
    return group.decision(number).outcome != UNDECIDED


def _alone(
    writer: MemberWriter,
    options: WriteOptions,
    place: Place,
    batches: Iterator[pa.RecordBatch],
    seen: MarkedRows,
) -> Identity:
    """Where there are no groups: committed here, unless it was before.

    What is below the last number may have been written or not: only the last one is remembered. Spark does not run such
    a batch, unless its checkpoint is an old one: then the batch may have other rows than it had. So may the last one: its
    rows are compared.
    """
    name = _name_alone(place)
    decisions, last = _last_of(options, place)
    if last.batch < place.number:
        for each in batches:
            writer.write(each, options.topic)
            writer.settle_new()
        check_whole(name)
        writer.check_topics()
        rows = "" if place.is_used_once else seen.marks.note()
        writer.commit_with(decisions.records(place.number, rows))
        return NOBODY
    for _ in batches:
        pass
    check_whole(name)
    _check_same(options, place, last, seen.marks)
    return NOBODY


def _check_empty(options: WriteOptions, place: Place) -> None:
    """1. A task commits rows. The checkpoint loses the batch, and Spark plans it anew: this task has none of them now.
    2. If it asked nobody, Spark would note the batch, and the next one write these rows again.
    """
    _, last = _last_of(options, place)
    if last.batch == place.number:
        check_whole(_name_alone(place))
        _check_same(options, place, last, RowMarks())


def _name_alone(place: Place) -> str:
    return f"{place.group}{SEPARATOR}{place.task}"


def _last_of(options: WriteOptions, place: Place) -> tuple[DecisionRecords, Last]:
    """What this task committed last. `CouldNotWrite` if that is above its number, or if a newer query has its group."""
    name = _name_alone(place)
    owners = TaskOwners(place.group, whose(place.owner)) if place.is_batch_id else None
    decisions = DecisionRecords(
        options.client[BOOTSTRAP],
        options.client,
        options.decision_topic,
        name,
        formerly=f"{place.group}{SEPARATOR}{place.task_of_any_topic}",
        owners=owners,
    )
    last = decisions.last()
    if owners and (newer := owners.newer(has_written=last.batch != NOT_YET)):
        what = f"{place.task} in batch {place.number}"
        raise CouldNotWrite(why_taken_over(place.group, place.owner, newer, what))
    if last.batch > place.number:
        raise CouldNotWrite(_why_lower(name, place, last.batch))
    return decisions, last


def _check_same(options: WriteOptions, place: Place, last: Last, marks: RowMarks) -> None:
    why_not = why_other_rows(
        f"{_name_alone(place)}: number {place.number}",
        marks_of(last.rows),
        marks,
        may_differ=options.rows_may_differ,
    )
    if why_not is not None:
        raise CouldNotWrite(why_not)


def _why_lower(name: str, place: Place, last: int) -> str:
    if place.is_batch_id:
        return (
            f"{name}: batch {place.number} is lower than {last}, which this task committed last: Spark runs none but the last "
            "one again, so this one may have other rows than the one that was committed. Nothing of this task was written. "
            "Is the checkpoint an old copy, or is another run of this query at work? Let only one run; where the "
            "checkpoint is old, start with a new one behind what was written, and compare"
        )
    return (
        f"{name}: number {place.number} is lower than {last}, which was written last: with transactions=task numbers "
        "must ascend, because only the last one is remembered. Nothing of this task was written. If its rows are new, "
        f"say a transactionNumber from {last + 1} on, or another transactionGroup; if they were written before, leave "
        "them out"
    )


def _group(options: WriteOptions, place: Place) -> TransactionGroup:
    return TransactionGroup(place.group, AdminApi(options.admin_url, token=options.admin_token))


class Driver:
    """The commit and the abort of a batch. Where tasks commit for themselves nothing is left to do."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def commit(self, messages: Sequence[WriterCommitMessage | None], number: int | None) -> None:
        told = _told(messages, number)
        if told and self._options.transactions == GROUP:
            why_not = written_topics.of_all(self._options.client, (each.topics for each in told))
            group, wrote = self.group(told[0].place), self._wrote(told, why_not)
            sink_commit.commit(group, wrote, self._fence)

    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],
        number: int | None,
        place: Place | None = None,
    ) -> None:
        """`place` is where the batch's tasks write, if that is known without any of them having told. Its owner is not:
        in foreachBatch it is the query's, which the tasks alone hear of."""
        told = _told(messages, number)
        place = told[0].place if told else place
        if place is None or self._options.transactions != GROUP:
            return
        last = place.number if place.is_used_once else None
        wrote = self._wrote(told) if told else None
        sink_commit.abort(self.group(place), wrote, self._fence, last=last)

    def group(self, place: Place) -> TransactionGroup:
        return _group(self._options, place)

    def _wrote(self, told: Sequence[TaskWrote], why_not: str = "") -> Wrote:
        place = told[0].place
        return Wrote(
            place.number,
            place.owner,
            tuple(
                MemberWrote(each.place.member, each.producer_id, each.producer_epoch)
                for each in told
                if each.producer_id >= 0
            ),
            found_decided=any(each.found_decided for each in told),
            is_batch_id=place.is_batch_id,
            is_used_once=place.is_used_once,
            marks=total(each.marks for each in told),
            rows_may_differ=self._options.rows_may_differ,
            why_not=why_not,
        )

    def _fence(self, group: str, members: Sequence[str]) -> None:
        fence(self._options.client[BOOTSTRAP], self._options.client, group, members)


def _told(messages: Sequence[WriterCommitMessage | None], number: int | None) -> list[TaskWrote]:
    told = [each for each in messages if isinstance(each, TaskWrote)]
    assert len({(each.place.group, each.place.number) for each in told}) <= 1, told
    assert all(number in (None, each.place.number) for each in told), f"{number}: {told}"
    return told


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def driver(self) -> Driver:
        return Driver(self._options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWrote:
        place = place_in_stream(_this_task(), self._options.group, self._options.topic)
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
        return _write(self._options, self._place(_this_task()), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.driver().commit(messages, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.driver().abort(messages, None, self._place(Task(0, 0, "", None)))

    def _place(self, task: Task) -> Place:
        options = self._options
        return place_in_batch(task, options.group, options.number, self._job_id, options.topic)
