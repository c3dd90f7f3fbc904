"""A shop's database (SQLite): its orders, and an outbox. Every method is one transaction of its own."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

TABLES: Final = """
CREATE TABLE IF NOT EXISTS orders (
  id TEXT PRIMARY KEY, item TEXT, cents INTEGER,
  state TEXT NOT NULL CHECK (state IN ('placed', 'given up')));
CREATE TABLE IF NOT EXISTS outbox (
  number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, message TEXT NOT NULL);
"""
CENTS_MAX: Final = 1_000_000
WAIT_S: Final = 10.0


class Order(NamedTuple):
    id: str
    item: str
    cents: int

    def message(self) -> bytes:
        return json.dumps({"order": self.id, "item": self.item, "cents": self.cents}).encode()


class Refused(Exception):
    """The shop does not take this order."""


class Shop:
    def __init__(self, path: Path) -> None:
        self._path = path
        with closing(self._connect()) as connection:
            connection.executescript(TABLES)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=WAIT_S, isolation_level=None)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Committed at its end, rolled back when the block raises."""
        with closing(self._connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise

    def insert(self, connection: sqlite3.Connection, order: Order) -> None:
        if order.cents > CENTS_MAX:
            raise Refused(f"{order.id}: {order.cents} cents, and {CENTS_MAX} is the most")
        try:
            connection.execute(
                "INSERT INTO orders VALUES (?, ?, ?, 'placed')", (order.id, order.item, order.cents)
            )
        except sqlite3.IntegrityError as taken:
            raise Refused(f"{order.id} is there already, or was given up") from taken

    def settle(self, order_id: str) -> bool:
        """Whether the order is placed; if it is not it never will be, for its id is taken from now on."""
        with self.transaction() as connection:
            connection.execute(
                "INSERT INTO orders VALUES (?, NULL, NULL, 'given up') ON CONFLICT DO NOTHING",
                (order_id,),
            )
            found = connection.execute("SELECT state FROM orders WHERE id = ?", (order_id,))
            return bool(found.fetchone()[0] == "placed")

    def orders(self) -> list[str]:
        with closing(self._connect()) as connection:
            found = connection.execute("SELECT id FROM orders WHERE state = 'placed' ORDER BY id")
            return [row[0] for row in found]

    # -- the outbox ------------------------------------------------------------------------------

    def waiting(self, after: int, most: int) -> list[tuple[int, str, str]]:
        """Messages behind a number, in the order in which they were committed: SQLite has one writer at a time."""
        with closing(self._connect()) as connection:
            sql = "SELECT number, key, message FROM outbox WHERE number > ? ORDER BY number LIMIT ?"
            return list(connection.execute(sql, (after, most)))

    def forget(self, up_to: int) -> None:
        with self.transaction() as connection:
            connection.execute("DELETE FROM outbox WHERE number <= ?", (up_to,))
