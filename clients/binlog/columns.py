"""What a column is, by its name and its type, whether the binary log or the database's catalogue tells of it.

INVARIANT  a table has the same columns here from both, as long as it is not altered.
PREVENTS   a table that is said to have changed because a snapshot and a stream call it by different names.
PROVED BY  tests/binlog/test_binlog_mariadb.py::test_a_snapshot_and_the_stream_give_the_same_row_for_every_type
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

INTEGERS: Final = ("tinyint", "smallint", "mediumint", "int", "bigint")
NUMBERS: Final = (*INTEGERS, "decimal", "float", "double")
SHORT_YEAR: Final = "year(2)"  # a SELECT shows two digits of it, the log has all four
FRACTIONS: Final = ("time", "datetime", "timestamp")  # they have up to six digits of a second
# As the catalogue has them -> as they are called here: what differs in size alone is one type.
ONE_NAME: Final[Mapping[str, str]] = {
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), "text"),
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob"), "blob"),
    **dict.fromkeys(
        (
            *("point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
            *("geometrycollection", "geomcollection", "geometry"),
        ),
        "geometry",
    ),
}
TEXTS: Final = ("char", "varchar", "text")
BYTES: Final = ("binary", "varbinary", "blob", "geometry")
ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
LETTERS: Final[Mapping[str, str]] = {"n": "\n", "r": "\r", "0": "\0"}  # append_unescaped's
COMPRESSED: Final = "/*M!100301 COMPRESSED*/"  # as MariaDB's catalogue has it behind a type
KNOWN: Final = frozenset(
    (
        *INTEGERS,
        *FRACTIONS,
        *TEXTS,
        *BYTES,
        *("float", "double", "decimal", "year", "date", "bit", "enum", "set", "json"),
    )
)


class UnknownType(ValueError):
    """A type that is not followed: the column, its type, and what to do."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str  # one of KNOWN
    unsigned: bool = False
    precision: int = 0  # digits of a decimal, bits of a bit
    scale: int = 0  # digits behind the point: of a decimal, of a second
    values: tuple[str, ...] = ()  # of an enum or a set

    def as_json(self) -> dict[str, Any]:
        """As the schema topic has it: no field that says nothing."""
        told: dict[str, Any] = {"name": self.name, "type": self.type}
        if self.unsigned:
            told["unsigned"] = True
        if self.type == "decimal":
            told |= {"precision": self.precision, "scale": self.scale}
        if self.type == "bit":
            told["bits"] = self.precision
        if self.type in FRACTIONS:
            told["fraction"] = self.scale
        if self.values:
            told["values"] = list(self.values)
        return told


@dataclass(frozen=True, slots=True)
class Table:
    schema: str
    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]  # names, in the key's order

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": self.schema,
            "table": self.name,
            "columns": [each.as_json() for each in self.columns],
            "primary_key": list(self.primary_key),
        }


def key_form(told: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """What a table's keys look like as JSON, of the table as `as_json` has it: where it is the same, a row has the same key."""
    columns = {each["name"]: each for each in told["columns"]}
    return [(name, *_form(columns[name])) for name in told["primary_key"]]


def _form(column: Mapping[str, Any]) -> tuple[Any, ...]:
    kind = column["type"]
    if kind in (*INTEGERS, "year", "bit"):
        return ("a number",)
    if kind in (*TEXTS, "enum"):
        return ("text",)
    if kind in BYTES:
        return ("base64",)
    return kind, column.get("scale"), column.get("fraction"), tuple(column.get("values", ()))


def column_of_catalogue(row: Mapping[str, Any]) -> Column:
    """A row of `information_schema.columns`, its names in lower case."""
    kind = str(row["data_type"]).lower()
    full = str(row["column_type"])
    kind = ONE_NAME.get(kind, kind)
    if kind not in KNOWN or full.lower() == SHORT_YEAR:
        raise UnknownType(
            f"{row['table_schema']}.{row['table_name']}: column {row['column_name']} has the type {full}, which is not "
            "followed; leave the table out with --tables, or give the column another type"
        )
    if COMPRESSED in full:
        table = f"{row['table_schema']}.{row['table_name']}"
        raise UnknownType(refused_compressed(table, str(row["column_name"])))
    precision = scale = 0
    if kind in ("decimal", "bit"):
        precision = int(row["numeric_precision"] or 0)
        scale = int(row["numeric_scale"] or 0)
    if kind in FRACTIONS:
        scale = int(row["datetime_precision"] or 0)
    return Column(
        name=str(row["column_name"]),
        type=kind,
        unsigned="unsigned" in full.lower() and kind in NUMBERS,
        precision=precision,
        scale=scale,
        values=_values_of(full) if kind in ("enum", "set") else (),
    )


def refused_compressed(table: str, column: str) -> str:
    return (
        f"{table}: column {column} is compressed, which is not followed; leave the table out with --tables, or give the column its "
        "type without COMPRESSED, then start with --resnapshot"
    )


def _values_of(text: str) -> tuple[str, ...]:
    """`enum('a','it''s')` -> a, it's. A backslash is said twice, and some characters by a letter behind one, whatever the sql_mode is."""
    inside = text[text.index("(") + 1 : text.rindex(")")]
    found, at = [], 0
    while at < len(inside):
        assert inside[at] == "'", f"a value of {text} does not begin with a quote"
        value, at = "", at + 1
        while True:
            end = inside.index("'", at)
            value, at = value + inside[at:end], end + 1
            if inside[at : at + 1] != "'":
                break
            value, at = value + "'", at + 1
        found.append(ESCAPED.sub(lambda each: LETTERS.get(each[1], each[1]), value))
        at += 1  # the comma
    return tuple(found)
