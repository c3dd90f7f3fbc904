"""The database of the pipeline: a shop's orders, somebody who writes them, and what SQL says that comes out of them."""

import random
import threading
import time
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import pymysql

SCHEMA: Final = "shop"
REGIONS: Final = ("north", "south", "east", "west")
WINDOW_S: Final = 10
ALERT_FROM: Final = Decimal("900.00")
FIRST_ORDERS: Final = 60  # there before anybody follows: they come by the snapshot
TABLE: Final = """
CREATE TABLE orders (
  id BIGINT UNSIGNED PRIMARY KEY AUTO_INCREMENT,
  customer VARCHAR(40) NOT NULL,
  region ENUM('north','south','east','west') NOT NULL,
  amount DECIMAL(10,2) NOT NULL,
  status ENUM('placed','paid','cancelled') NOT NULL DEFAULT 'placed',
  placed_at DATETIME(3) NOT NULL,
  version INT UNSIGNED NOT NULL DEFAULT 1 -- how often it was written
)"""
# What each window of a region comes to, and how many changes that took.
REVENUE: Final = f"""
SELECT region,
  CONCAT(DATE_FORMAT(placed_at, '%Y-%m-%dT%H:%i:'), LPAD(FLOOR(SECOND(placed_at) / {WINDOW_S}) * {WINDOW_S}, 2, '0')),
  SUM(IF(status = 'cancelled', 0, amount)), SUM(status <> 'cancelled'), SUM(version)
FROM orders GROUP BY 1, 2"""


class Shop:
    """One connection of its own."""

    def __init__(self, login: dict[str, Any]) -> None:
        self._connection = pymysql.connect(**login, charset="utf8mb4", autocommit=True)

    def create(self, seed: int) -> None:
        self.say(f"CREATE DATABASE {SCHEMA}")
        self._connection.select_db(SCHEMA)
        self.say(TABLE)
        die = random.Random(seed)
        for _ in range(FIRST_ORDERS):
            self.say(INSERT, *new_order(die))

    def use(self) -> "Shop":
        self._connection.select_db(SCHEMA)
        return self

    def say(self, sql: str, *values: Any) -> int:
        with closing(self._connection.cursor()) as cursor:
            return int(cursor.execute(sql, values or None))

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(self._connection.cursor()) as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def close(self) -> None:
        self._connection.close()


INSERT: Final = "INSERT INTO orders (customer, region, amount, placed_at) VALUES (%s, %s, %s, %s)"
UPDATE: Final = (
    "UPDATE orders SET status = %s, version = version + 1 WHERE id = %s AND status = 'placed'"
)


def new_order(die: random.Random) -> tuple[str, str, Decimal, str]:
    amount = Decimal(die.randrange(100, 100_000)) / 100
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    return f"customer-{die.randrange(50)}", die.choice(REGIONS), amount, now


class Customers(threading.Thread):
    """Orders that are placed, paid and cancelled, some in transactions of several."""

    def __init__(self, login: dict[str, Any], *, seed: int, rate: float) -> None:
        super().__init__(name="customers", daemon=True)
        self._login, self._rate = login, rate
        self._die = random.Random(seed)
        self._over = threading.Event()
        self.inserted = FIRST_ORDERS
        self.updated = 0
        self.wrote_at = [time.time()] * FIRST_ORDERS  # one for each change
        self.failed: Exception | None = None

    def run(self) -> None:
        shop = Shop(self._login).use()
        began, done = time.monotonic(), 0
        try:
            while not self._over.is_set():
                done += self._write(shop)
                ahead_s = done / self._rate - (time.monotonic() - began)
                if ahead_s > 0:
                    self._over.wait(ahead_s)
        except pymysql.MySQLError as trouble:
            self.failed = trouble
        finally:
            shop.close()

    def _write(self, shop: Shop) -> int:
        statements = self._die.choice((1, 1, 1, 1, self._die.randrange(2, 5)))
        if statements > 1:
            shop.say("BEGIN")
        changed = [self._statement(shop) for _ in range(statements)]
        if statements > 1:
            shop.say("COMMIT")
        self.inserted += changed.count("insert")
        self.updated += changed.count("update")
        count = len(changed) - changed.count("")
        self.wrote_at += [time.time()] * count
        return statements

    def _statement(self, shop: Shop) -> str:
        roll = self._die.random()
        if roll < 0.75:
            shop.say(INSERT, *new_order(self._die))
            return "insert"
        status = "paid" if roll < 0.9 else "cancelled"
        number = self._die.randrange(1, self.inserted + 1)
        return "update" if shop.say(UPDATE, status, number) else ""

    def end(self) -> None:
        self._over.set()
        self.join()
        if self.failed is not None:
            raise self.failed
