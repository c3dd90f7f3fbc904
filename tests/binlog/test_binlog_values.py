"""Each type's bytes in the binary log, and its text in a SELECT, have one form. The bytes are MariaDB 10.11's."""

import struct
from types import SimpleNamespace

import pytest
from fencepost.clients.binlog import row_images as at
from fencepost.clients.binlog.binlog_stream import packed_of
from fencepost.clients.binlog.charsets import charset_of
from fencepost.clients.binlog.columns import Column, UnknownType, column_of_catalogue
from fencepost.clients.binlog.database import CannotFollow
from fencepost.clients.binlog.row_images import Packed, column_of, read_row, reader_of
from fencepost.clients.binlog.values import from_select, shortest_float32

UTF8 = "utf-8"


def decimal(precision: int, scale: int) -> Packed:
    return Packed("d", at.NEWDECIMAL, precision=precision, scale=scale)


def timed(code: int, scale: int) -> Packed:
    return Packed("t", code, scale=scale)


ENUM = Packed("e", at.ENUM, size=1, encoding=UTF8, values=("small", "größer"))
SET = Packed("s", at.SET, size=1, encoding=UTF8, values=("a", "b", "c"))
# packed, the log's bytes, a SELECT's text (None: not compared), JSON's value
FORMS = [
    (Packed("n", at.TINY), b"\xff", b"-1", -1),
    (Packed("n", at.TINY, unsigned=True), b"\xff", b"255", 255),
    (Packed("n", at.INT24), b"\x00\x00\x80", b"-8388608", -8388608),
    (Packed("n", at.LONGLONG, unsigned=True), b"\xff" * 8, b"18446744073709551615", 2**64 - 1),
    (decimal(10, 2), bytes.fromhex("8000000c32"), b"12.50", "12.50"),
    (decimal(10, 2), bytes.fromhex("7ffffffffa"), b"-0.05", "-0.05"),
    (decimal(14, 4), bytes.fromhex("810dfb38d204d2"), b"1234567890.1234", "1234567890.1234"),
    (decimal(14, 4), bytes.fromhex("7ef204c72dfb2d"), b"-1234567890.1234", "-1234567890.1234"),
    (decimal(5, 0), bytes.fromhex("80002a"), b"00042", "42"),
    (Packed("f", at.FLOAT), struct.pack("<f", 1.1), b"1.100000023841858", 1.1),
    (
        Packed("f", at.DOUBLE),
        struct.pack("<d", 0.1 + 0.2),
        b"0.30000000000000004",
        0.30000000000000004,
    ),
    (Packed("y", at.YEAR, unsigned=True), b"\x7e", b"2026", 2026),
    (Packed("y", at.YEAR, unsigned=True), b"\x00", b"0000", 0),
    (
        Packed("d", at.DATE),
        (2026 << 9 | 11 << 5 | 21).to_bytes(3, "little"),
        b"2026-11-21",
        "2026-11-21",
    ),
    (Packed("d", at.DATE), b"\0\0\0", b"0000-00-00", "0000-00-00"),
    (timed(at.DATETIME2, 0), bytes.fromhex("99bb6a14c5"), None, "2026-11-21T01:19:05"),
    (
        timed(at.DATETIME2, 0),
        bytes.fromhex("8000000000"),
        b"0000-00-00 00:00:00",
        "0000-00-00T00:00:00",
    ),
    (timed(at.TIMESTAMP2, 3), bytes.fromhex("69b18b8004d2"), None, "2026-03-11T15:34:24.123Z"),
    (timed(at.TIMESTAMP2, 0), bytes(4), b"0000-00-00 00:00:00", "0000-00-00T00:00:00Z"),
    (timed(at.TIME2, 0), bytes.fromhex("801000"), b"01:00:00", "01:00:00"),
    (timed(at.TIME2, 2), bytes.fromhex("7e5ffece"), b"-26:00:01.50", "-26:00:01.50"),
    (timed(at.TIME2, 0), bytes.fromhex("b46efb"), b"838:59:59", "838:59:59"),
    (Packed("v", at.VARCHAR, size=40, encoding=UTF8), b"\x03\xc3\xa4b", b"\xc3\xa4b", "äb"),
    (Packed("v", at.VARCHAR, size=400, encoding=UTF8), b"\x02\x00ab", b"ab", "ab"),
    (
        Packed("c", at.STRING, size=16),
        b"\x02\x01\x02",
        b"\x01\x02" + bytes(14),
        "AQIAAAAAAAAAAAAAAAAAAA==",
    ),
    (Packed("b", at.BLOB, size=2), b"\x03\x00\x00\xff\x01", b"\x00\xff\x01", "AP8B"),
    (Packed("b", at.BLOB, size=1, encoding="cp1252"), b"\x02\xe9\x81", None, "é\x81"),
    (Packed("b", at.BIT, size=2, precision=10), b"\x02\x01", b"\x02\x01", 513),
    (ENUM, b"\x02", "größer".encode(), "größer"),
    (ENUM, b"\x00", b"", ""),
    (SET, b"\x05", b"a,c", "a,c"),
    (SET, b"\x00", b"", ""),
]


