"""`spark.read.format("fencepost")` and its kin: what Spark makes of the format's name."""

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from . import option_table, schemas
from .batch_size import fitted
from .options import TASK, WriteOptions, read_options, write_options
from .readers import BatchReader, StreamReader
from .task_decisions import say_what_is_promised
from .writers import BatchWriter, StreamWriter

NAME = "fencepost"


class FencepostDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        """Only `includeHeaders` changes it; the other options are checked where they are used."""
        wanted = str(self.options.get("includeheaders", "false")).strip().lower()
        return schemas.read_ddl(headers=wanted == "true")

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options, option_table.BATCH)
        schemas.check_read(schema, headers=options.include_headers)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        options = read_options(self.options, option_table.STREAM)
        schemas.check_read(schema, headers=options.include_headers)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = write_options(self.options, option_table.BATCH_SINK)
        self._check_write(schema, options.topic, overwrite)
        return BatchWriter(_begun(options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        options = write_options(self.options, option_table.STREAM_SINK)
        self._check_write(schema, options.topic, overwrite)
        return StreamWriter(_begun(options))

    def _check_write(self, schema: Any, topic: str | None, overwrite: bool) -> None:
        if overwrite:
            raise ValueError(
                "a topic can't be overwritten: use mode('append'), or outputMode('append')"
            )
        schemas.check_write(schema, topic)


def _begun(options: WriteOptions) -> WriteOptions:
    """All is checked; nothing is written yet."""
    if options.transactions == TASK:
        say_what_is_promised(options.topic, options.group)
    return fitted(options)
