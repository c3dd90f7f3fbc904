"""The sink's tasks and its driver against a real node, without Spark in between: what goes wrong between them."""

import time
from collections.abc import Callable, Sequence

import pytest
from fencepost.clients.spark import fencing
from fencepost.clients.spark.commit_refusals import Wrote
from fencepost.clients.spark.option_table import STREAM_SINK
from fencepost.clients.spark.options import write_options
from fencepost.clients.spark.sink_commit import CouldNotCommit, abort, commit
from fencepost.clients.spark.sink_names import Place, Task, place_in_stream
from fencepost.clients.spark.sink_writer import CouldNotWrite, MemberWriter
from fencepost.clients.spark.writers import _write
from fencepost.clients.transactional import AdminApi, MemberWrote, TransactionGroup
from spark_topics import Served, column_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
QUERY = "a-query"
END_S = 30.0


class Sink:
    """One query's sink: its tasks, and its driver."""

    def __init__(self, node: Served, topic: str) -> None:
        self.node, self.topic = node, topic
        self.group = TransactionGroup(f"spark-{topic}", AdminApi(node.admin_url))

    def place(self, partition: int, batch: int, attempt: int = 0) -> Place:
        return place_in_stream(Task(partition, attempt, QUERY, batch), self.group.name, self.topic)

    def write(self, place: Place, text: str, **config: str) -> tuple[MemberWriter, MemberWrote]:
        client = {name.replace("_", "."): value for name, value in config.items()}
        writer = MemberWriter(self.node.bootstrap, f"{place.group}::{place.member}", client)
        writer.begin()
        writer.write(column_of(text), self.topic)
        return writer, MemberWrote(place.member, *writer.written())

    def commit(self, batch: int, *members: MemberWrote) -> bool:
        wrote = Wrote(batch, self.place(0, 0).owner, members, is_batch_id=True)
        return commit(self.group, wrote, self._fence)

    def abort(self, batch: int, *members: MemberWrote) -> None:
        """As Spark has it after a commit that raised."""
        wrote = Wrote(batch, self.place(0, 0).owner, members, is_batch_id=True)
        abort(self.group, wrote, self._fence)

    def _fence(self, group: str, members: Sequence[str]) -> None:
        fencing.fence(self.node.bootstrap, {}, group, members)

    def until_ended(self, member: str) -> None:
        deadline = time.monotonic() + END_S
        while member in self.group.open_members():
            assert time.monotonic() < deadline, f"{member} stays open"
            time.sleep(0.05)


@pytest.fixture
def sink(node: Served, topic: str) -> Sink:
    return Sink(node, topic)


def test_a_lost_attempt_does_not_hold_up_readers(sink: Sink) -> None:
    _, lost = sink.write(sink.place(0, 1, attempt=1), "copy")
    _, won = sink.write(sink.place(0, 1), "row")
    assert sink.commit(1, won)
    assert lost.member not in sink.group.open_members()
    assert sink.node.committed(sink.topic) == ["row"]


def test_an_attempt_that_comes_after_the_decision_leaves_nothing_open(sink: Sink) -> None:
    """Nobody would end it: its batch was the query's last one, and the driver has looked already."""
    _, won = sink.write(sink.place(0, 1, attempt=1), "row")
    assert sink.commit(1, won)
    late = sink.place(0, 1)
    said = {**sink.node.writing, "topic": sink.topic}
    wrote = _write(write_options(said, STREAM_SINK), late, iter([column_of("row", "another")]))
    assert (wrote.producer_id, wrote.found_decided) == (-1, True)
    assert late.member not in sink.group.open_members()
    assert sink.node.committed(sink.topic) == ["row"]


def test_a_batch_written_again_by_a_new_driver_is_there_once(sink: Sink) -> None:
    _, first = sink.write(sink.place(0, 1), "row")
    assert sink.commit(1, first)
    _, again = sink.write(sink.place(0, 1), "row")
    assert not sink.commit(1, again)
    assert sink.node.committed(sink.topic) == ["row"]


def test_a_batch_below_the_last_one_is_refused_by_what_the_cluster_remembers(sink: Sink) -> None:
    """A checkpoint was put back: batch 1 is planned anew, and has other rows."""
    for batch, text in ((1, "one"), (2, "two")):
        assert sink.commit(batch, sink.write(sink.place(0, batch), text)[1])
    _, again = sink.write(sink.place(0, 1), "new rows")
    with pytest.raises(CouldNotCommit, match="was committed before, and so was 2"):
        sink.commit(1, again)
    assert again.member not in sink.group.open_members()
    assert sink.node.committed(sink.topic) == ["one", "two"]


def test_the_older_run_of_a_query_is_fenced_and_says_so(sink: Sink) -> None:
    older, wrote = sink.write(sink.place(0, 1), "older")
    _, newer = sink.write(sink.place(0, 1), "newer")
    with pytest.raises(CouldNotCommit, match="another run of this query has begun"):
        sink.commit(1, wrote)
    with pytest.raises(CouldNotWrite, match="Another run of this query"):
        older.write(column_of("more"), sink.topic)
        older.written()
    sink.abort(1, wrote)
    assert sink.commit(1, newer)
    assert sink.node.committed(sink.topic) == ["newer"]


def test_a_batch_that_took_too_long_is_not_committed_and_can_be_run_again(sink: Sink) -> None:
    _, late = sink.write(sink.place(0, 1), "late", transaction_timeout_ms="1000")
    sink.until_ended(late.member)
    with pytest.raises(CouldNotCommit, match=r"took longer than kafka\.transaction\.timeout\.ms"):
        sink.commit(1, late)
    assert sink.node.committed(sink.topic) == []
    _, again = sink.write(sink.place(0, 1), "again")
    assert sink.commit(1, again)
    assert sink.node.committed(sink.topic) == ["again"]


def test_a_task_that_fails_ends_its_transaction_itself(
    sink: Sink, fresh: Callable[[str], str]
) -> None:
    writer, wrote = sink.write(sink.place(0, 1), "row")
    writer.give_up()
    assert wrote.member not in sink.group.open_members()
    assert sink.node.committed(sink.topic) == []
