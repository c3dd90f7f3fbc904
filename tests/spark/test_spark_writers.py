"""What Spark calls to write, with the group and the decision records as tables."""

from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError
from fencepost.clients.spark import task_decisions, writers
from fencepost.clients.spark.c_producer import Identity
from fencepost.clients.spark.commit_refusals import Wrote
from fencepost.clients.spark.option_table import BATCH_SINK
from fencepost.clients.spark.options import WriteOptions, write_options
from fencepost.clients.spark.row_marks import MarkedRows, RowMarks
from fencepost.clients.spark.sink_names import (
    JOB,
    Place,
    Task,
    owner_of_query,
    place_in_batch,
    place_in_stream,
    whose,
)
from fencepost.clients.spark.sink_writer import CouldNotWrite, MemberWriter, _by_topic
from fencepost.clients.spark.source import FencepostDataSource
from fencepost.clients.spark.task_decisions import NOT_YET, DecisionRecords, Last
from fencepost.clients.spark.writers import BatchWriter, TaskWrote
from fencepost.clients.spark.written_topics import WrittenTopics
from fencepost.clients.transactional import Decision, MemberWrote, topic_limits
from pyspark.sql.types import StructType
from spark_topics import column_of

QUERY = "7b0c…-mine"
NO_QUERY = Task(0, 0, "", None)


def options(number: int, **said: str) -> WriteOptions:
    given = {"bootstrap.servers": "here", "topic": "out", "transactiongroup": "night"}
    return write_options({**given, "transactionnumber": str(number), **said}, BATCH_SINK)


def in_batch(number: int, task: Task = NO_QUERY) -> Place:
    return place_in_batch(task, "night", number, "uuid", "out")


class Alone:
    """A task that commits for itself, its writer and its records in one; `last` is what it wrote before."""

    def __init__(self, last: int, rows: str = "") -> None:
        self.found = Last(last, rows)
        self.said: list[str] = []

    def last(self) -> Last:
        return self.found

    def records(self, number: int, rows: str) -> list[dict[str, Any]]:
        self.noted = rows
        return [{"number": number}]

    def write(self, rows: Any, topic: str | None) -> None:
        self.said.append("write")

    def check_topics(self) -> None: ...

    settle_new = check_topics

    def commit_with(self, records: list[dict[str, Any]]) -> None:
        self.said.append(f"commit {records[0]['number']}")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    def one(last: int, place: Place, text: str = "row", note: str = "", **said: str) -> Any:
        alone: Any = Alone(last, note)
        monkeypatch.setattr(writers, "DecisionRecords", lambda *_, **__: alone)
        chosen = options(place.number, transactions="task", **said)
        seen = MarkedRows(with_topics=False)
        rows = writers._seen(seen, iter([column_of(text)]))
        assert writers._alone(alone, chosen, place, rows, seen) == writers.NOBODY
        assert seen.marks.rows == 1, "what is left out is counted, too"
        return alone.said

    return one


def test_a_number_that_was_written_last_is_left_out_and_a_higher_one_is_not(run: Any) -> None:
    assert run(NOT_YET, in_batch(20)) == ["write", "commit 20"]
    assert run(20, in_batch(20)) == []
    assert run(20, in_batch(21)) == ["write", "commit 21"]


def note_of(text: str) -> str:
    seen = MarkedRows(with_topics=False)
    seen.see(column_of(text))
    return seen.marks.note()


@pytest.mark.parametrize("number", [in_batch(20), in_batch(20, Task(0, 0, QUERY, 20))])
def test_other_rows_under_the_number_that_was_written_last_are_not_left_out(
    run: Any, number: Place
) -> None:
    """A checkpoint that is one batch old, or a second save() under one number."""
    assert run(20, number, "row", note_of("row")) == []
    assert run(20, number, "new", "") == [], "an older build's record says nothing of its rows"
    said = r"night::.*p0: number 20 was committed before with other rows: .* rowsDiffer=ignore"
    with pytest.raises(CouldNotWrite, match=said):
        run(20, number, "new", note_of("row"))
    assert run(20, number, "new", note_of("row"), rowsdiffer="ignore") == []


class GroupWriter:
    """A task's writer and its group in one."""

    topics = WrittenTopics({})

    def __init__(self, outcome: str) -> None:
        self.outcome = outcome
        self.rows = 0

    def __call__(self, *_: Any) -> "GroupWriter":
        return self

    def write(self, rows: Any, topic: str | None) -> None:
        self.rows += rows.num_rows

    def decision(self, number: int) -> Decision:
        return Decision(number=number, outcome=self.outcome)

    def written(self) -> Identity:
        return Identity(9, 0)

    def begin(self) -> None: ...

    settle = settle_new = give_up = close = begin


