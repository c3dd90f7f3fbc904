"""Rows as the binary log has them, decoded exactly. Pure: bytes in, what JSON can say out.

INVARIANT  a value has the same form as the one that a SELECT gives (`values.py`).
PREVENTS   a consumer that sees 12.5 in the snapshot, and 12.50 in the first change.
PROVED BY  tests/binlog/test_binlog_mariadb.py::test_a_snapshot_and_the_stream_give_the_same_row_for_every_type

The driver's own decoder gives Python's types, which have no 0000-00-00, no -26:00:01.50 that was not rounded, and no
DECIMAL of 65 digits with its zeros. The layouts are MySQL's (`Field::pack`, `decimal2bin`, `my_time.cc`).
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from .charsets import decoded
from .columns import NUMBERS, Column, UnknownType, refused_compressed
from .values import Value, in_base64, shortest_float32

Reader = Callable[[bytes, int], tuple[Value, int]]  # data, where -> value, where the next one is
# Type codes of the binary log (MySQL's field_types.h).
TINY, SHORT, LONG, FLOAT, DOUBLE, LONGLONG, INT24 = 1, 2, 3, 4, 5, 8, 9
DATE, YEAR, VARCHAR, BIT = 10, 13, 15, 16
TIMESTAMP2, DATETIME2, TIME2 = 17, 18, 19
JSON, NEWDECIMAL, ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = (
    245,
    246,
    247,
    248,
    252,
    253,
    254,
    255,
)
BLOB_COMPRESSED, VARCHAR_COMPRESSED = 140, 141  # MariaDB's
OLD_TIMES: Final = {7: "timestamp", 11: "time", 12: "datetime"}
INTEGERS: Final = {
    TINY: ("tinyint", 1),
    SHORT: ("smallint", 2),
    INT24: ("mediumint", 3),
    LONG: ("int", 4),
    LONGLONG: ("bigint", 8),
}
BYTES_OF_DIGITS: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)  # of a decimal's group that is not full
DIGITS: Final = 9  # of a full group, in four bytes
HOURS_BITS, MINUTES_BITS = 12, 6


@dataclass(frozen=True, slots=True)
class Packed:
    """A column as a table map describes it."""

    name: str
    code: int
    unsigned: bool = False
    size: int = 0  # bytes: of a length, of an enum, of a bit; for strings the most there can be
    precision: int = 0
    scale: int = 0
    encoding: str | None = None  # of `decoded`; None for bytes
    values: tuple[str, ...] = ()


def column_of(packed: Packed, table: str) -> Column:
    """What it is called, and what type it has."""
    if packed.code in OLD_TIMES:
        raise UnknownType(
            f"{table}: column {packed.name} is stored in a form of before MariaDB 10.1 and MySQL 5.6, which is not "
            f"followed; say ALTER TABLE {table} FORCE, then start with --resnapshot"
        )
    if packed.code in (BLOB_COMPRESSED, VARCHAR_COMPRESSED):
        raise UnknownType(refused_compressed(table, packed.name))
    kind = _type_of(packed)
    if kind is None:
        raise UnknownType(
            f"{table}: column {packed.name} has the type number {packed.code}, which is not followed; leave the table "
            "out with --tables, or give the column another type"
        )
    return Column(
        name=packed.name,
        type=kind,
        unsigned=packed.unsigned and kind in NUMBERS,
        precision=packed.precision,
        scale=packed.scale,
        values=packed.values,
    )


def _type_of(packed: Packed) -> str | None:
    is_text = packed.encoding is not None
    return {
        **{code: INTEGERS[code][0] for code in INTEGERS},
        FLOAT: "float",
        DOUBLE: "double",
        NEWDECIMAL: "decimal",
        YEAR: "year",
        DATE: "date",
        TIME2: "time",
        DATETIME2: "datetime",
        TIMESTAMP2: "timestamp",
        VARCHAR: "varchar" if is_text else "varbinary",
        VAR_STRING: "varchar" if is_text else "varbinary",
        STRING: "char" if is_text else "binary",
        BLOB: "text" if is_text else "blob",
        ENUM: "enum",
        SET: "set",
        BIT: "bit",
        GEOMETRY: "geometry",
        JSON: "json",
    }.get(packed.code)


def reader_of(packed: Packed, json_of: Callable[[bytes], str]) -> Reader:
    """`json_of` makes text of MySQL's binary JSON."""
    code = packed.code
    if code in INTEGERS:
        return _integer(INTEGERS[code][1], signed=not packed.unsigned)
    if code == NEWDECIMAL:
        return _decimal(packed.precision, packed.scale)
    if code in (TIME2, DATETIME2, TIMESTAMP2):
        return {TIME2: _time, DATETIME2: _datetime, TIMESTAMP2: _timestamp}[code](packed.scale)
    if code in (VARCHAR, VAR_STRING, STRING, BLOB, GEOMETRY, JSON):
        return _string(packed, json_of)
    return {
        FLOAT: _float,
        DOUBLE: _double,
        YEAR: _year,
        DATE: _date,
        ENUM: _enum(packed),
        SET: _set(packed),
        BIT: _bit(packed.size),
    }[code]


