"""MySQL's binary JSON is told as MySQL shows it. The bytes are those that its `json_binary.cc` writes; there is no MySQL here."""

import math
import struct
from typing import Any

import pytest
from fencepost.clients.binlog.mysql_json import NotJson, text_of

LITERAL, INT16, UINT16, INT32, UINT32, INT64, UINT64, DOUBLE, STRING, OPAQUE = *range(4, 13), 15
DECIMAL, TIMESTAMP, DATE, TIME, DATETIME, BIT, BLOB, VAR_STRING = 246, 7, 10, 11, 12, 16, 252, 253
Value = tuple[int, bytes]  # a type, and what follows it


def text(value: str) -> Value:
    return STRING, bytes([len(value.encode())]) + value.encode()


def opaque(kind: int, data: bytes) -> Value:
    length = [len(data)] if len(data) < 128 else [len(data) & 127 | 128, len(data) >> 7]
    return OPAQUE, bytes([kind, *length]) + data


def container(values: list[Value], keys: list[bytes] | None, *, large: bool) -> Value:
    """`json_binary.cc`: how many, how long, the keys' places, the values' places, the keys, the values."""
    size = 4 if large else 2
    inlined = (LITERAL, INT16, UINT16, *((INT32, UINT32) if large else ()))
    names = keys or []
    at = 2 * size + len(names) * (size + 2) + len(values) * (1 + size)
    places, entries, data = b"", b"", b"".join(names)
    for name in names:
        places += at.to_bytes(size, "little") + len(name).to_bytes(2, "little")
        at += len(name)
    for kind, value in values:
        if kind in inlined:
            entries += bytes([kind]) + value.ljust(size, b"\0")
            continue
        entries += bytes([kind]) + at.to_bytes(size, "little")
        data, at = data + value, at + len(value)
    head = len(values).to_bytes(size, "little") + at.to_bytes(size, "little")
    kind = (2 if keys is None else 0) + large
    return kind, head + places + entries + data


def array(*values: Value, large: bool = False) -> Value:
    return container(list(values), None, large=large)


def shown(value: Value) -> str:
    return text_of(bytes([value[0]]) + value[1])


def clock(hours: int, minutes: int, seconds: int, micros: int) -> int:
    return (hours << 12 | minutes << 6 | seconds) << 24 | micros


def moment(year: int, month: int, day: int, of_day: int) -> int:
    return ((year * 13 + month) << 5 | day) << 41 | of_day


@pytest.mark.parametrize(
    ("kind", "packed", "expected"),
    [
        (TIME, clock(23, 24, 25, 120_000), '"23:24:25.120000"'),
        (TIME, clock(838, 59, 59, 0), '"838:59:59.000000"'),
        (TIME, -clock(26, 0, 1, 500_000), '"-26:00:01.500000"'),
        (TIME, 0, '"00:00:00.000000"'),
        (DATE, moment(2026, 11, 21, 0), '"2026-11-21"'),
        (DATE, 0, '"0000-00-00"'),
        (DATE, moment(2026, 0, 0, 0), '"2026-00-00"'),
        (DATETIME, moment(2026, 11, 21, clock(16, 20, 0, 0)), '"2026-11-21 16:20:00.000000"'),
        (DATETIME, 0, '"0000-00-00 00:00:00.000000"'),
        (TIMESTAMP, moment(2026, 1, 2, clock(3, 4, 5, 6)), '"2026-01-02 03:04:05.000006"'),
    ],
)
def test_a_time_in_mysqls_json_is_told_as_mysql_shows_it(kind, packed, expected) -> None:
    """JSON_OBJECT('t', CAST('23:24:25.12' AS TIME(2))): six digits of a second, whatever there were."""
    value = opaque(kind, struct.pack("<q", packed))
    assert shown(value) == expected
    assert shown(container([value], [b"t"], large=False)) == f'{{"t": {expected}}}'


@pytest.mark.parametrize("large", [False, True])
def test_each_kind_of_value_is_told_inside_of_others(large: bool) -> None:
    values: list[tuple[Value, str]] = [
        ((LITERAL, b"\0"), "null"),
        ((LITERAL, b"\1"), "true"),
        ((LITERAL, b"\2"), "false"),
        ((INT16, b"\xff\xff"), "-1"),
        ((UINT16, b"\xff\xff"), "65535"),
        ((INT32, b"\0\0\0\x80"), "-2147483648"),
        ((UINT32, b"\xff\xff\xff\xff"), "4294967295"),
        ((INT64, b"\0" * 7 + b"\x80"), "-9223372036854775808"),
        ((UINT64, b"\xff" * 8), "18446744073709551615"),
        ((DOUBLE, struct.pack("<d", 2.5)), "2.5"),
        (text('ä"\\\n\x01'), r'"ä\"\\\n\u0001"'),
        ((STRING, b"\xac\x02" + b"a" * 300), f'"{"a" * 300}"'),
        (array(large=large), "[]"),
        (container([array(text("x"))], [b"k"], large=large), '{"k": ["x"]}'),
    ]
    found = shown(array(*(value for value, _ in values), large=large))
    assert found == f"[{', '.join(expected for _, expected in values)}]"
    keys = [b"%02d" % number for number in range(len(values))]
    told = ", ".join(f'"{number:02d}": {expected}' for number, (_, expected) in enumerate(values))
    assert shown(container([value for value, _ in values], keys, large=large)) == f"{{{told}}}"


