"""Whether a task's rows came to their end, or were cut off: to the Python of a task both look the same.

INVARIANT  a task that says that it wrote has seen what Spark sends behind the last row; one that commits for itself, surely.
PREVENTS   half of a task's rows committed as all of them, and the other half left out, as decided, when the task is run again;
           a transaction that such a task leaves open for a driver that has given its batch up.
PROVED BY  tests/spark/test_spark_input_end.py::test_rows_that_were_cut_off_are_told_from_rows_that_ended

1. A task's input fails: an exception in a function before the sink, a source that is gone, a JVM that is killed.
2. Spark closes its side of the socket. pyarrow takes the end of the bytes for the end of the stream.
3. The sink's iterator ends as it always does.
Behind the rows of a stream that ended Spark sends its own end mark, and that is what is looked for: the file that Spark's worker
reads from stands in the frame of its `main`.
"""

import sys
from types import FrameType
from typing import Any, Final

from pyspark import TaskContext
from pyspark import __version__ as pyspark_version

from .sink_writer import CouldNotWrite

WORKER: Final = ("pyspark.worker", "__main__")  # as the daemon's child, and as a process of its own
MAIN, INPUT = "main", "infile"


def check_whole(what: str, *, surely: bool = True) -> None:
    """After the last row. `CouldNotWrite` when more should have come; when nobody can tell, too, if it must be sure. Where a driver
    decides it need not: Spark does not report a task to it as done whose rows were cut off."""
    file = _input_of(sys._getframe())
    if file is None:
        if not surely or TaskContext.get() is None:
            return  # or the rows are no Spark's
        raise CouldNotWrite(
            f"{what}: this PySpark ({pyspark_version}) does not show where its rows come from, so that rows which ended can't be told "
            "from rows that were cut off. Nothing of this task was committed. Use a PySpark that the extra fencepost[spark] "
            "takes, or brokers that have transaction groups (transactions=group)"
        )
    if was_cut_off(file):
        raise CouldNotWrite(
            f"{what}: the task's rows ended in the middle: what made them failed, or its executor died. Nothing of this task was "
            "committed; Spark tries it again"
        )


def was_cut_off(file: Any) -> bool:
    """Whether nothing stands behind what was read. Waits until something does, or nothing ever will."""
    try:
        return not file.peek(1)
    except OSError:
        return True


def _input_of(frame: FrameType | None) -> Any:
    while frame is not None:
        if frame.f_code.co_name == MAIN and frame.f_globals.get("__name__") in WORKER:
            found = frame.f_locals.get(INPUT)
            return found if hasattr(found, "peek") else None
        frame = frame.f_back
    return None
