"""Databases whose log does not have all of their changes, or not as they were: refused, by what they say of themselves. And what is
left of a snapshot that ends early."""

from collections.abc import Callable, Iterator
from typing import Any

import pymysql
import pytest
from fencepost.clients.binlog import Settings
from fencepost.clients.binlog.columns import Column, Table
from fencepost.clients.binlog.database import CannotFollow, Database
from fencepost.clients.binlog.gtids import MARIADB, MYSQL
from fencepost.clients.binlog.what_is_logged import NEEDED

VARIABLES = {name: NEEDED[name][0] for name in NEEDED} | {
    "gtid_mode": "ON",
    "sync_binlog": "1",
    "innodb_flush_log_at_trx_commit": "1",
}
TABLE = Table("shop", "orders", (Column("id", "int"),), ("id",))


class Told(Database):
    """Says what it is told to, and keeps what it was asked."""

    def __init__(self, flavor: str = MARIADB, **told: str) -> None:
        self.flavor, self._settings = flavor, Settings(source="s")
        self.variables = VARIABLES | told
        self.filters, self.received = (b"", b""), b""
        self.may_ask = True
        self.asked: list[str] = []

    def rows(self, sql: str, *_: str) -> Any:
        self.asked.append(sql)
        if "VARIABLES" in sql:
            return [(name.encode(), value.encode()) for name, value in self.variables.items()]
        if sql == "SHOW BINARY LOG STATUS" and self.flavor == MARIADB:
            raise pymysql.ProgrammingError(1064, "You have an error in your SQL syntax")
        if sql in ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS"):
            return [(b"binlog.000001", b"4", *self.filters)]
        if sql == "SELECT @@GLOBAL.gtid_slave_pos":
            return [(self.received,)]
        if "replication_connection_status" in sql:
            if not self.may_ask:
                raise pymysql.OperationalError(1142, "SELECT command denied")
            return [(b"3e11fa47", self.received)] if self.received else []
        if sql.startswith("SELECT @@GLOBAL.gtid_executed"):
            return [(b"a:1-7",)]
        return []


@pytest.mark.parametrize("flavor", [MARIADB, MYSQL])
def test_a_database_that_logs_all_of_its_changes_is_followed(flavor: str) -> None:
    assert Told(flavor).check() == ""
    off = Told(
        flavor, log_slave_updates="OFF"
    )  # MariaDB's default, of one that was never a replica
    assert off.check() == ""


@pytest.mark.parametrize("flavor", [MARIADB, MYSQL])
@pytest.mark.parametrize(
    ("filters", "said"),
    [((b"shop", b""), "binlog-do-db=shop"), ((b"", b"shop,tmp"), "binlog-ignore-db=shop,tmp")],
)
def test_a_database_that_logs_some_of_its_databases_is_refused(
    flavor: str, filters: tuple[bytes, bytes], said: str
) -> None:
    told = Told(flavor)
    told.filters = filters
    with pytest.raises(CannotFollow, match=f"{said}: .*Take the line out"):
        told.check()


def test_a_replica_that_does_not_log_what_it_is_told_is_refused() -> None:
    """Its snapshot was full, and its stream stood still for ever."""
    told = Told(log_slave_updates="OFF")
    told.received = b"0-1-7"
    with pytest.raises(CannotFollow, match=r"log_slave_updates=OFF.*0-1-7.*Follow the primary"):
        told.check()
    told.variables["log_slave_updates"] = "ON"
    assert told.check() == ""


@pytest.mark.parametrize("name", ["log_slave_updates", "log_replica_updates"])
def test_a_replica_of_mysqls_is_refused_too_if_it_can_be_asked(name: str) -> None:
    told = Told(MYSQL, **{name: "OFF"})
    told.received = b"a:1-7"
    with pytest.raises(
        CannotFollow, match=r"log_replica_updates=OFF.*\(a:1-7\).*RESET REPLICA ALL"
    ):
        told.check()
    told.may_ask = False
    assert told.check() == ""


def test_writes_of_mysql_wait_for_a_snapshot_only_for_seconds() -> None:
    told = Told(MYSQL)
    told.begin_snapshot()
    locks = told.asked.index("FLUSH TABLES WITH READ LOCK")
    assert told.asked[locks - 1] == "SET SESSION lock_wait_timeout = 10"
    ends = told.asked.index("UNLOCK TABLES")
    assert told.asked[ends + 1 :] == ["SET SESSION lock_wait_timeout = DEFAULT"]


class Cursor:
    """As PyMySQL's SSCursor: to close it reads what is left, while its result is active."""

    def __init__(self) -> None:
        self.read = 0
        self._result = self
        self.unbuffered_active = True

    def execute(self, _sql: str) -> None: ...

    def __iter__(self) -> Iterator[Any]:
        while self.read < 1_000:
            self.read += 1
            yield (b"1",)
        self.unbuffered_active = False

    def close(self) -> None:
        if self.unbuffered_active:
            self.read = 1_000


class Connection:
    def __init__(self) -> None:
        self.made = Cursor()
        self.is_dropped = False

    def cursor(self, _kind: Any) -> Cursor:
        return self.made

    def _force_close(self) -> None:
        self.is_dropped = True


@pytest.fixture
def snapshot() -> tuple[Connection, Callable[[], Iterator[Any]]]:
    told = Told()
    told._connection = connection = Connection()
    return connection, lambda: told.snapshot_rows(TABLE)


def test_what_is_left_of_a_snapshot_that_ends_early_is_not_read(snapshot) -> None:
    """A stop waited for the rest of the table, and readers of committed records behind it."""
    connection, rows = snapshot
    found = rows()
    for _ in range(10):
        next(found)
    found.close()  # as whoever raises out of the loop does
    assert (connection.made.read, connection.is_dropped) == (10, True)


def test_a_snapshot_that_is_read_to_its_end_keeps_its_connection(snapshot) -> None:
    connection, rows = snapshot
    assert len(list(rows())) == 1_000
    assert not connection.is_dropped


@pytest.mark.slow
def test_a_file_of_the_log_that_has_no_checksums_ends_the_source(sql, schema, followed) -> None:
    """Somebody turns them off for a while, as the source is away: it may not cut the ends off what was written then."""
    sql("CREATE TABLE t (id INT PRIMARY KEY, text VARCHAR(20))")
    followed.run()
    sql("SET GLOBAL binlog_checksum = NONE")
    try:
        sql("INSERT INTO t VALUES (1, 'hello')")
    finally:
        sql("SET GLOBAL binlog_checksum = CRC32")
    with pytest.raises(CannotFollow, match=r"has no checksums.*--resnapshot"):
        followed.run()
    followed.run(resnapshot=True)
    told = [each["after"] for each in followed.told("t") if each["op"] == "r"]
    assert told == [{"id": 1, "text": "hello"}]