@pytest.mark.parametrize(("packed", "logged", "text", "value"), FORMS)
def test_every_type_has_one_form(packed, logged, text, value) -> None:
    assert reader_of(packed, lambda _: "")(b"?" + logged + b"?", 1) == (value, 1 + len(logged))
    if text is not None:
        found = from_select(column_of(packed, "shop.orders"))(text)
        assert (found, type(found)) == (value, type(value))


def test_a_row_has_nulls_where_its_bitmap_says_so() -> None:
    names = [f"c{number}" for number in range(9)]
    reader = reader_of(Packed("c", at.TINY), lambda _: "")
    data = bytes([0b11111101, 0b0]) + b"\x05\x07"
    row, end = read_row(names, [reader] * 9, data, 0)
    assert (row, end) == ({**dict.fromkeys(names), "c1": 5, "c8": 7}, 4)


@pytest.mark.parametrize(
    "value", [1.1, 16777216.0, 3.4028234663852886e38, 1.401298464324817e-45, -0.1]
)
def test_the_shortest_single_precision_number_is_the_same_number(value: float) -> None:
    single = struct.unpack("<f", struct.pack("<f", value))[0]
    short = shortest_float32(single)
    assert struct.pack("<f", short) == struct.pack("<f", single)
    assert len(repr(short)) <= len(repr(single))


def row_of(data_type: str, column_type: str, **more: object) -> dict[str, object]:
    names = {"table_schema": "shop", "table_name": "orders", "column_name": "c"}
    numbers = {"numeric_precision": None, "numeric_scale": None, "datetime_precision": None}
    return {**names, **numbers, "data_type": data_type, "column_type": column_type, **more}


@pytest.mark.parametrize(
    ("row", "column"),
    [
        (row_of("int", "int(10) unsigned"), Column("c", "int", unsigned=True)),
        (row_of("mediumtext", "mediumtext"), Column("c", "text")),
        (
            row_of("datetime", "datetime(3)", datetime_precision="3"),
            Column("c", "datetime", scale=3),
        ),
        (
            row_of("enum", r"enum('a,b','it''s','','a\\n\n')"),
            Column("c", "enum", values=("a,b", "it's", "", "a\\n\n")),
        ),
    ],
)
def test_the_catalogue_tells_the_same_columns_as_the_log(row, column) -> None:
    assert column_of_catalogue(row) == column


def test_a_type_that_is_not_followed_is_named_with_its_table() -> None:
    with pytest.raises(UnknownType, match=r"shop\.orders: column c has the type inet6"):
        column_of_catalogue(row_of("inet6", "inet6"))
    with pytest.raises(UnknownType, match=r"ALTER TABLE shop\.orders FORCE"):
        column_of(Packed("c", 12), "shop.orders")


def test_a_year_of_two_digits_is_refused() -> None:
    """It has two forms."""
    with pytest.raises(UnknownType, match=r"has the type year\(2\), which is not followed"):
        column_of_catalogue(row_of("year", "year(2)"))
    assert column_of_catalogue(row_of("year", "year(4)")).type == "year"


@pytest.mark.parametrize(
    ("collation", "charset"),
    [(2048, "utf8mb3"), (2304, "utf8mb4"), (2560, "ucs2"), (2816, "utf16"), (3327, "utf32")],
)
def test_a_collation_that_the_driver_does_not_know_has_a_character_set(
    collation: int, charset: str
) -> None:
    assert charset_of(collation) == charset


@pytest.mark.parametrize("collation", [0, 2047, 3328])
def test_of_a_collation_that_nobody_knows_no_character_set_is_made_up(collation: int) -> None:
    column = SimpleNamespace(name="v", character_set_name="utf8")
    with pytest.raises(CannotFollow, match=rf"s\.t: column v has the character set {collation},"):
        packed_of(column, collation, "s.t")


@pytest.mark.parametrize(
    ("charset", "encoding"), [("utf8mb4", "utf-8"), ("latin1", "cp1252"), ("ucs2", "utf-16-be")]
)
def test_values_are_decoded_by_their_columns_character_set(charset: str, encoding: str) -> None:
    """The driver told 'a' in ucs2 as two letters, where a snapshot gave one."""
    told = ["", "a", "ü"]
    column = SimpleNamespace(name="c", type=247, enum_values=None, set_values=None, unsigned=False)
    column.enum_values = ["", *(each.encode(encoding) for each in told)]
    assert packed_of(column, charset, "s.t").values == tuple(told)


def test_values_that_are_none_in_their_character_set_are_refused() -> None:
    column = SimpleNamespace(name="c", type=248, enum_values=None, unsigned=False)
    column.set_values = [b"\xff"]
    with pytest.raises(CannotFollow, match=r"s\.t: column c has values that are none in its"):
        packed_of(column, "binary", "s.t")
