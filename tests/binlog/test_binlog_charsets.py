"""A text of the log has the characters that the database says it has, in every character set that is followed."""

from itertools import product
from typing import Any

import pytest
from fencepost.clients.binlog.charsets import charset_of, decoded, encoding_of
from pymysqlreplication.row_event import find_charset

# Of a code, what the database says, and None where it has no character. Python's codecs say something else.
CODES = [
    ("sjis", "815f", "\\"),
    ("ujis", "a1c0", "\\"),
    ("ujis", "f5a1", "\ue000"),
    ("ujis", "fefe", "\ue3ab"),
    ("ujis", "8ff5a1", "\ue3ac"),
    ("ujis", "8ffefe", "\ue757"),
    ("eucjpms", "a1c0", "＼"),
    ("eucjpms", "a1c1", "～"),
    ("eucjpms", "a1c2", "∥"),
    ("eucjpms", "a1dd", "－"),
    ("eucjpms", "a1f2", "￡"),
    ("eucjpms", "adb5", "Ⅰ"),
    ("eucjpms", "adfc", "∪"),
    ("eucjpms", "8ff3fe", "Ⅱ"),
    ("eucjpms", "8ff4a1", "Ⅲ"),
    ("eucjpms", "8ff4fe", "黑"),
    ("eucjpms", "8ffefe", "\ue757"),
    ("greek", "a1", "\u02bd"),
    ("greek", "a2", "\u02bc"),
    ("greek", "a4", None),
    ("cp866", "fc", "ⁿ"),
    ("cp866", "fd", "²"),
    ("cp1256", "8a", None),
    ("koi8u", "95", "\u2022"),
    ("koi8_u", "95", "\u2022"),  # as the driver calls it
    ("hebrew", "af", "\u203e"),
    ("tis620", "ff", "\ufffd"),
    ("big5", "a2ce", "\ufffd"),
    ("big5", "f9d6f9d7f9d8f9d9f9daf9dbf9dc", "碁銹裏墻恒粧嫺"),
    ("euckr", "8c63a4d4b0a1", "똠ㅤ가"),
    ("gbk", "81", None),
]
# Python's codecs have these as the databases do.
WIDE = ("utf8mb3", "utf8mb4", "ucs2", "utf16", "utf16le", "utf32")
SURROGATES = range(0xD800, 0xE000)


@pytest.mark.parametrize(("charset", "code", "character"), CODES)
def test_a_code_that_python_has_otherwise_is_the_databases_character(
    charset: str, code: str, character: str | None
) -> None:
    encoding, value = encoding_of(charset), bytes.fromhex(code)
    if character is None:
        with pytest.raises(UnicodeDecodeError):
            decoded(value, encoding)
    else:
        assert decoded(value, encoding) == character


@pytest.mark.parametrize(
    ("charset", "value", "text"),
    [
        # 81 5F, a backslash, are the end of one and a `_`; A2 CE, of big5, of two.
        ("sjis", rb"C:\dir" + bytes.fromhex("815f 955c 8b81 5f"), "C:\\dir\\表求_"),
        ("big5", bytes.fromhex("61 a55c f9d8 c5a2 ceab a2ce 5c"), "a功裏籠峆\ufffd\\"),
        ("ujis", bytes.fromhex("a4a2 a1c0 8eb1 8fb0a1 b0a1 c0a1 7e"), "あ\\ｱ丂亜澄~"),
        ("eucjpms", bytes.fromhex("b0a1 c1a1 8fb0a1 a1c1"), "亜繊丂～"),
    ],
)
def test_a_code_is_not_looked_for_in_the_middle_of_two_others(
    charset: str, value: bytes, text: str
) -> None:
    assert decoded(value, encoding_of(charset)) == text


@pytest.mark.parametrize("charset", ["big5", "sjis", "ujis", "eucjpms", "euckr"])
def test_a_text_that_ends_in_the_middle_of_a_character_is_none(charset: str) -> None:
    with pytest.raises(UnicodeDecodeError):
        decoded(b"a\xe1", encoding_of(charset))


def followed_sets(sql: Any) -> list[tuple[str, int]]:
    """Those that a column can have, without `binary`, and how many bytes a character has at most."""
    found = []
    for charset, _, _, longest in sql("SHOW CHARACTER SET"):
        if encoding_or_none(charset) is not None:
            found.append((charset, int(longest)))
    return found


@pytest.mark.slow
def test_each_code_is_the_character_that_the_database_says(sql: Any, schema: str) -> None:
    """Each of one, two or three bytes that is one character there. It says `?` of one that is none."""
    codes = [
        *(bytes([each]) for each in range(0x100)),
        *map(bytes, product(range(0x80, 0x100), range(0x30, 0x100))),
        *map(bytes, product((0x8F,), range(0xA1, 0xFF), range(0xA1, 0xFF))),
    ]
    sql("CREATE TABLE codes (code VARBINARY(3) PRIMARY KEY)")
    for first in range(0, len(codes), 5_000):
        some = codes[first : first + 5_000]
        sql(f"INSERT INTO codes VALUES {', '.join(f'(X{each.hex()!r})' for each in some)}")
    compared = 0
    for charset, longest in followed_sets(sql):
        if charset in WIDE:
            continue
        as_text = f"CONVERT(code USING {charset})"
        told = sql(
            f"SELECT code, {as_text} FROM codes WHERE LENGTH(code) <= {longest} AND CHAR_LENGTH({as_text}) = 1"
            f" AND CAST({as_text} AS BINARY) = code"
        )
        compared += len(told)
        assert differences(charset, told) == [], charset
    assert compared > 100_000


@pytest.mark.slow
def test_each_character_of_the_bmp_is_read_from_what_the_database_makes_of_it(
    sql: Any, schema: str
) -> None:
    characters = [chr(each) for each in range(1, 0x10000) if each not in SURROGATES]
    sql("CREATE TABLE bmp (c VARCHAR(1) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)")
    for first in range(0, len(characters), 5_000):
        some = characters[first : first + 5_000]
        sql(f"INSERT INTO bmp VALUES {', '.join(['(%s)'] * len(some))}", *some)
    for charset, _ in followed_sets(sql):
        there = f"CONVERT(c USING {charset})"
        told = sql(
            f"SELECT CAST({there} AS BINARY), CONVERT({there} USING utf8mb4) COLLATE utf8mb4_bin AS back FROM bmp"
            " HAVING back <> '?'"
        )
        assert differences(charset, told) == [], charset
        assert charset not in WIDE or len(told) == len(characters) - 1


@pytest.mark.slow
def test_a_collations_number_in_the_log_means_its_character_set(sql: Any, schema: str) -> None:
    """The driver has names of its own for some, and knows some not at all."""
    told = sql(
        "SELECT id, character_set_name FROM information_schema.collation_character_set_applicability WHERE id IS NOT NULL"
    )
    assert len(told) > 300
    for number, charset in told:
        name, collation, _ = find_charset(str(number), dbms="mariadb")
        name = name if collation else charset_of(int(number))
        assert (number, encoding_or_none(name)) == (number, encoding_or_none(charset))


def encoding_or_none(charset: str) -> str | None:
    try:
        return encoding_of(charset)
    except LookupError:
        return None


def differences(charset: str, told: Any) -> list[tuple[str, str, str | None]]:
    found = []
    for code, character in told:
        wanted = None if character == "?" and code != b"?" else character
        try:
            ours = decoded(code, encoding_of(charset))
        except UnicodeDecodeError:
            ours = None
        if ours != wanted:
            found.append((code.hex(), character, ours))
    return found
