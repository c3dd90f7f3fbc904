"""Rows that ended, and rows that were cut off, through a socket as Spark's worker has it."""

import os
import socket
import types
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from fencepost.clients.spark import input_end, writers
from fencepost.clients.spark.c_producer import Identity
from fencepost.clients.spark.option_table import BATCH_SINK
from fencepost.clients.spark.options import write_options
from fencepost.clients.spark.sink_names import Task, place_in_batch
from fencepost.clients.spark.sink_writer import CouldNotWrite
from fencepost.clients.spark.written_topics import WrittenTopics
from fencepost.clients.transactional import Decision
from fencepost.clients.transactional.groups import UNDECIDED

END_OF_STREAM = (-4).to_bytes(4, "big", signed=True)


def sent(*, rows: int, is_whole: bool) -> Any:
    """A worker's file, with some batches of rows to be read from it."""
    spark, worker = socket.socketpair()
    schema = pa.schema([("value", pa.string())])
    with spark:
        out = spark.makefile("wb")
        stream = pa.ipc.new_stream(out, schema)
        for number in range(rows):
            stream.write_batch(pa.record_batch([[f"row {number}"]], schema=schema))
        if is_whole:
            stream.close()
            out.write(END_OF_STREAM)
        out.flush()
        out.close()
    file = os.fdopen(os.dup(worker.fileno()), "rb", 65536)
    worker.close()
    return file


def read(file: Any) -> int:
    return sum(batch.num_rows for batch in pa.ipc.open_stream(file))


@pytest.mark.parametrize("rows", [1, 50])
@pytest.mark.parametrize("is_whole", [True, False])
def test_rows_that_were_cut_off_are_told_from_rows_that_ended(rows: int, is_whole: bool) -> None:
    with sent(rows=rows, is_whole=is_whole) as file:
        assert read(file) == rows, "pyarrow sees no difference"
        assert input_end.was_cut_off(file) is not is_whole


def worker_of(
    file: Any, name: str = "pyspark.worker", *, check: Callable[[str], Any] = input_end.check_whole
) -> Callable[[], None]:
    """What calls the sink as Spark's worker does: from a `main` that has an `infile`."""
    module = types.ModuleType(name)
    module.check = check
    exec("def main(infile, outfile):\n    check('orders::0')\n", module.__dict__)
    return lambda: module.main(file, None)


def test_a_task_whose_rows_were_cut_off_commits_nothing() -> None:
    with sent(rows=3, is_whole=False) as file:
        read(file)
        with pytest.raises(CouldNotWrite, match=r"orders::0: .* ended in the middle"):
            worker_of(file)()


def test_a_task_whose_rows_ended_goes_on() -> None:
    with sent(rows=3, is_whole=True) as file:
        read(file)
        worker_of(file)()


def test_a_spark_that_does_not_show_its_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    input_end.check_whole("orders::0")  # no task of Spark's
    monkeypatch.setattr(input_end.TaskContext, "get", object)
    with pytest.raises(CouldNotWrite, match="does not show where its rows come from"):
        input_end.check_whole("orders::0")


class Member:
    """A task's writer and its group in one; nothing is decided."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.topics = WrittenTopics({})

    def __call__(self, *_: Any) -> "Member":
        return self

    def decision(self, number: int) -> Decision:
        return Decision(number=number, outcome=UNDECIDED)

    def written(self) -> Identity:
        self.said.append("written")
        return Identity(9, 0)

    def give_up(self) -> None:
        self.said.append("given up")

    def write(self, _rows: Any, _topic: Any) -> None: ...

    def begin(self) -> None: ...

    settle = settle_new = close = begin


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_member_of_a_group_whose_rows_were_cut_off_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch, *, is_whole: bool
) -> None:
    """Its driver has given the batch up, and may not know of it: it would be open for 15 minutes."""
    member = Member()
    monkeypatch.setattr(writers, "MemberWriter", member)
    monkeypatch.setattr(writers, "_group", member)
    said = {"bootstrap.servers": "here", "adminurl": "http://here:1", "topic": "out"}
    options = write_options({**said, "transactiongroup": "g", "transactionnumber": "1"}, BATCH_SINK)
    place = place_in_batch(Task(0, 0, "", None), "g", 1, "uuid", "out")
    with sent(rows=3, is_whole=is_whole) as file:
        task = worker_of(file, check=lambda _: writers._write(options, place, rows_of(file)))
        if is_whole:
            task()
        else:
            with pytest.raises(CouldNotWrite, match="ended in the middle"):
                task()
    assert member.said == ["written" if is_whole else "given up"]


def rows_of(file: Any) -> Iterator[pa.RecordBatch]:
    yield from pa.ipc.open_stream(file)


def test_a_member_goes_on_where_nobody_shows_whether_its_rows_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(input_end.TaskContext, "get", object)
    input_end.check_whole("orders::0", surely=False)
