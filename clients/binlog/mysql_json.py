"""MySQL's binary JSON as text, as MySQL shows it. Pure: bytes in, text out.

INVARIANT  a document is the text that a SELECT gives of it, whatever is in it.
PREVENTS   a DATE that changes have another form of than the snapshot, and a source that ends at a TIME of 26 hours.
PROVED BY  tests/binlog/test_binlog_json.py::test_a_time_in_mysqls_json_is_told_as_mysql_shows_it

The layouts are those of `json_binary.cc`, the forms those of `wrapper_to_string` (`json_dom.cc`) and `my_gcvt` (`dtoa.cc`). The driver's
own reader has no time that is negative or of more than a day, no date that is none, and null for what is damaged.
"""

import base64
import json
import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Final

from .row_images import NEWDECIMAL, Packed, reader_of

SMALL_OBJECT, LARGE_OBJECT, SMALL_ARRAY, LARGE_ARRAY, LITERAL = 0, 1, 2, 3, 4
INT16, UINT16, INT32, UINT32, INT64, UINT64, DOUBLE, STRING, OPAQUE = *range(5, 13), 15
LITERALS: Final = ("null", "true", "false")
INTEGERS: Final = {
    INT16: struct.Struct("<h"),
    UINT16: struct.Struct("<H"),
    INT32: struct.Struct("<i"),
    UINT32: struct.Struct("<I"),
    INT64: struct.Struct("<q"),
    UINT64: struct.Struct("<Q"),
}
INLINED: Final = (LITERAL, INT16, UINT16)  # beside their type
INLINED_IN_LARGE: Final = (*INLINED, INT32, UINT32)
KEY_LENGTH_BYTES: Final = 2
LENGTH_BYTES_MAX: Final = 5  # of a length, seven bits in each
# Types of columns (MySQL's field_types.h) that a document can have a value of.
TIMESTAMP, DATE, TIME, DATETIME, VAR_STRING = 7, 10, 11, 12, 253
MICROS_BITS, CLOCK_BITS = 24, 17
# Between which places of the point a double has no exponent (MAX_DECPT_FOR_F_FORMAT).
POINT_MIN, POINT_MAX = -14, 15


class NotJson(ValueError):
    """Bytes that are no document."""


def text_of(document: bytes) -> str:
    """An empty one is JSON's null, as MySQL writes it for a column that may not be NULL."""
    if not document:
        return "null"
    try:
        return _value(document[0], document, 1)
    # The last: a place may be that of a value around it.
    except (IndexError, struct.error, RecursionError) as trouble:
        raise NotJson(f"a JSON document is damaged: {trouble}") from trouble


def _value(kind: int, data: bytes, at: int) -> str:
    if kind in (SMALL_OBJECT, LARGE_OBJECT, SMALL_ARRAY, LARGE_ARRAY):
        return _container(kind, data, at)
    if kind == LITERAL:
        return LITERALS[data[at]]
    if kind in INTEGERS:
        return str(INTEGERS[kind].unpack_from(data, at)[0])
    if kind == DOUBLE:
        return _double(struct.unpack_from("<d", data, at)[0])
    if kind == STRING:
        return _quoted(_with_length(data, at).decode())
    if kind == OPAQUE:
        return _opaque(data[at], _with_length(data, at + 1))
    raise NotJson(f"a JSON document has a value of the kind {kind}, which is not known")


def _container(kind: int, data: bytes, begin: int) -> str:
    """Places are counted from where it begins."""
    is_object, is_large = kind in (SMALL_OBJECT, LARGE_OBJECT), kind in (LARGE_OBJECT, LARGE_ARRAY)
    size, inlined = (4, INLINED_IN_LARGE) if is_large else (2, INLINED)

    def number(at: int) -> int:
        return int.from_bytes(_part(data, at, size), "little")

    count, entry = number(begin), 1 + size
    at = begin + 2 * size
    keys = at
    if is_object:
        at += count * (size + KEY_LENGTH_BYTES)

    def values() -> Iterator[str]:
        for place in range(at, at + count * entry, entry):
            is_here = data[place] in inlined
            yield _value(data[place], data, place + 1 if is_here else begin + number(place + 1))

    if not is_object:
        return f"[{', '.join(values())}]"
    names = (
        _key(data, begin + number(place), place + size)
        for place in range(keys, at, size + KEY_LENGTH_BYTES)
    )
    return f"{{{', '.join(f'{name}: {told}' for name, told in zip(names, values(), strict=True))}}}"


def _key(data: bytes, at: int, length_at: int) -> str:
    length = int.from_bytes(_part(data, length_at, KEY_LENGTH_BYTES), "little")
    return _quoted(_part(data, at, length).decode())


def _part(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise NotJson(f"a JSON document is cut off: it has {len(data)} bytes, and goes on")
    return data[at : at + size]


def _with_length(data: bytes, at: int) -> bytes:
    length = 0
    for number in range(LENGTH_BYTES_MAX):
        byte = data[at + number]
        length |= (byte & 0x7F) << 7 * number
        if not byte & 0x80:
            return _part(data, at + number + 1, length)
    raise NotJson("a JSON document has a length that does not end")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _double(value: float) -> str:
    """The shortest that is the same number; with an exponent where it is a long one."""
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    if not isinstance(exponent, int):
        raise NotJson(f"a JSON document has the number {value}, which is none")
    text = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + exponent if value else 1  # how many digits stand before it
    minus = "-" if sign else ""
    if POINT_MIN <= point <= POINT_MAX or 0 < point < len(text):
        if point <= 0:
            return f"{minus}0.{'0' * -point}{text}"
        return f"{minus}{text[:point].ljust(point, '0')}.{text[point:] or '0'}"
    more = f".{text[1:]}" if text[1:] else ""
    return f"{minus}{text[0]}{more}e{point - 1}"


def _opaque(kind: int, data: bytes) -> str:
    """A value of SQL."""
    if kind == NEWDECIMAL:
        packed = Packed("", NEWDECIMAL, precision=data[0], scale=data[1])
        return str(reader_of(packed, text_of)(data, 2)[0])
    if kind in TIMES:
        return _quoted(TIMES[kind](struct.unpack_from("<q", data)[0]))
    if kind == VAR_STRING:
        return _quoted(data.decode())
    in_lines = base64.encodebytes(data).decode().rstrip("\n")
    return _quoted(f"base64:type{kind}:{in_lines}")


def _time(packed: int) -> str:
    clock, micros = divmod(abs(packed), 1 << MICROS_BITS)
    return f"{'-' if packed < 0 else ''}{_clock(clock)}.{micros:06d}"


def _date(packed: int) -> str:
    months, day = divmod(packed >> MICROS_BITS + CLOCK_BITS, 32)
    return f"{months // 13:04d}-{months % 13:02d}-{day:02d}"


def _datetime(packed: int) -> str:
    clock, micros = divmod(packed, 1 << MICROS_BITS)
    return f"{_date(packed)} {_clock(clock % (1 << CLOCK_BITS))}.{micros:06d}"


def _clock(packed: int) -> str:
    return f"{packed >> 12 & 0x3FF:02d}:{packed >> 6 & 63:02d}:{packed & 63:02d}"


TIMES: Final[dict[int, Callable[[int], str]]] = {
    TIME: _time,
    DATE: _date,
    DATETIME: _datetime,
    TIMESTAMP: _datetime,
}
