"""Character sets whose tables in the database are not those of Python's codecs: the codes that mean something else there.

INVARIANT  a text of the log has the characters that a SELECT gives.
PREVENTS   a key that the stream tells otherwise than the snapshot, so that compaction keeps a row that is gone: sjis 815F is a
           backslash to the database, and a full-width one to Python.
PROVED BY  tests/binlog/test_binlog_charsets.py::test_each_code_is_the_character_that_the_database_says

The tables are MariaDB 10.11's. What it gives as `?` is no character there, and can't be decoded here either.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

ONE_BYTE: Final = re.compile(rb".", re.DOTALL)
BIG5: Final = re.compile(rb"[\xa1-\xf9].|.", re.DOTALL)
SHIFT_JIS: Final = re.compile(rb"[\x81-\x9f\xe0-\xfc].|.", re.DOTALL)
EUC: Final = re.compile(rb"\x8f..|[\x8e\xa1-\xfe].|.", re.DOTALL)
NONE: Final = "\ufffd"  # the database has several codes for it
ROW: Final = 94  # codes of an EUC that differ in the last byte alone


class Difference(NamedTuple):
    codec: str  # Python's, that has the other codes
    character: re.Pattern[bytes]
    runs: Mapping[
        str, str
    ]  # the first code in hex -> its character, and those of the codes behind it
    lacks: tuple[str, ...] = ()  # codes of Python's that are no characters there


def _private_use() -> dict[str, str]:
    """Of an EUC the rows F5 to FE, of two bytes and of three."""
    return {
        f"{before}{0xF5 + row:x}a1": "".join(chr(first + ROW * row + n) for n in range(ROW))
        for before, first in (("", 0xE000), ("8f", 0xE3AC))
        for row in range(10)
    }


DIFFERENCES: Final[Mapping[str, Difference]] = {
    "big5": Difference(
        "big5",
        BIG5,
        {
            **dict.fromkeys(("a15a", "a1c3", "a1c5", "a1fe", "a240", "a2cc", "a2ce"), NONE),
            "f9d6": "碁銹裏墻恒粧嫺",
        },
    ),
    "cp866": Difference("cp866", ONE_BYTE, {"fc": "ⁿ²"}),
    "cp1256": Difference(
        "cp1256", ONE_BYTE, {}, lacks=("8a", "8f", "98", "9a", "9f", "aa", "c0", "ff")
    ),
    "eucjpms": Difference(
        "euc_jp",
        EUC,
        {
            **_private_use(),
            "a1c1": "～∥",
            "a1dd": "－",
            "a1f1": "￠￡",
            "a2cc": "￢",
            "ada1": "①②③④⑤⑥⑦⑧⑨⑩⑪⑫⑬⑭⑮⑯⑰⑱⑲⑳ⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩ",
            "adc0": "㍉㌔㌢㍍㌘㌧㌃㌶㍑㍗㌍㌦㌣㌫㍊㌻㎜㎝㎞㎎㎏㏄㎡",
            "addf": "㍻〝〟№㏍℡㊤㊥㊦㊧㊨㈱㈲㈹㍾㍽㍼≒≡∫∮∑√⊥∠∟⊿∵∩∪",
            "8fa2b7": "～",
            "8fa2c3": "￤",
            "8ff3f3": "ⅰⅱⅲⅳⅴⅵⅶⅷⅸⅹⅠⅡ",
            "8ff4a1": "ⅢⅣⅤⅥⅦⅧⅨⅩ＇＂㈱№℡炻仼僴凬匇匤﨎咊坙﨏塚增寬峵嵓﨑德悅愠敎昻晥晴朗栁﨓﨔橫櫢淸淲瀨凞猪"
            "甁皂皞益礰礼神祥福竧靖精綠緖羽荢﨟薰蘒﨡蠇諸譿賴赶﨣﨤逸郞都鄕﨧﨨閒隆﨩霻靍靑飯飼館馞髙魲鶴黑",
        },
    ),
    "greek": Difference("iso8859-7", ONE_BYTE, {"a1": "\u02bd\u02bc"}, lacks=("a4", "a5", "aa")),
    "hebrew": Difference("iso8859-8", ONE_BYTE, {"af": "\u203e"}),
    "koi8u": Difference("koi8_u", ONE_BYTE, {"95": "\u2022"}),
    "sjis": Difference("shift_jis", SHIFT_JIS, {"815f": "\\"}),
    "tis620": Difference(
        "tis_620",
        ONE_BYTE,
        {**dict.fromkeys(("a0", "db", "dc", "dd", "de", "fc", "fd", "fe", "ff"), NONE)},
    ),
    "ujis": Difference("euc_jp", EUC, {**_private_use(), "a1c0": "\\"}),
}


class _Characters(dict[bytes, str]):
    """By their codes. What is asked for the first time is looked up in Python's codec."""

    def __init__(self, differs: Difference) -> None:
        super().__init__()
        self._codec = differs.codec
        self._lacks = {bytes.fromhex(each) for each in differs.lacks}
        for first, characters in differs.runs.items():
            *before, last = bytes.fromhex(first)
            for n, character in enumerate(characters):
                self[bytes([*before, last + n])] = character

    def __missing__(self, code: bytes) -> str:
        if code in self._lacks:
            raise UnicodeDecodeError(
                self._codec, code, 0, len(code), "no character to the database"
            )
        self[code] = found = code.decode(self._codec)
        return found


CHARACTERS: Final = {name: _Characters(differs) for name, differs in DIFFERENCES.items()}


def text_in(charset: str, value: bytes) -> str:
    """Of one of DIFFERENCES, all of which have ASCII. UnicodeDecodeError for what is no text."""
    if value.isascii():
        return value.decode("ascii")
    codes = DIFFERENCES[charset].character.findall(value)
    return "".join(map(CHARACTERS[charset].__getitem__, codes))
