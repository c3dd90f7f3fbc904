"""A statement as it is told to others: without the texts in it that may be passwords.

INVARIANT  what stands behind a word for a password, or has such a word in it, is told as `'…'`.
PREVENTS   a compacted topic that keeps `CONNECTION='mysql://root:secret@db/t'` for whoever may read it.
PROVED BY  tests/binlog/test_binlog_secrets.py::test_a_text_that_may_be_a_password_is_told_to_nobody

CREATE USER and the like are told to nobody (`statements.py`). Passwords are in tables of other servers (FEDERATED, SPIDER, CONNECT), and
in what procedures, triggers and events say. Rather one text too many is left out: nobody needs it to read rows.
"""

import enum
import re
from functools import cache
from typing import Final

from .schema_statements import unquoted
from .statements import ANSI_QUOTES, NO_BACKSLASH_ESCAPES, string_or_comment

LEFT_OUT: Final = "…"
# In a text, or in a comment: `password "x"` of SPIDER's, `mysql://root:x@db/t`, a statement that is prepared.
TELLS: Final = re.compile(r"passw|pwd|identified|://[^/@\s]*:[^/@]*@", re.IGNORECASE)
SECRET: Final = re.compile(r"passw|^connection$|^authentication_string$")
# What may stand between such a word and the text: `PASSWORD = _utf8'x'`, `PASSWORD('x')`, `PASSWORD TO N'x'`.
BETWEEN: Final = re.compile(r"to|by|as|[nxb]|_\w+|[=:(]")
HEX: Final = re.compile(r"0x[0-9a-f]+", re.IGNORECASE)


class _After(enum.Enum):
    NOTHING = "no word for a password"
    WORD = "such a word, and the text comes next"
    FOR = "SET PASSWORD FOR 'a'@'b'"
    TYPE = "such a word as a name, and what it is: DEFAULT may come"
    IDENTIFIED = "IDENTIFIED: all texts up to a comma"


def without_secrets(sql: str, mode: int = 0) -> str:
    """`mode` is the sql_mode of the session that said it."""
    is_name = bool(mode & ANSI_QUOTES)
    after = _After.NOTHING

    def told(found: re.Match[str]) -> str:
        nonlocal after
        text, string = found[0], found["string"]
        if string is None and found["next"] is None:  # a comment
            return f"/* {LEFT_OUT} */" if TELLS.search(text) else text
        if string is not None and string[0] != "`" and not (string[0] == '"' and is_name):
            is_secret = after in (_After.WORD, _After.IDENTIFIED) or TELLS.search(text)
            return f"{text[0]}{LEFT_OUT}{text[0]}" if is_secret else text
        if after in (_After.WORD, _After.IDENTIFIED) and HEX.fullmatch(text):
            return LEFT_OUT
        after = _behind(after, unquoted(text).lower())
        return text

    return _tokens(not mode & NO_BACKSLASH_ESCAPES, is_name).sub(told, sql)


def _behind(after: _After, word: str) -> _After:
    """`word` may be a mark, too."""
    if word == ";" or (word == "," and after is not _After.FOR):
        return _After.NOTHING
    if word == "identified" or after is _After.IDENTIFIED:
        return _After.IDENTIFIED
    if SECRET.search(word):
        return _After.WORD
    if after is _After.FOR:
        return _After.WORD if word == "=" else after
    if after is _After.WORD and BETWEEN.fullmatch(word):
        return after
    if after is _After.WORD and word == "for":
        return _After.FOR
    if after is _After.NOTHING:
        return after
    return _After.WORD if word == "default" else _After.TYPE


@cache
def _tokens(escapes: bool, is_name: bool) -> re.Pattern[str]:
    known = string_or_comment(escapes, is_name).pattern
    return re.compile(rf"{known}|(?P<next>[\w$]+|[^\s\w$])", re.DOTALL)
