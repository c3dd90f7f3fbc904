"""What a statement in the binary log is: its kind, its savepoint; of a schema change what it does (`schema_statements.py`).

INVARIANT  a statement is known by its verb, whatever comments, marks of a version or `SET STATEMENT … FOR` stand before that.
PREVENTS   `-- hi` and a line's end before an INSERT or a TRUNCATE: a change that nobody sees.
PROVED BY  tests/binlog/test_binlog_statements.py::test_a_statement_is_known_by_its_verb_whatever_stands_before_it
"""

import enum
import re
from functools import cache
from typing import Final, NamedTuple

from .schema_statements import STRING, SchemaStatement, schema_statement_of, unquoted

# What MariaDB and MySQL do in `/*! … */` is no comment; one of a newer version is a plain comment in the log.
COMMENT: Final = r"/\*M?!\d*|/\*.*?\*/|\*/|--(?=\s|$)[^\n]*|#[^\n]*"
# A session's sql_mode, as the log has it: `"a"` is a name, and not a string; a backslash is a character like any other.
ANSI_QUOTES, NO_BACKSLASH_ESCAPES = 1 << 2, 1 << 20
SET_FOR: Final = re.compile(
    rf"set\s+statement\b(?:{STRING}|[^'\"`])*?\bfor\b\s*", re.IGNORECASE | re.DOTALL
)
NAME: Final = r"(`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\"|[\w$]+)"


class Kind(enum.Enum):
    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    SAVEPOINT = "savepoint"
    ROLLBACK_TO = "rollback to"
    RELEASE = "release savepoint"
    SCHEMA = "create, alter, drop, rename, truncate"
    DATA = "insert and the like"
    XA = "xa, but for xa rollback: that leaves nothing"
    OTHER = "anything else"


# Statements that may have a password in them are told to nobody.
NO_SECRETS: Final = r"(?!\s+(?:or\s+replace\s+)?(?:user|role|server)\b)"
# The first that matches.
KINDS: Final = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        (Kind.BEGIN, r"begin$"),
        (Kind.COMMIT, r"commit$"),
        (Kind.ROLLBACK, r"rollback$"),
        (Kind.SAVEPOINT, rf"savepoint\s*{NAME}$"),
        (Kind.ROLLBACK_TO, rf"rollback\s+(?:work\s+)?to\s*(?:savepoint\b\s*)?{NAME}$"),
        (Kind.RELEASE, rf"release\s+savepoint\s*{NAME}$"),
        (Kind.SCHEMA, r"(?:create|alter|drop|rename|truncate)\b" + NO_SECRETS),
        (Kind.DATA, r"(?:insert|update|delete|replace|load|with|call|do|select)\b"),
        (Kind.XA, r"xa\b(?!\s+rollback\b)"),
    )
)


class Statement(NamedTuple):
    kind: Kind
    savepoint: str = ""  # of the three that name one; names are the same in capitals
    schema: SchemaStatement = SchemaStatement()


def statement_of(sql: str, mode: int = 0) -> Statement:
    """`mode` is the sql_mode of the session that said it."""
    text = _plain(sql, mode)
    for kind, pattern in KINDS:
        found = pattern.match(text)
        if found is None:
            continue
        if kind is Kind.SCHEMA:
            return Statement(kind, schema=schema_statement_of(text))
        return Statement(kind, unquoted(found[1]).casefold() if found.groups() else "")
    return Statement(Kind.OTHER)


def _plain(sql: str, mode: int) -> str:
    """Without comments and what may stand before the verb, and with strings and names as a session without a mode would say them."""
    escapes, is_name = not mode & NO_BACKSLASH_ESCAPES, bool(mode & ANSI_QUOTES)

    def plain(found: re.Match[str]) -> str:
        text = found["string"] or " "
        if text[0] == '"' and is_name:
            return f"`{unquoted(text).replace('`', '``')}`"
        if text[0] in "'\"" and not escapes:
            return text.replace("\\", "\\\\")
        return text

    text = string_or_comment(escapes, is_name).sub(plain, sql).strip(" \t\r\n;")
    before = SET_FOR.match(text)
    return text[before.end() :] if before else text


@cache
def string_or_comment(escapes: bool, is_name: bool) -> re.Pattern[str]:
    quoted = (
        _quoted("'", escapes=escapes),
        _quoted('"', escapes=escapes and not is_name),
        _quoted("`", escapes=False),
    )
    return re.compile(rf"(?P<string>{'|'.join(quoted)})|{COMMENT}", re.DOTALL)


def _quoted(mark: str, *, escapes: bool) -> str:
    """A pattern of what stands between two of `mark`, which is said twice inside; or behind a backslash, if that escapes."""
    inside = rf"[^{mark}\\]|\\." if escapes else f"[^{mark}]"
    return f"{mark}(?:{inside}|{mark}{mark})*{mark}"
