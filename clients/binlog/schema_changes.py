"""What a schema change means for topics: whether it is told, which of them it empties, and whether it ends the source.

INVARIANT  rows that appear in a followed table, or vanish from it, without being logged are told as gone, or end the source.
PREVENTS   a topic that is for ever another table than the one it is named after, and nobody told.
PROVED BY  tests/binlog/test_binlog_schema_changes.py::test_rows_that_come_or_go_unlogged_end_the_source

| statement | what follows |
| --- | --- |
| TRUNCATE, DROP TABLE, CREATE OR REPLACE TABLE, DROP DATABASE | `t`: all rows are gone |
| a RENAME of a followed table to a name that is not followed | `t` of the old name |
| a RENAME to a name that is followed, from whatever name | the end: its rows are not in that name's topic |
| ALTER TABLE … DROP PARTITION and the like, … IMPORT TABLESPACE, ALTER IGNORE | the end: which rows only the database knows |
| a primary key of other columns, or of a type with another JSON, of a table that rows were told of | the end, at the next row |
| a foreign key of a followed table with ON DELETE or UPDATE … CASCADE, SET NULL | the end, unless that is accepted |

Who wants changes alone (`--snapshot never`) has the rows of no table, so that a RENAME, or another key, takes nothing from him.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from .columns import Table, key_form
from .database import CannotFollow, refused_cascades, refused_versioned
from .patterns import selects, selects_schema
from .schema_statements import Name, SchemaStatement
from .settings import INITIAL

ANEW: Final = f"start with --resnapshot (and --snapshot {INITIAL}): it tells all rows as gone, and reads the tables anew"


class LoggedAsStatement(Exception):
    """It fills a table, and is no row."""


def emptied_by(
    found: SchemaStatement,
    schema: str,
    patterns: Sequence[str],
    *,
    rows_are_read: bool,
    cascades_are_accepted: bool = False,
) -> Sequence[Name] | None:
    """The tables that are followed and have no rows any more; None for what is nobody's concern; CannotFollow when no record can
    say what is done. `schema` is the one in use."""
    watched = [each for each in _full(found.tables, schema) if selects(patterns, *each)]
    if not watched and (found.tables or not selects_schema(patterns, found.drops_schema or schema)):
        return None
    names = ", ".join(".".join(each) for each in watched)
    if watched and found.fills:
        raise LoggedAsStatement
    if watched and found.versions:
        raise CannotFollow(refused_versioned(names))
    if watched and found.cascades and not cascades_are_accepted:
        raise CannotFollow(refused_cascades(names))
    if found.unlogged:
        raise CannotFollow(
            f"{found.unlogged} takes rows out of {names}, or puts rows there, without logging them, so no topic can follow it. "
            f"To go on {ANEW}. Rows that a DELETE takes out are logged"
        )
    emptied = _full(found.empties, schema)
    for pair in found.renames:
        before, after = _full(pair, schema)
        if before == after:
            continue
        emptied.append(before)
        if rows_are_read and selects(patterns, *after):
            if_there = (
                ", if it was there (IF EXISTS: the log does not say)"
                if found.renames_if_there
                else ""
            )
            raise CannotFollow(
                f"{'.'.join(before)} was renamed to {'.'.join(after)}, which is followed{if_there}: the rows that it had are in no topic of "
                f"that name. To go on {ANEW}. (Tools that change a table by copying it end with such a RENAME.)"
            )
    return [each for each in emptied if each in watched]


def refuse_another_key(before: Mapping[str, Any], table: Table, gtid: str) -> None:
    """`before` is the table when rows of it were told last. Its rows are in the topic under the keys of then: a DELETE would drop
    another key, and an UPDATE leave the old record beside the new one."""
    if key_form(before) == key_form(table.as_json()):
        return
    was, now = (
        f"({', '.join(each)})" if each else "none"
        for each in (before["primary_key"], table.primary_key)
    )
    raise CannotFollow(
        f"{gtid}: the primary key of {table.full_name} is {now} now and was {was}, or has another type: its rows are in the topic "
        f"under their old keys, and would stay there for ever. To go on {ANEW}"
    )


def _full(names: Sequence[Name], schema: str) -> list[Name]:
    return [(each[0] or schema, each[1]) for each in names]
