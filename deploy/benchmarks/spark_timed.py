"""What runs in Python processes of Spark: the data source that notes how long commits take, and who counts rows."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from fencepost.clients.spark.source import FencepostDataSource
from fencepost.clients.spark.writers import Driver, StreamWriter

OPTION: Final = "times"
TIMES: Final = "commits.ms"


def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    number = sum(each.num_rows for each in batches)
    yield pa.RecordBatch.from_arrays([pa.array([number], pa.int64())], names=["n"])


class _TimedDriver(Driver):
    times = ""

    def commit(self, messages: Sequence[Any], number: int | None) -> None:
        began = time.perf_counter()
        super().commit(messages, number)
        took_ms = (time.perf_counter() - began) * 1000
        with Path(self.times).open("a") as file:
            file.write(f"{took_ms:.2f}\n")


class _TimedWriter(StreamWriter):
    times = ""

    def driver(self) -> Driver:
        driver = _TimedDriver(self._options)
        driver.times = self.times
        return driver


class TimedDataSource(FencepostDataSource):
    """`.option("times", FILE)`."""

    def __init__(self, options: Any) -> None:
        super().__init__({key: options[key] for key in options if key != OPTION})
        self.times = str(options.get(OPTION, ""))

    @classmethod
    def name(cls) -> str:
        return "fencepost-timed"

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
        plain = super().streamWriter(schema, overwrite)
        assert isinstance(plain, StreamWriter)
        writer = _TimedWriter(plain._options)
        writer.times = self.times
        return writer