def read_row(
    names: Sequence[str], readers: Sequence[Reader], data: bytes, at: int
) -> tuple[dict[str, Value], int]:
    """One image of a row that has all columns: which are NULL, then those that are not."""
    nulls = at
    at += (len(names) + 7) // 8
    row: dict[str, Value] = {}
    for number, name in enumerate(names):
        if data[nulls + number // 8] >> number % 8 & 1:
            row[name] = None
        else:
            row[name], at = readers[number](data, at)
    return row, at


# -- numbers -------------------------------------------------------------------------------------


def _integer(size: int, *, signed: bool) -> Reader:
    def read(data: bytes, at: int) -> tuple[Value, int]:
        end = at + size
        return int.from_bytes(data[at:end], "little", signed=signed), end

    return read


def _float(data: bytes, at: int) -> tuple[Value, int]:
    return shortest_float32(struct.unpack_from("<f", data, at)[0]), at + 4


def _double(data: bytes, at: int) -> tuple[Value, int]:
    value: float = struct.unpack_from("<d", data, at)[0]
    return value, at + 8


def _year(data: bytes, at: int) -> tuple[Value, int]:
    return data[at] and data[at] + 1900, at + 1


def _bit(size: int) -> Reader:
    def read(data: bytes, at: int) -> tuple[Value, int]:
        return int.from_bytes(data[at : at + size], "big"), at + size

    return read


def _decimal(precision: int, scale: int) -> Reader:
    """Groups of nine digits, big-endian, the first bit turned; of a negative number all bits are."""
    whole, whole_rest = divmod(precision - scale, DIGITS)
    parts, parts_rest = divmod(scale, DIGITS)
    groups = [whole_rest] * bool(whole_rest) + [DIGITS] * whole
    fractions = [DIGITS] * parts + [parts_rest] * bool(parts_rest)
    size = sum(BYTES_OF_DIGITS[each] for each in (*groups, *fractions))

    def read(data: bytes, at: int) -> tuple[Value, int]:
        raw = bytearray(data[at : at + size])
        is_negative = not raw[0] & 0x80
        raw[0] ^= 0x80
        if is_negative:
            raw = bytearray(each ^ 0xFF for each in raw)
        place, digits = 0, ""
        for count in (*groups, *fractions):
            end = place + BYTES_OF_DIGITS[count]
            digits += f"{int.from_bytes(raw[place:end], 'big'):0{count}d}"
            place = end
        before = digits[: precision - scale].lstrip("0") or "0"
        after = f".{digits[precision - scale :]}" if scale else ""
        return f"{'-' if is_negative else ''}{before}{after}", at + size

    return read


# -- times ---------------------------------------------------------------------------------------


def _fraction(data: bytes, at: int, scale: int) -> tuple[str, int]:
    """Two digits a byte."""
    size = (scale + 1) // 2
    if not size:
        return "", at
    number = int.from_bytes(data[at : at + size], "big")
    return f".{number:0{2 * size}d}"[: scale + 1], at + size


def _date(data: bytes, at: int) -> tuple[Value, int]:
    number = int.from_bytes(data[at : at + 3], "little")
    return f"{number >> 9:04d}-{number >> 5 & 15:02d}-{number & 31:02d}", at + 3


def _datetime(scale: int) -> Reader:
    def read(data: bytes, at: int) -> tuple[Value, int]:
        number = int.from_bytes(data[at : at + 5], "big") - (1 << 39)
        months, day = divmod(number >> 17, 32)
        clock = number & 0x1FFFF
        fraction, end = _fraction(data, at + 5, scale)
        day_text = f"{months // 13:04d}-{months % 13:02d}-{day:02d}"
        return f"{day_text}T{clock >> 12:02d}:{clock >> 6 & 63:02d}:{clock & 63:02d}{fraction}", end

    return read


def _timestamp(scale: int) -> Reader:
    def read(data: bytes, at: int) -> tuple[Value, int]:
        seconds = int.from_bytes(data[at : at + 4], "big")
        fraction, end = _fraction(data, at + 4, scale)
        if not seconds:  # the first that can be stored is one second past 1970
            return f"0000-00-00T00:00:00{fraction}Z", end
        return f"{_civil(seconds)}{fraction}Z", end

    return read


def _civil(seconds: int) -> str:
    """A second of UTC's calendar (Howard Hinnant's days_from_civil, turned round)."""
    days, clock = divmod(seconds, 86_400)
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (
        day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year = year_of_era + era * 400 + (month <= 2)
    return (
        f"{year:04d}-{month:02d}-{day:02d}"
        f"T{clock // 3600:02d}:{clock // 60 % 60:02d}:{clock % 60:02d}"
    )


def _time(scale: int) -> Reader:
    """Seconds and fraction are one number, which is moved up so that it is never below zero."""
    size = (scale + 1) // 2

    def read(data: bytes, at: int) -> tuple[Value, int]:
        end = at + 3 + size
        number = int.from_bytes(data[at:end], "big") - (1 << (23 + 8 * size))
        sign, number = ("-", -number) if number < 0 else ("", number)
        clock, rest = divmod(number, 1 << 8 * size)
        fraction = f".{rest:0{2 * size}d}"[: scale + 1] if size else ""
        return (
            f"{sign}{clock >> HOURS_BITS & 0x3FF:02d}:{clock >> MINUTES_BITS & 63:02d}:{clock & 63:02d}{fraction}",
            end,
        )

    return read


# -- strings -------------------------------------------------------------------------------------


def _string(packed: Packed, json_of: Callable[[bytes], str]) -> Reader:
    has_size_of_length = packed.code in (BLOB, GEOMETRY, JSON)
    size = packed.size if has_size_of_length else 2 if packed.size > 255 else 1
    encoding, pad = packed.encoding, packed.size if packed.code == STRING else 0

    def read(data: bytes, at: int) -> tuple[Value, int]:
        start = at + size
        end = start + int.from_bytes(data[at:start], "little")
        value = data[start:end]
        if packed.code == JSON:
            return json_of(value), end
        if encoding is None:
            return in_base64(
                value.ljust(pad, b"\0")
            ), end  # BINARY's zeros at its end are not logged
        return decoded(value, encoding), end

    return read


def _enum(packed: Packed) -> Reader:
    def read(data: bytes, at: int) -> tuple[Value, int]:
        end = at + packed.size
        number = int.from_bytes(data[at:end], "little")
        return packed.values[number - 1] if number else "", end  # 0: a value that was refused

    return read


def _set(packed: Packed) -> Reader:
    def read(data: bytes, at: int) -> tuple[Value, int]:
        end = at + packed.size
        mask = int.from_bytes(data[at:end], "little")
        return ",".join(v for n, v in enumerate(packed.values) if mask >> n & 1), end

    return read
