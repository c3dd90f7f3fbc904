"""A shop's database (SQLite): its orders, and an outbox. Every method is one transaction of its own."""

import json
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

TABLES: Final = """
CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, item TEXT, cents INTEGER, attempt TEXT UNIQUE);
CREATE TABLE IF NOT EXISTS given_up (attempt TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS outbox (
  number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, message TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS shop (only_one INTEGER PRIMARY KEY CHECK (only_one = 1), id TEXT NOT NULL);
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
        with self.transaction() as connection:
            connection.execute(
                "INSERT INTO shop VALUES (1, ?) ON CONFLICT DO NOTHING", (uuid.uuid4().hex,)
            )
            self.id: str = connection.execute("SELECT id FROM shop").fetchone()[0]

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

    def insert(
        self, connection: sqlite3.Connection, order: Order, attempt: str | None = None
    ) -> None:
        """`attempt` names this try to place it, where somebody may ask what became of it."""
        if order.cents > CENTS_MAX:
            raise Refused(f"{order.id}: {order.cents} cents, and {CENTS_MAX} is the most")
        gone = connection.execute("SELECT 1 FROM given_up WHERE attempt = ?", (attempt,))
        if gone.fetchone():
            raise Refused(f"{order.id}: this attempt was given up, place the order again")
        try:
            connection.execute(
                "INSERT INTO orders VALUES (?, ?, ?, ?)",
                (order.id, order.item, order.cents, attempt),
            )
        except sqlite3.IntegrityError as taken:
            raise Refused(f"{order.id} is there already") from taken

    def settle(self, attempt: str) -> bool:
        """Whether this attempt placed its order; if it did not it never will. Another attempt may."""
        with self.transaction() as connection:
            placed = connection.execute("SELECT 1 FROM orders WHERE attempt = ?", (attempt,))
            if placed.fetchone():
                return True
            connection.execute("INSERT INTO given_up VALUES (?) ON CONFLICT DO NOTHING", (attempt,))
            return False

    def orders(self) -> list[str]:
        with closing(self._connect()) as connection:
            return [row[0] for row in connection.execute("SELECT id FROM orders ORDER BY id")]

    # -- the outbox ------------------------------------------------------------------------------

    def waiting(self, after: int, most: int) -> list[tuple[int, str, str]]:
        """Messages behind a number, in the order in which they were committed: SQLite has one writer at a time."""
        with closing(self._connect()) as connection:
            sql = "SELECT number, key, message FROM outbox WHERE number > ? ORDER BY number LIMIT ?"
            return list(connection.execute(sql, (after, most)))

    def last_number(self) -> int:
        """That any message ever had."""
        with closing(self._connect()) as connection:
            sql = "SELECT seq FROM sqlite_sequence WHERE name = 'outbox'"
            found = connection.execute(sql).fetchone()
            return int(found[0]) if found else 0

    def forget(self, up_to: int) -> None:
        with self.transaction() as connection:
            connection.execute("DELETE FROM outbox WHERE number <= ?", (up_to,))
