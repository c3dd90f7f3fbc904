"""A topic that becomes another one under a sink, where brokers make topics by themselves: half of a batch is gone with the first."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from fencepost.clients.spark import sink_writer, written_topics
from fencepost.clients.spark.option_table import STREAM_SINK
from fencepost.clients.spark.options import WriteOptions, write_options
from fencepost.clients.spark.sink_commit import CouldNotCommit, commit
from fencepost.clients.spark.sink_names import Place, Task, place_in_stream
from fencepost.clients.spark.sink_writer import CouldNotWrite
from fencepost.clients.spark.writers import Driver, TaskWrote, _write
from fencepost.clients.transactional import AdminApi, Decision, TransactionGroup
from sink_table import Table, member, wrote
from spark_topics import Served, column_of, served

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
AGAIN = "was deleted and created again"


class Stream:
    """A query's tasks and its driver, to one topic, or to whichever each row names."""

    def __init__(self, node: Served, topic: str | None, **said: str) -> None:
        quick = {"kafka.topic.metadata.propagation.max.ms": "500", **said}
        of_all = {} if topic is None else {"topic": topic}
        self.node, self.topic = node, topic or ""
        self.options: WriteOptions = write_options({**node.writing, **of_all, **quick}, STREAM_SINK)

    def place(self, partition: int) -> Place:
        return place_in_stream(Task(partition, 0, f"query-{self.topic}", 0), None, self.topic)

    def task(self, partition: int, rows: Iterator[pa.RecordBatch]) -> TaskWrote:
        return _write(self.options, self.place(partition), rows)

    def commit(self, *told: TaskWrote) -> None:
        Driver(self.options).commit(list(told), 0)

    def make_anew(self) -> None:
        self.node.delete(self.topic)
        self.node.create(self.topic)

    def open_members(self) -> list[str]:
        group = TransactionGroup(self.place(0).group, AdminApi(self.node.admin_url))
        return list(group.open_members())


@pytest.fixture
def stream(node: Served, fresh: Callable[[str], str]) -> Stream:
    topic = fresh("out")
    node.create(topic)
    return Stream(node, topic)


def deleted_between(stream: Stream) -> Iterator[pa.RecordBatch]:
    """The brokers make the topic again for the next row."""
    yield column_of("a1", "a2")
    stream.node.delete(stream.topic)
    yield column_of("b1", "b2")


@pytest.mark.parametrize("transactions", ["group", "task"])
def test_a_topic_deleted_between_a_task_s_rows_is_told_and_nothing_is_committed(
    node: Served, fresh: Callable[[str], str], transactions: str
) -> None:
    topic = fresh("out")
    node.create(topic)
    stream = Stream(node, topic, transactions=transactions, decisionTopic=fresh("decisions"))
    with pytest.raises(CouldNotWrite, match=f"the topic {topic} {AGAIN} .* Spark tries"):
        stream.task(0, deleted_between(stream))
    assert stream.open_members() == []
    assert node.committed(topic) == []


def test_a_topic_made_anew_between_two_tasks_is_told_by_the_driver(stream: Stream) -> None:
    first = stream.task(0, iter([column_of("a")]))
    stream.make_anew()
    second = stream.task(1, iter([column_of("b")]))
    with pytest.raises(CouldNotCommit, match=f"{stream.topic} {AGAIN} .* start the query again"):
        stream.commit(first, second)
    assert stream.open_members() == []
    assert stream.node.committed(stream.topic) == []
    stream.commit(stream.task(0, iter([column_of("a")])), stream.task(1, iter([column_of("b")])))
    assert stream.node.committed(stream.topic) == ["a", "b"]


def test_a_topic_made_anew_after_all_tasks_is_told_by_the_driver(stream: Stream) -> None:
    told = stream.task(0, iter([column_of("a")]))
    stream.make_anew()
    with pytest.raises(CouldNotCommit, match=f"{stream.topic} {AGAIN}"):
        stream.commit(told)
    assert stream.open_members() == []


def test_a_topic_that_is_gone_when_its_batch_is_to_be_committed_is_told(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written_topics, "GONE_S", 0.5)
    told = stream.task(0, iter([column_of("a")]))
    stream.node.delete(stream.topic)
    with pytest.raises(CouldNotCommit, match=f"the topic {stream.topic} was deleted "):
        stream.commit(told)


def test_rows_that_librdkafka_keeps_for_a_topic_that_is_gone_are_not_waited_for(
    fresh: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as a topic may be too new to be known everywhere it says nothing of a row; and it was seen to say nothing for seven
    minutes where it should have done after half a second."""
    monkeypatch.setattr(written_topics, "GONE_S", 0.5)
    monkeypatch.setattr(sink_writer, "CALL_S", 1.0)
    topic, said = fresh("out"), {"kafka.topic.metadata.propagation.max.ms": "300000"}
    with served({"FENCEPOST_AUTO_CREATE_TOPICS_ENABLE": "false"}) as node:
        node.create(topic)
        stream = Stream(node, topic, **said)
        with pytest.raises(CouldNotWrite, match=f"the topic {topic} was deleted while its rows"):
            stream.task(0, deleted_between(stream))
        assert stream.open_members() == []


def test_a_topic_that_the_brokers_make_for_the_first_row_is_written_to(
    node: Served, fresh: Callable[[str], str]
) -> None:
    stream = Stream(node, fresh("unmade"))
    stream.commit(stream.task(0, iter([column_of("a"), column_of("b")])))
    assert node.committed(stream.topic) == ["a", "b"]


def test_each_topic_that_rows_name_is_looked_at(node: Served, fresh: Callable[[str], str]) -> None:
    one, other = fresh("one"), fresh("other")
    stream = Stream(node, None)
    rows = [pa.record_batch({"value": ["a"], "topic": [each]}) for each in (one, other)]
    told = stream.task(0, iter(rows))
    assert told.topics.keys() == {one, other}
    node.delete(other)
    node.create(other)
    with pytest.raises(CouldNotCommit, match=f"the topic {other} {AGAIN}"):
        stream.commit(told)
    assert node.committed(one) == []


def test_a_batch_that_was_decided_is_over_whatever_became_of_its_topic() -> None:
    """Its driver died before Spark noted it; the topic was made anew after that."""
    table = Table(member(0, epoch=1))
    table.decided[7] = Decision(number=7, outcome="commit", members=(member(0),))
    again = replace(wrote(member(0, epoch=1)), why_not="the topic t was deleted")
    assert not commit(table, again, table.fence)
    table = Table(member(0))
    with pytest.raises(CouldNotCommit, match=r"batch 7 of .* the topic t was deleted"):
        commit(table, replace(wrote(member(0)), why_not="the topic t was deleted"), table.fence)
    assert (table.open, table.decided) == ({}, {})
