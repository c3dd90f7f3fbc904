"""Rows that ended, and rows that were cut off, through a socket as Spark's worker has it."""

import os
import socket
import types
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from fencepost.clients.spark import input_end
from fencepost.clients.spark.sink_writer import CouldNotWrite

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


def worker_of(file: Any, name: str = "pyspark.worker") -> Callable[[], None]:
    """What calls the sink as Spark's worker does: from a `main` that has an `infile`."""
    module = types.ModuleType(name)
    module.check = input_end.check_whole
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