@pytest.mark.parametrize("number", ["12.50", "-0.05", "7", f"{'9' * 35}.{'8' * 30}"])
def test_a_decimal_in_mysqls_json_is_a_number_with_all_its_digits(number: str) -> None:
    """JSON_OBJECT('price', price): its bytes are those of a DECIMAL column, behind its digits and those after the point."""
    whole, _, part = number.lstrip("-").partition(".")
    data = decimal_bytes(number, len(whole) + len(part), len(part))
    value = opaque(DECIMAL, bytes([len(whole) + len(part), len(part)]) + data)
    assert shown(container([value], [b"p"], large=False)) == f'{{"p": {number}}}'


def decimal_bytes(number: str, precision: int, scale: int) -> bytes:
    """What the reader of a column turns into `number`."""
    whole, _, part = number.lstrip("-").partition(".")
    left, right = (precision - scale) % 9, scale % 9
    groups = [whole[:left], *(whole[at : at + 9] for at in range(left, len(whole), 9))]
    groups += [part[at : at + 9] for at in range(0, scale - right, 9)] + [part[scale - right :]]
    packed = b"".join(int(g).to_bytes((0, 1, 1, 2, 2, 3, 3, 4, 4, 4)[len(g)]) for g in groups if g)
    packed = bytes([packed[0] ^ 0x80]) + packed[1:]
    return bytes(each ^ 0xFF for each in packed) if number.startswith("-") else packed


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (opaque(BLOB, b"\x00\xff\x01"), '"base64:type252:AP8B"'),
        (opaque(BIT, b"\x05"), '"base64:type16:BQ=="'),
        (opaque(BLOB, bytes(58)), f'"base64:type252:{"A" * 76}\\nAA=="'),
        (opaque(VAR_STRING, "ä".encode()), '"ä"'),
    ],
)
def test_what_is_no_json_is_told_in_base64(value: Value, expected: str) -> None:
    """JSON_OBJECT('b', a_blob): no byte is left out."""
    assert shown(value) == expected


DOUBLES = (
    *("0.0", "-0.0", "1.0", "-2.5", "0.1", "1.1e-16", "1e-16", "0.000000000000001", "5e-324"),
    *("-0.0000000000000012345678901234568", "123456789012345.0", "1e15", "1e16", "1e22"),
    *("1234567890123456.8", "1.7976931348623157e308", "-1.5e300", "0.30000000000000004"),
    *("999999999999999.9", "100000.0"),
)


@pytest.mark.parametrize("expected", DOUBLES)
def test_a_double_is_told_as_mysql_shows_it(expected: str) -> None:
    assert shown((DOUBLE, struct.pack("<d", float(expected)))) == expected


@pytest.mark.slow
def test_mariadb_shows_a_double_in_the_same_form(sql: Any) -> None:
    """Whose `my_gcvt` is MySQL's; what is whole has a `.0` in MySQL's JSON alone."""
    for each in (each for each in DOUBLES if each != "-0.0"):  # a CAST takes the sign
        ((found,),) = sql(f"SELECT CONCAT(CAST('{each}' AS DOUBLE))")
        assert found in (each, each.removesuffix(".0")), each


def test_an_empty_value_is_jsons_null() -> None:
    """As MySQL writes it for a column that may not be NULL."""
    assert text_of(b"") == "null"


@pytest.mark.parametrize(
    "data",
    [
        b"\x0e",
        b"\x04\x03",
        b"\x05\x00",
        b"\x0c\x05abc",
        b"\x0c\xff\xff\xff\xff\xff\xff",
        b"\x0f\x0b\x08\x00",
        b"\x02\x01\x00\x07\x00\x0c\x09\x00",
        b"\x00\x01\x00\x0b\x00\x30\x00\x01\x00\x04\x00\x00",
        b"\x02\xff\xff\x04\x00",
        b"\x0b" + struct.pack("<d", math.inf),
        b"\x0b" + struct.pack("<d", math.nan),
        b"\x02\x01\x00\x07\x00\x02\x00\x00",  # an array whose one value is itself
    ],
)
def test_what_is_damaged_is_no_value(data: bytes) -> None:
    """The driver's own reader had null for it."""
    with pytest.raises(NotJson):
        text_of(data)


def test_values_are_what_the_driver_reads_where_it_reads_them_well() -> None:
    json_binary: Any = pytest.importorskip("pymysqlreplication.json_binary")
    kind, data = container(
        [array(text("a"), (INT16, b"\7\0")), text("b")], [b"x", b"y"], large=True
    )
    assert json_binary.parse_json(kind, data) == {b"x": [b"a", 7], b"y": b"b"}
