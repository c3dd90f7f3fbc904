"""Character sets as MySQL calls them, as Python decodes them; `charset_tables.py` has those that Python's codecs have otherwise."""

import codecs
import re
from collections.abc import Mapping
from typing import Final

from pymysql.charset import charset_by_id

from .charset_tables import DIFFERENCES, text_in

BINARY: Final = "binary"
# Those whose names differ; the others have the same name in both (cp850, gbk, latin2, …).
PYTHONS: Final[Mapping[str, str]] = {
    "utf8": "utf-8",
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
    "latin1": "cp1252",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "euckr": "cp949",
    "macroman": "mac_roman",
    "macce": "mac_latin2",
    "koi8r": "koi8_r",
}
DRIVERS: Final[Mapping[str, str]] = {"koi8_u": "koi8u"}  # names of its own -> the database's
# MariaDB's collations uca1400_… have numbers that no list of the driver's has: so many for each of these character sets.
UCA1400_FIRST: Final = 2048
UCA1400_EACH: Final = 256
UCA1400: Final = ("utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32")
UNDEFINED: Final = "mysql-undefined"
NO_UTF8: Final = re.compile(rb"\\x([89a-f][0-9a-f])")


def _as_itself(error: UnicodeError) -> tuple[str, int]:
    """MySQL's latin1 gives a meaning to the five bytes that cp1252 leaves free: that of their number."""
    assert isinstance(error, UnicodeDecodeError)
    return chr(error.object[error.start]), error.start + 1


codecs.register_error(UNDEFINED, _as_itself)


def encoding_of(charset: str) -> str:
    """What `decoded` calls it, of the database's name or the driver's. LookupError for one that can't be decoded."""
    charset = DRIVERS.get(charset, charset)
    if charset in DIFFERENCES:
        return charset
    return codecs.lookup(PYTHONS.get(charset, charset)).name


def charset_of(collation: int) -> str:
    """Of a collation that the driver does not know. LookupError for one that we don't know either."""
    place = (collation - UCA1400_FIRST) // UCA1400_EACH
    if not 0 <= place < len(UCA1400):
        raise LookupError(f"the collation {collation} is in no list")
    return UCA1400[place]


def decoded(value: bytes, encoding: str) -> str:
    if encoding in DIFFERENCES:
        return text_in(encoding, value)
    return value.decode(encoding, UNDEFINED if encoding == "cp1252" else "strict")


def as_it_was_said(query: str, collation: int | None) -> str:
    """A statement is logged in the character set of who said it, which `collation` is one of; the driver takes it for UTF-8, and
    gives a byte that is none as `\\xe9`. Without a known one it stays as it is."""
    if collation is None or (query.isascii() and "\\x" not in query):
        return query
    try:
        encoding = encoding_of(charset_by_id(collation).name)
        logged = NO_UTF8.sub(lambda found: bytes([int(found[1], 16)]), query.encode())
        return query if encoding == "utf-8" else decoded(logged, encoding)
    except (KeyError, LookupError, UnicodeDecodeError):
        return query
