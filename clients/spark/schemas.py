"""Columns: those that users of Spark's Kafka connector know, as Spark and as Arrow call them."""

from typing import Any, Final

import pyarrow as pa

READ_DDL: Final = (
    # TIMESTAMP alone is what spark.sql.timestampType says.
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP_LTZ, "
    "timestampType INT"
)
HEADERS_DDL: Final = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
READ_FIELDS: Final = (
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
    ("timestampType", pa.int32()),
)
# As Spark calls their types, and that of the headers behind them.
READ_TYPES: Final = (
    *("binary", "binary", "string", "int", "bigint", "timestamp", "int"),
    "array<struct<key:string,value:binary>>",
)

# What may be written: the column, the types it may have (in Spark's short words), whether it must be there.
TEXT_OR_BYTES: Final = ("string", "binary")
WRITE_COLUMNS: Final = {
    "key": TEXT_OR_BYTES,
    "value": TEXT_OR_BYTES,
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


class WrongSchema(ValueError):
    """Which column, what it is, and what it may be."""


def read_ddl(*, headers: bool) -> str:
    return f"{READ_DDL}, {HEADERS_DDL}" if headers else READ_DDL


def arrow_schema(*, headers: bool) -> pa.Schema:
    return pa.schema([*READ_FIELDS, *([("headers", HEADERS)] if headers else [])])


def check_read(schema: Any, *, headers: bool) -> None:
    """A schema of the user's own must be ours."""
    ours = arrow_schema(headers=headers).names
    if list(schema.fieldNames()) != ours:
        raise WrongSchema(
            f"the columns are {', '.join(ours)}, in this order; they can't be chosen with schema(): select what you need. "
            f"It asked for {', '.join(schema.fieldNames())}."
        )
    for column, kind in zip(schema.fields, READ_TYPES, strict=False):
        asked = column.dataType.simpleString()
        if asked != kind:
            raise WrongSchema(
                f"the column {column.name} is {kind}, and schema() asked for {asked}: cast it with select"
            )
        if _has_no_nulls(column):
            where = f"{'a part of ' if column.nullable else ''}{column.name}"
            raise WrongSchema(
                f"schema() asked for {where} as NOT NULL, and each column may be null for Spark: leave NOT NULL out"
            )


def _has_no_nulls(column: Any) -> bool:
    return not column.nullable or _holds_no_nulls(column.dataType)


def _holds_no_nulls(kind: Any) -> bool:
    """Somewhere in a value of this type, as in the headers."""
    if kind.typeName() == "array":
        return not kind.containsNull or _holds_no_nulls(kind.elementType)
    return kind.typeName() == "struct" and any(_has_no_nulls(each) for each in kind.fields)


def check_write(schema: Any, topic: str | None) -> None:
    columns = [(each.name, each.dataType.simpleString()) for each in schema.fields]
    choices = ", ".join(f"{name} ({' or '.join(WRITE_COLUMNS[name])})" for name in WRITE_COLUMNS)
    for name, kind in columns:
        allowed = WRITE_COLUMNS.get(name)
        if allowed is None:
            raise WrongSchema(f"there is no place for a column {name}: there are {choices}")
        if kind not in allowed:
            raise WrongSchema(
                f"the column {name} is {kind} and must be {' or '.join(allowed)}: cast it"
            )
    names = [name for name, _ in columns]
    if "value" not in names:
        raise WrongSchema(f"there is no column value to write: there are {choices}")
    if topic is None and "topic" not in names:
        raise WrongSchema("say the option topic, or give each row its own in a column topic")