@pytest.mark.parametrize(("outcome", "wrote"), [("undecided", 5), ("commit", 1)])
def test_a_task_counts_its_rows_even_if_its_batch_was_decided(
    monkeypatch: Any, outcome: str, wrote: int
) -> None:
    """Its driver compares them with those that were committed."""
    group = GroupWriter(outcome)
    monkeypatch.setattr(writers, "MemberWriter", group)
    monkeypatch.setattr(writers, "_group", group)
    chosen = options(20, adminurl="http://here:1")
    batches = [column_of("a", "b"), column_of("c", "d", "e")]
    told = writers._write(chosen, in_batch(20), iter(batches))
    assert (group.rows, told.found_decided) == (wrote, outcome == "commit")
    assert (told.marks.rows, told.marks.value_bytes) == (5, 5)


@pytest.mark.parametrize("task", [NO_QUERY, Task(0, 0, QUERY, 5)], ids=["job", "foreachBatch"])
def test_a_chosen_number_below_the_last_one_is_refused_and_not_left_out(
    run: Any, task: Task
) -> None:
    """A day that is written late: it would be taken for one that was there, and save() would succeed."""
    said = r"night::.*p0: number 20 is lower than 21, which was written last.* from 22 on"
    with pytest.raises(CouldNotWrite, match=said):
        run(21, in_batch(20, task))


@pytest.mark.parametrize(
    "place",
    [place_in_stream(Task(0, 0, QUERY, 20), "night", "out"), in_batch(20, Task(0, 0, QUERY, 20))],
    ids=["stream", "foreachBatch"],
)
def test_a_batch_below_the_last_one_is_refused_and_not_left_out(run: Any, place: Place) -> None:
    """A checkpoint was put back: Spark plans its batches anew, and this one may have other rows than it had."""
    said = r"p0: batch 20 is lower than 21, .* Is the checkpoint an old copy, or is another run"
    with pytest.raises(CouldNotWrite, match=said):
        run(21, place)
    assert run(20, place) == []


def test_the_option_topic_is_for_all_rows_and_without_it_each_says_its_own() -> None:
    """As Spark's Kafka connector has it: a row's own topic does not count beside the option."""
    rows = pa.record_batch({"value": ["a", "b", "c"], "topic": ["own", "other", "own"]})
    assert list(_by_topic(rows, "out")) == [("out", None)]
    found = [(name, numbers.to_pylist()) for name, numbers in _by_topic(rows, None)]
    assert found == [("own", [0, 2]), ("other", [1])]


def test_a_task_that_is_alone_is_known_by_its_topic_and_by_its_older_name(monkeypatch: Any) -> None:
    """Two save() of a number to two topics: both are written. What an older build wrote is asked for, too."""
    asked: list[tuple[str, str]] = []

    def records(
        _brokers: Any, _client: Any, _topic: Any, key: str, *, formerly: str, owners: Any
    ) -> Alone:
        asked.append((key, formerly))
        return Alone(NOT_YET)

    begun: list[str] = []

    class Begun(Alone):
        def __init__(self, _brokers: Any, name: str, _client: Any) -> None:
            super().__init__(NOT_YET)
            begun.append(name)

        def begin(self) -> None: ...

        def give_up(self) -> None: ...

        def close(self) -> None: ...

    monkeypatch.setattr(writers, "DecisionRecords", records)
    monkeypatch.setattr(writers, "MemberWriter", Begun)
    for topic in ("out", "other"):
        place = place_in_batch(NO_QUERY, "night", 20, "uuid", topic)
        chosen = options(20, transactions="task", topic=topic)
        writers._write(chosen, place, iter([column_of("row")]))
    assert len({key for key, _ in asked}) == 2
    assert {formerly for _, formerly in asked} == {"night::job.p0"} == set(begun)


@pytest.mark.parametrize("header", [{"key": None, "value": b"1"}, None], ids=["key", "header"])
def test_a_header_without_a_name_is_told_with_its_row(header: Any) -> None:
    """Kafka has none; nothing is asked of any broker."""
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[{"key": "h", "value": None}], [header]], kind)
    rows = pa.record_batch({"value": pa.array(["a", "b"]), "headers": headers})
    with closing(MemberWriter("127.0.0.1:1", "night::job.p0", {})) as writer:
        said = r"a header that is null, or whose key is: .* or give it one \(row 1 of the task\)"
        with pytest.raises(CouldNotWrite, match=said):
            writer.write(rows.slice(1), "out")


