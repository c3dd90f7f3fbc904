"""Which tables are followed: `shop.*` and the like, and whether other patterns take in more of them. Text alone.

INVARIANT  patterns that may match a table which those before them don't are never taken for a part of those.
PREVENTS   a table that comes to be followed in the middle: its old rows are read by nobody, and nobody says so.
PROVED BY  tests/binlog/test_binlog_patterns.py::test_patterns_that_match_more_are_never_taken_for_a_part
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

SYSTEM_SCHEMAS: Final = ("information_schema", "mysql", "performance_schema", "sys")
SPECIAL: Final = frozenset("*?[")


def selects(patterns: Sequence[str], schema: str, name: str) -> bool:
    """Never the database's own schemas."""
    if schema in SYSTEM_SCHEMAS:
        return False
    return any(
        fnmatchcase(schema, left) and fnmatchcase(name, right)
        for left, _, right in (each.partition(".") for each in patterns)
    )


def selects_schema(patterns: Sequence[str], schema: str) -> bool:
    return schema not in SYSTEM_SCHEMAS and any(
        fnmatchcase(schema, each.partition(".")[0]) for each in patterns
    )


def widened(before: Sequence[str], now: Sequence[str]) -> list[str]:
    """Those of `now` that may match what none of `before` does."""
    return [each for each in now if not any(_covers(other, each) for other in before)]


def _covers(before: str, now: str) -> bool:
    (schema, _, name), (new_schema, _, new_name) = before.partition("."), now.partition(".")
    return _part_covers(schema, new_schema) and _part_covers(name, new_name)


def _part_covers(before: str, now: str) -> bool:
    """Whether `before` matches all that `now` does. It is said only where it is plain: a star is the one thing that may stand
    for another pattern's star, so `a*` covers `a*b`, and of two with `[…]` none the other."""
    if before in (now, "*"):
        return True
    if not SPECIAL & set(now):
        return fnmatchcase(now, before)
    return not set("?[") & set(before) and "[" not in now and fnmatchcase(now, before)
