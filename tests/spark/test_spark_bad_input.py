"""What users run into, on a real node and without Spark in between: each ends in a sentence, and nothing half is left."""

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from fencepost.clients.spark import cluster, range_reader
from fencepost.clients.spark.cluster import Cluster, WrongTopic
from fencepost.clients.spark.data_loss import DataLoss
from fencepost.clients.spark.offsets import Range
from fencepost.clients.spark.option_table import BATCH, STREAM, STREAM_SINK
from fencepost.clients.spark.options import read_options, write_options
from fencepost.clients.spark.range_reader import read_range
from fencepost.clients.spark.reading import OffsetOutOfRange, StreamPlan, batch_ranges
from fencepost.clients.spark.sink_names import Place, Task, place_in_stream
from fencepost.clients.spark.sink_writer import CouldNotWrite
from fencepost.clients.spark.writers import _write
from fencepost.clients.transactional import AdminApi, TransactionGroup, asking_others
from spark_topics import Served, column_of, served

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(autouse=True)
def nobody_waits_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what is gone, which one broker alone might not have heard of."""
    monkeypatch.setattr(asking_others, "GONE_S", 0.2)
    monkeypatch.setattr(asking_others, "ASKED_MIN", 2)
    monkeypatch.setattr(cluster, "LOOKS_MIN", 1)


def plan(node: Served, topic: str, **said: str) -> StreamPlan:
    given = {**node.reading, "subscribe": topic, "startingoffsets": "earliest", **said}
    options = read_options(given, STREAM)
    return StreamPlan(Cluster(options), options)


def test_a_topic_that_vanished_under_a_query_is_named(node: Served, topic: str) -> None:
    node.write(topic, ["a", "b"])
    stream = plan(node, topic)
    start = stream.initial()
    node.delete(topic)
    with pytest.raises(WrongTopic, match=f"there is no topic {topic} in the cluster at .* create"):
        stream.next_end(start, None)


def test_a_topic_that_vanished_under_a_pattern_is_lost_data(node: Served, topic: str) -> None:
    node.write(topic, ["a", "b"])
    given = {**node.reading, "subscribepattern": f"{topic}|other", "startingoffsets": "earliest"}
    options = read_options(given, STREAM)
    stream = StreamPlan(Cluster(options), options)
    end = stream.next_end(stream.initial(), None)
    node.delete(topic)
    with pytest.raises(DataLoss, match=f"{topic}-0 was read up to 2 and is not there any more"):
        stream.next_end(end, None)


def test_a_topic_that_vanished_under_a_task_is_named(node: Served, topic: str) -> None:
    node.write(topic, ["a", "b"])
    node.delete(topic)
    client = {"bootstrap.servers": node.bootstrap, "topic.metadata.propagation.max.ms": "500"}
    wanted = Range(topic, 0, 0, 2)
    with pytest.raises(DataLoss, match=r"\[0,2\): its topic or partition is not there any more"):
        list(read_range(wanted, client, headers=False, fail_on_data_loss=True))
    assert list(read_range(wanted, client, headers=False, fail_on_data_loss=False)) == []


def test_records_that_aged_out_under_a_task_fail_it_or_are_left_out(
    node: Served, topic: str
) -> None:
    node.write(topic, list("abcdef"))
    node.delete_records(topic, 4)
    client = {"bootstrap.servers": node.bootstrap}
    wanted = Range(topic, 0, 1, 6)
    with pytest.raises(DataLoss, match=r"\[1,6\): the partition begins at 4 now"):
        list(read_range(wanted, client, headers=False, fail_on_data_loss=True))
    left = read_range(wanted, client, headers=False, fail_on_data_loss=False)
    assert [row for batch in left for row in batch.column("value").to_pylist()] == [b"e", b"f"]


def test_a_topic_that_was_made_anew_is_told_by_a_task(node: Served, topic: str) -> None:
    node.write(topic, ["a"])
    wanted = Range(topic, 0, 5, 9)
    client = {"bootstrap.servers": node.bootstrap}
    with pytest.raises(DataLoss, match="ends at 1 now; was the topic deleted and created again"):
        list(read_range(wanted, client, headers=False, fail_on_data_loss=True))


def test_a_range_that_a_topic_made_anew_does_not_reach_is_told_and_can_be_left(
    node: Served, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planned before it was deleted. Its beginning is there, so no offset is out of range."""
    monkeypatch.setattr(range_reader, "SHORT_S", 0.5, raising=False)
    monkeypatch.setattr(range_reader, "SILENT_S", 5.0)
    node.write(topic, ["a", "b"])
    wanted = Range(topic, 0, 0, 9)
    client = {"bootstrap.servers": node.bootstrap}
    with pytest.raises(DataLoss, match=r"\[0,9\): the partition ends at 2 now; was the topic"):
        list(read_range(wanted, client, headers=False, fail_on_data_loss=True))
    left = read_range(wanted, client, headers=False, fail_on_data_loss=False)
    assert [row for batch in left for row in batch.column("value").to_pylist()] == [b"a", b"b"]


