"""What happens in a database, in the order in which it was committed: what the binary log tells, without its bytes."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from .columns import Table
from .values import Value

Row = Mapping[str, Value]
CREATE, UPDATE, DELETE, READ, TRUNCATE = "c", "u", "d", "r", "t"  # Debezium's letters
IN_SNAPSHOT: Final = "snapshot"


class Change(NamedTuple):
    """A row that was there at the snapshot, was inserted, updated or deleted; or a table that was emptied."""

    gtid: str  # of its transaction; of a snapshot the position at which it was taken
    number: int  # which row of that, from 0: with `gtid` it names this change and no other
    ts_ms: int
    table: Table
    op: str
    before: Row | None = None
    after: Row | None = None


class SchemaChange(NamedTuple):
    gtid: str
    ts_ms: int
    schema: str  # the one that was in use
    sql: str
    drops_schema: str = ""  # all tables of it are gone


class TransactionEnd(NamedTuple):
    """All of a transaction has been told."""

    gtid: str


class Idle(NamedTuple):
    """Nothing has happened for a while."""


class Untold(NamedTuple):
    """Something was logged of which there is nothing to tell, or not yet: a large transaction can be many of these."""


Event = Change | SchemaChange | TransactionEnd | Idle | Untold
