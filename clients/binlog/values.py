"""A column's value as JSON has it, from the text that a SELECT gives. `row_images.py` has the binary log's side.

INVARIANT  nothing is rounded and nothing is guessed: a decimal stays text, an instant says that it is UTC, bytes are base64.
PREVENTS   a price that is a cent off, a date that moves with somebody's time zone.
PROVED BY  tests/binlog/test_binlog_values.py::test_every_type_has_one_form

| type | JSON |
| --- | --- |
| integers, year, bit | a number |
| decimal | text, with all its digits: `"12.50"` |
| float, double | a number, the shortest that is the same |
| char, varchar, text, enum, json | text; of an enum the value, not its number |
| set | text, with commas, as in SQL |
| binary, varbinary, blob, geometry | base64 (of a geometry what SQL gives: SRID, then WKB) |
| date, time | text: `"2026-11-21"`, `"-26:00:01.50"` |
| datetime | text, of no time zone: `"2026-11-21T16:20:00.000"` |
| timestamp | text, in UTC: `"2026-11-21T16:20:00Z"` |
| a date that is none | as SQL has it: `"0000-00-00"` |
"""

import base64
import struct
from collections.abc import Callable
from typing import Final

from .columns import BYTES, INTEGERS, TEXTS, Column

Value = str | int | float | None
FLOAT32_DIGITS: Final = range(6, 10)  # six are always kept, nine are always enough (IEEE 754)


def shortest_float32(value: float) -> float:
    """The shortest decimal that is this single-precision number: 1.1, not 1.100000023841858."""
    packed = struct.pack("<f", value)
    for digits in FLOAT32_DIGITS:
        short = float(f"{value:.{digits}g}")
        try:
            if struct.pack("<f", short) == packed:
                return short
        except OverflowError:  # the largest numbers, rounded up
            continue
    raise AssertionError(f"{value!r} is no single-precision number")


def in_base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _bits(value: bytes) -> int:
    return int.from_bytes(value, "big")


def plain_decimal(text: str) -> str:
    """Without the zeros that ZEROFILL puts in front."""
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    whole, point, fraction = digits.partition(".")
    return sign + (whole.lstrip("0") or "0") + point + fraction


def _datetime(value: bytes) -> str:
    return value.decode().replace(" ", "T")


def _timestamp(value: bytes) -> str:
    """The session's time zone is UTC."""
    return f"{_datetime(value)}Z"


def from_select(column: Column) -> Callable[[bytes], Value]:
    """For the bytes of the text protocol; `selected` says how the column is to be asked for."""
    if column.type in INTEGERS or column.type == "year":
        return int
    if column.type in (*TEXTS, "enum", "set", "json", "date", "time"):
        return bytes.decode
    if column.type in BYTES:
        return in_base64
    special: dict[str, Callable[[bytes], Value]] = {
        "bit": _bits,
        "decimal": lambda text: plain_decimal(text.decode()),
        "float": lambda text: shortest_float32(float(text)),
        "double": float,
        "datetime": _datetime,
        "timestamp": _timestamp,
    }
    return special[column.type]


def selected(column: Column) -> str:
    """A FLOAT is shown with six digits: as a double it has all."""
    name = quoted(column.name)
    return f"{name} + 0e0" if column.type == "float" else name


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
