"""What Spark calls to write, with the group and the decision records as tables."""

from typing import Any

import pyarrow as pa
import pytest
from fencepost.clients.spark import writers
from fencepost.clients.spark.option_table import BATCH_SINK
from fencepost.clients.spark.options import WriteOptions, write_options
from fencepost.clients.spark.sink_names import (
    JOB,
    Place,
    Task,
    owner_of_query,
    place_in_batch,
    place_in_stream,
)
from fencepost.clients.spark.sink_writer import CouldNotWrite, _by_topic
from fencepost.clients.spark.task_decisions import NOT_YET
from fencepost.clients.spark.writers import BatchWriter, TaskWrote
from spark_topics import column_of

QUERY = "7b0c…-mine"
NO_QUERY = Task(0, 0, "", None)


def options(number: int, **said: str) -> WriteOptions:
    given = {"bootstrap.servers": "here", "topic": "out", "transactiongroup": "night"}
    return write_options({**given, "transactionnumber": str(number), **said}, BATCH_SINK)


def in_batch(number: int, task: Task = NO_QUERY) -> Place:
    return place_in_batch(task, "night", number, "uuid")


class Alone:
    """A task that commits for itself, its writer and its records in one; `last` is the number that it wrote before."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.records = 0
        self.said: list[str] = []

    def committed_up_to(self) -> int:
        return self.last

    def record(self, number: int) -> dict[str, Any]:
        return {"number": number}

    def write(self, rows: Any, topic: str | None) -> None:
        self.said.append("write")

    def commit_with(self, record: dict[str, Any]) -> None:
        self.said.append(f"commit {record['number']}")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    def one(last: int, place: Place) -> list[str]:
        alone: Any = Alone(last)
        monkeypatch.setattr(writers, "DecisionRecords", lambda *_: alone)
        chosen = options(place.number, transactions="task")
        rows = iter([column_of("row")])
        writers._alone(alone, f"night::{place.task}", chosen, place, rows)
        return alone.said

    return one


def test_a_number_that_was_written_last_is_left_out_and_a_higher_one_is_not(run: Any) -> None:
    assert run(NOT_YET, in_batch(20)) == ["write", "commit 20"]
    assert run(20, in_batch(20)) == []
    assert run(20, in_batch(21)) == ["write", "commit 21"]


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
    [place_in_stream(Task(0, 0, QUERY, 20), "night"), in_batch(20, Task(0, 0, QUERY, 20))],
    ids=["stream", "foreachBatch"],
)
def test_a_batch_below_the_last_one_is_left_out(run: Any, place: Place) -> None:
    """Spark runs it again from a checkpoint that was put back: it was there before 21."""
    assert run(21, place) == []


def test_the_option_topic_is_for_all_rows_and_without_it_each_says_its_own() -> None:
    """As Spark's Kafka connector has it: a row's own topic does not count beside the option."""
    rows = pa.record_batch({"value": ["a", "b", "c"], "topic": ["own", "other", "own"]})
    assert list(_by_topic(rows, "out")) == [("out", None)]
    found = [(name, numbers.to_pylist()) for name, numbers in _by_topic(rows, None)]
    assert found == [("own", [0, 2]), ("other", [1])]


class Group:
    """Tells who is ended, and for whom."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.owners: list[str | None] = []
        self.members: list[list[str]] = []
        monkeypatch.setattr(writers.sink_commit, "abort", self.abort)

    def abort(self, group: Any, owner: str | None, members: list[str], *_: Any, last: Any) -> None:
        assert (group.name, last) == ("night", None)
        self.owners.append(owner)
        self.members.append(members)


def test_an_abort_in_foreach_batch_ends_what_the_query_left_open(monkeypatch: Any) -> None:
    group = Group(monkeypatch)
    writer = BatchWriter(options(0, adminurl="http://here:1"))
    place = in_batch(0, Task(0, 0, QUERY, 0))
    writer.abort([TaskWrote(place, 9, 0, 1), None])
    writer.abort([None, None])
    assert group.owners == [owner_of_query(QUERY), None]
    assert group.members == [[place.member], []]
    assert JOB not in group.owners