def test_a_task_that_waits_for_a_leader_is_not_told_that_its_records_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who can't be asked where it ends is asked again: what was committed is there."""

    class Away:
        asked = asked_up_to = 0

        def watermarks(self, _timeout_s: float) -> tuple[int, int]:
            self.asked += 1
            if self.asked == 1:
                raise KafkaException(KafkaError(KafkaError.OFFSET_NOT_AVAILABLE))
            return 0, 9

    monkeypatch.setattr(range_reader, "PartitionConsumer", lambda *_: Away())
    monkeypatch.setattr(Away, "start", lambda *_: None, raising=False)
    reader = range_reader._RangeReader(Range("t", 0, 0, 9), {}, headers=False, fails=True)
    reader._hear(KafkaError._PARTITION_EOF, 7)
    heard_s = reader._heard_at
    for passed_s in (5.0, 11.0, 12.0, 22.0):
        reader._mind_silence(heard_s + passed_s)
    assert (reader._consumer.asked, reader.is_over) == (2, False)


def test_offsets_that_are_not_there_are_told_before_a_task_waits(node: Served, topic: str) -> None:
    node.write(topic, ["a", "b"])
    asked = f'{{"{topic}":{{"0":9,"1":0}}}}'
    batch = read_options({**node.reading, "subscribe": topic, "endingoffsets": asked}, BATCH)
    with pytest.raises(OffsetOutOfRange, match=r"endingOffsets asks for 9, and .* ends at 2 now"):
        batch_ranges(Cluster(batch), batch)
    with pytest.raises(OffsetOutOfRange, match=r"startingOffsets asks for 9, and .* ends at 2"):
        plan(node, topic, startingoffsets=asked).initial()


class Writes:
    """A task of a stream."""

    def __init__(self, node: Served, topic: str | None, name: str) -> None:
        self.node = node
        said = {} if topic is None else {"topic": topic}
        self.options = write_options({**node.writing, **said}, STREAM_SINK)
        self.place: Place = place_in_stream(Task(0, 0, name, 1), None, "out")

    def write(self, rows: pa.RecordBatch) -> None:
        _write(self.options, self.place, iter([rows]))

    def open_members(self) -> list[str]:
        return list(
            TransactionGroup(self.place.group, AdminApi(self.node.admin_url)).open_members()
        )


@pytest.fixture
def writes(node: Served, topic: str, fresh: Callable[[str], str]) -> Writes:
    return Writes(node, topic, fresh("query"))


def test_a_partition_that_is_not_there_is_named_and_nothing_stays_open(
    node: Served, topic: str, writes: Writes
) -> None:
    rows = pa.record_batch({"value": ["a", "b"], "partition": pa.array([0, 7], pa.int32())})
    with pytest.raises(
        CouldNotWrite, match=f"could not write to {topic}: .* has it this partition"
    ):
        writes.write(rows)
    assert (writes.open_members(), node.committed(topic)) == ([], [])


def test_a_topic_that_vanishes_under_a_sink_is_named_and_nothing_stays_open(
    fresh: Callable[[str], str],
) -> None:
    """Between two of a task's batches of rows, on brokers that make no topics by themselves."""
    topic = fresh("out")
    with served({"FENCEPOST_AUTO_CREATE_TOPICS_ENABLE": "false"}) as node:
        node.create(topic)
        writes = Writes(node, topic, fresh("query"))

        def rows() -> Iterator[pa.RecordBatch]:
            yield column_of("a")
            node.delete(topic)
            yield column_of("b")

        said = {"topic": topic, "kafka.topic.metadata.propagation.max.ms": "500"}
        options = write_options({**node.writing, **said}, STREAM_SINK)
        # Librdkafka says what became of the row, or leaves it in a queue, and the task asks who is there.
        of_row = f"could not write to {topic}: .* Is the topic there, .* Create it"
        of_topic = f"the topic {topic} was deleted while its rows were written"
        with pytest.raises(CouldNotWrite, match=f"{of_row}|{of_topic}"):
            _write(options, writes.place, rows())
        assert writes.open_members() == []
        node.create(topic)
        assert node.committed(topic) == []


def test_a_value_over_the_topic_s_limit_is_told_and_nothing_stays_open(
    node: Served, fresh: Callable[[str], str]
) -> None:
    strict = fresh("strict")
    node.create(strict, partitions=2, max_message_bytes="500")
    writes = Writes(node, strict, fresh("query"))
    with pytest.raises(
        CouldNotWrite, match=r"takes 500 .*: raise max.message.bytes of the topic, or"
    ):
        writes.write(column_of("fits", "".join(map(chr, range(40, 2_000)))))
    assert (writes.open_members(), node.committed(strict)) == ([], [])


def test_a_row_without_a_topic_is_told(node: Served, fresh: Callable[[str], str]) -> None:
    writes = Writes(node, None, fresh("query"))
    rows = pa.record_batch({"value": ["a"], "topic": pa.array([None], pa.string())})
    with pytest.raises(CouldNotWrite, match="a row has null in the column topic"):
        writes.write(rows)
    assert writes.open_members() == []