@pytest.mark.parametrize("name", ["a\0b", "t" * 513], ids=["NUL", "long"])
def test_a_topic_s_name_that_librdkafka_does_not_take_is_told_with_its_row(name: str) -> None:
    """Of more than 512 bytes it makes no topic, and then reads from address 0: the Python worker crashes, and nobody says why. Of one
    with a NUL it takes what stands before that: rows for another topic are written to `a`."""
    rows = pa.record_batch({"value": ["a", "b"], "topic": ["ok", name]})
    said = r"could not write to .* no topic can have this name: .* \(row 1 of the task\)"
    with closing(MemberWriter("127.0.0.1:1", "night::job.p0", {})) as writer:
        with pytest.raises(CouldNotWrite, match=said):
            writer.write(rows.slice(1), None)
        assert list(writer.producer._topics) == []


def test_a_header_s_key_that_would_be_cut_off_is_told_with_its_row() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[{"key": "h\0idden", "value": b"1"}]], kind)
    rows = pa.record_batch({"value": ["a"], "headers": headers})
    said = r"has a NUL character .* \(row 1 of the task\)"
    with (
        closing(MemberWriter("127.0.0.1:1", "night::job.p0", {})) as writer,
        pytest.raises(CouldNotWrite, match=said),
    ):
        writer.write(rows, "out")


class Heard:
    """A consumer that hears this, and then nothing."""

    def __init__(self, *errors: tuple[int, int]) -> None:
        self.left = [Error(*each) for each in errors]

    def consume(self, _count: int, _wait_s: float) -> list["Error"]:
        heard, self.left = self.left, []
        return heard


class Error:
    """Of partition 3."""

    def __init__(self, code: int, offset: int) -> None:
        self.error = lambda: KafkaError(code, "what it is")
        self.partition, self.offset = (lambda: 3), (lambda: offset)


@pytest.mark.parametrize(
    ("heard", "said"),
    [
        (Heard((KafkaError._PARTITION_EOF, 4)), "an open transaction is in the way, at 4"),
        (
            Heard((KafkaError._TRANSPORT, -1)),
            r"its leader does not answer \(the last that was heard: _TRANSPORT: what it is\)",
        ),
        (Heard(), r"its leader does not answer\. Are all nodes there"),
    ],
    ids=["open", "away", "silent"],
)
def test_a_leader_that_is_away_is_not_taken_for_an_open_transaction(
    monkeypatch: Any, heard: Heard, said: str
) -> None:
    monkeypatch.setattr(task_decisions, "READ_S", 0.0)
    records = DecisionRecords("here", {}, "decisions", "night::job.p0")
    with pytest.raises(TimeoutError, match=rf"decisions-3 can't be read up to 9 in 0 s: {said}"):
        list(records._found(heard, {3: 9}))


class Group:
    """Tells who is ended, and for whom."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ended: list[Wrote | None] = []
        monkeypatch.setattr(writers.sink_commit, "abort", self.abort)

    def abort(self, group: Any, wrote: Wrote | None, _fence: Any, *, last: Any) -> None:
        assert (group.name, last) == ("night", None)
        self.ended.append(wrote)


def test_an_abort_in_foreach_batch_ends_what_the_query_left_open(monkeypatch: Any) -> None:
    group = Group(monkeypatch)
    writer = BatchWriter(options(0, adminurl="http://here:1"))
    place = in_batch(0, Task(0, 0, QUERY, 0))
    writer.abort([TaskWrote(place, 9, 0, RowMarks()), None])
    writer.abort([None, None])
    members = (MemberWrote(place.member, 9, 0),)
    assert group.ended == [Wrote(0, place.owner, members, is_batch_id=True), None]
    assert whose(place.owner) == owner_of_query(QUERY) != JOB


def test_where_tasks_commit_alone_the_driver_says_once_what_that_promises(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark makes a stream's writer twice for each batch, in Pythons that it keeps."""
    monkeypatch.setattr(topic_limits, "bytes_max", lambda *_, **__: None)
    schema = StructType().add("value", "string")
    said = {"bootstrap.servers": "here:1", "topic": "said-once"}
    for _ in range(2):
        source = FencepostDataSource({**said, "transactions": "task"})
        source.streamWriter(schema, overwrite=False)
    (told,) = caplog.messages
    assert (
        "said-once: transactions=task: a row of a batch that Spark finished is there once" in told
    )
    assert "readers see a batch task by task" in told
    caplog.clear()
    FencepostDataSource({**said, "adminurl": "http://here:1"}).writer(schema, overwrite=False)
    assert caplog.messages == []
