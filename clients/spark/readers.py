"""What Spark calls to read: thin shells around `reading.py` and `range_reader.py`."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from .cluster import Cluster
from .offsets import Range
from .options import ReadOptions
from .range_reader import read_range
from .reading import StreamPlan, batch_ranges


class RangePartition(InputPartition):
    """One task's range."""

    def __init__(self, wanted: Range) -> None:
        super().__init__(wanted)


NOTHING = Range("", 0, 0, 0)


def _read(partition: Any, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    wanted: Range = partition.value
    if wanted.size <= 0:
        return iter(())
    return read_range(
        wanted,
        options.client,
        headers=options.include_headers,
        fail_on_data_loss=options.fail_on_data_loss,
    )


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        ranges = batch_ranges(Cluster(self._options), self._options)
        # An empty list would be one task that knows nothing.
        return [RangePartition(each) for each in ranges or [NOTHING]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._options)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One of it plans, in a process of the driver; copies of it read, in the tasks."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._made: StreamPlan | None = None

    @property
    def _plan(self) -> StreamPlan:
        if self._made is None:
            self._made = StreamPlan(Cluster(self._options), self._options)
        return self._made

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self._plan.start()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Another one than `Trigger.Once` has, which is told to read all: a run of one batch can't wait."""
        most, least = self._options.offsets_max, self._options.offsets_min
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._plan.next_end(start, most, waits=not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return self._plan.newest()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._plan.stop_at_what_is_there()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [RangePartition(each) for each in self._plan.ranges(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Positions are in Spark's checkpoint, and nowhere else."""

    def stop(self) -> None:
        self._made = None
