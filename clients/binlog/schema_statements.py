"""What a statement that changes a schema does to tables and their rows: which it names, empties, renames. Text in, names out.

INVARIANT  each statement that takes rows out of a table, or puts rows there, and logs none of them, is known here as such.
PREVENTS   rows that are gone from the table and for ever in its topic: DROP TABLE, DROP PARTITION; or that no one has read: RENAME.
PROVED BY  tests/binlog/test_binlog_statements.py::test_what_empties_renames_and_moves_rows_is_seen
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

STRING: Final = r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`(?:[^`]|``)*`"
TOKEN: Final = re.compile(rf"{STRING}|[\w$]+|[^\s\w$]", re.DOTALL)
FILLS: Final = re.compile(
    r"create\s+(?:or\s+replace\s+)?table\b.*\bselect\b", re.IGNORECASE | re.DOTALL
)
VERSIONS: Final = re.compile(
    r"(?:create|alter)\b.*\b(?:with|add)\s+system\s+versioning\b", re.IGNORECASE | re.DOTALL
)
# What InnoDB does beneath the binary log to rows of the table that has the foreign key.
CASCADES: Final = re.compile(
    r"\bon\s+(?:delete|update)\s+(?:cascade|set\s+null|set\s+default)\b", re.IGNORECASE
)
VERBS: Final = ("create", "alter", "drop", "rename", "truncate")
# Of an ALTER TABLE, side by side: rows come or go with a partition or a file, and are not logged.
UNLOGGED: Final = frozenset(
    (
        *((verb, "partition") for verb in ("drop", "truncate", "exchange", "convert")),
        *((verb, "partition") for verb in ("discard", "import")),
        *((verb, "tablespace") for verb in ("discard", "import")),
        ("convert", "table"),  # MariaDB's, to a partition
    )
)
# What an ALTER IGNORE TABLE may do and leaves no row out: other alterations do, to what is a duplicate or out of bounds then.
KEEPS_ROWS: Final = ("add", "drop", "alter", "rename", "comment", "algorithm", "lock")
PLAIN_KEYS: Final = ("index", "key", "fulltext", "spatial")
# Words by which these, too, leave rows out: a column that is added may be a key, and a period has a CHECK.
LEAVES_OUT: Final = frozenset(("unique", "primary", "key", "check", "period", "partition"))

Name = tuple[str, str]  # schema, or nothing, and table


class SchemaStatement(NamedTuple):
    tables: tuple[Name, ...] = ()  # all that it names; none of an index's, a view's, a database's
    empties: tuple[Name, ...] = ()  # TRUNCATE, DROP TABLE, CREATE OR REPLACE TABLE
    renames: tuple[tuple[Name, Name], ...] = ()
    renames_if_there: bool = False  # IF EXISTS: it is logged where nothing was renamed, too
    drops_schema: str = ""
    unlogged: str = ""  # the words of UNLOGGED that are in it
    fills: bool = False  # CREATE TABLE … SELECT: as rows it is logged without the SELECT
    versions: bool = False  # it makes the table system-versioned
    cascades: bool = False  # it gives the table a foreign key that changes its rows

    def in_small_letters(self) -> "SchemaStatement":
        """As a server calls them that has all names so, whatever the statement does."""
        return self._replace(
            tables=_small(self.tables),
            empties=_small(self.empties),
            renames=tuple((_small((old,))[0], _small((new,))[0]) for old, new in self.renames),
            drops_schema=self.drops_schema.lower(),
        )


def _small(names: Sequence[Name]) -> tuple[Name, ...]:
    return tuple((schema.lower(), table.lower()) for schema, table in names)


class _Tokens:
    def __init__(self, text: str) -> None:
        self._found = TOKEN.findall(text)
        self._at = 0

    @property
    def next(self) -> str:
        """In small letters; nothing at the end."""
        return self._found[self._at].lower() if self._at < len(self._found) else ""

    def skip(self) -> str:
        word = self.next
        self._at += 1
        return word

    def take(self, *words: str) -> str:
        """The next one if it is one of them, else nothing."""
        return self.skip() if self.next in words else ""

    def name(self) -> str:
        """Nothing when no name comes."""
        if not re.fullmatch(r"[\w$]+|`.+`|\".+\"", self.next, re.DOTALL):
            return ""
        self._at += 1
        return unquoted(self._found[self._at - 1])

    def full_name(self) -> Name:
        first = self.name()
        return (first, self.name()) if self.take(".") else ("", first)


def schema_statement_of(text: str) -> SchemaStatement:
    """`text` has no comments and begins with its verb (`statements.py`)."""
    without_strings = re.sub(STRING, "''", text, flags=re.DOTALL)
    return _read(_Tokens(text))._replace(
        fills=FILLS.match(without_strings) is not None,
        versions=VERSIONS.match(without_strings) is not None,
        cascades=CASCADES.search(without_strings) is not None,
    )


def _read(tokens: _Tokens) -> SchemaStatement:
    verb = tokens.take(*VERBS)
    replaces = bool(tokens.take("or") and tokens.take("replace"))
    marks = set()
    while mark := tokens.take("ignore", "online", "temporary"):
        marks.add(mark)
    if verb == "drop" and tokens.take("database", "schema"):
        _if_exists(tokens)
        return SchemaStatement(drops_schema=tokens.name())
    if not tokens.take("table", "tables") and verb != "truncate":
        return SchemaStatement()
    is_conditional = _if_exists(tokens)
    if verb == "rename":
        return _renamed(tokens)._replace(renames_if_there=is_conditional)
    tables = [tokens.full_name()]
    if verb == "alter":
        altered = _altered(tokens, tables[0], "ignore" in marks)
        return altered._replace(renames_if_there=is_conditional and bool(altered.renames))
    while verb == "drop" and tokens.take(","):
        tables.append(tokens.full_name())
    empties = verb in ("drop", "truncate") or replaces
    # A temporary table has the name of another, and none of its rows.
    return SchemaStatement(
        tuple(tables), tuple(tables) if empties and "temporary" not in marks else ()
    )


def _if_exists(tokens: _Tokens) -> bool:
    if not tokens.take("if"):
        return False
    tokens.take("not")
    return bool(tokens.take("exists"))


def _renamed(tokens: _Tokens) -> SchemaStatement:
    """`a WAIT 5 TO b, c TO d`."""
    pairs = []
    while True:
        old = tokens.full_name()
        while tokens.next not in ("to", ""):
            tokens.skip()
        tokens.skip()
        pairs.append((old, tokens.full_name()))
        if not tokens.take(","):
            break
    return SchemaStatement(tuple(name for pair in pairs for name in pair), renames=tuple(pairs))


def _altered(tokens: _Tokens, table: Name, is_ignore: bool) -> SchemaStatement:
    tables, renames, unlogged = [table], [], ""
    depth, before = 0, ""
    alterations: list[list[str]] = [[]]
    if not tokens.take("nowait") and tokens.take("wait"):
        tokens.skip()
    while tokens.next:
        word = tokens.skip()
        alterations[-1].append(word)
        depth += (word == "(") - (word == ")")
        if depth:
            pass
        elif word == ",":
            alterations.append([])
        elif word == "rename" and tokens.next not in ("column", "index", "key"):
            tokens.take("to", "as", "=")
            renames.append((table, tokens.full_name()))
        elif (before, word) in UNLOGGED:
            unlogged = f"{before} {word}".upper()
        if word == "table" and not depth:  # EXCHANGE PARTITION p WITH TABLE t
            tables.append(tokens.full_name())
        before = word
    tables += [new for _, new in renames]
    if is_ignore and not unlogged and not all(map(_keeps_rows, alterations)):
        unlogged = "ALTER IGNORE"
    return SchemaStatement(tuple(tables), renames=tuple(renames), unlogged=unlogged)


def _keeps_rows(alteration: Sequence[str]) -> bool:
    """Of an ALTER IGNORE TABLE, by its words."""
    verb, what = [*alteration, "", ""][:2]
    return verb in KEEPS_ROWS and (what in PLAIN_KEYS or LEAVES_OUT.isdisjoint(alteration))


def unquoted(name: str | None) -> str:
    if name and name[0] in '`"':
        return name[1:-1].replace(name[0] * 2, name[0])
    return name or ""
