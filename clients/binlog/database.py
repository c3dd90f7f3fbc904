"""The database, asked in SQL: whether it can be followed, which tables there are, and a consistent snapshot of them.

INVARIANT  all rows of a snapshot are as of one position, and the stream goes on from exactly that one.
PREVENTS   a row that is in both, or in neither: inserted while the tables were read one after the other.
PROVED BY  tests/binlog/test_binlog_mariadb.py::test_what_changes_while_the_snapshot_is_taken_is_there_once

MariaDB tells a consistent snapshot's place in its binary log (`binlog_snapshot_*`); MySQL is held for a moment with
FLUSH TABLES WITH READ LOCK, between whose lines nothing commits.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from ssl import SSLSocket
from typing import Any, Final, Self

import pymysql
from pymysql.connections import Connection
from pymysql.constants import CR
from pymysql.converters import conversions
from pymysql.cursors import SSCursor

from .columns import Table, column_of_catalogue
from .gtids import MARIADB, MYSQL
from .patterns import selects
from .schema_statements import schema_statement_of
from .settings import Settings
from .values import Value, from_select, quoted, selected
from .what_is_logged import (
    logs_what_it_receives,
    refused_filters,
    refused_replica,
    refused_variables,
    unsynced,
)

CONNECT_S: Final = 10
READ_S: Final = 30.0  # a database whose log is followed sends something more often
QUERY_S: Final = 1_800.0  # a large table may be sorted before its first row comes
WAIT_FOR_US_S: Final = 600  # the database waits so long when Kafka is slower than it is
LOCK_S: Final = 10  # all writes of MySQL wait so long at most, when a snapshot begins
# Only text goes out, only bytes come in: what they mean is said by the columns.
CONVERSIONS: Final = {key: conversions[key] for key in conversions if not isinstance(key, int)}
# Not left to what the server gives to a new session: a part of the rows, CHARs with their blanks, an end in the middle. What a
# comment has is MariaDB's, and MySQL's.
SESSION: Final = (
    "SET SESSION sql_mode = '', SESSION sql_select_limit = 18446744073709551615"
    " /*M!100100 , SESSION max_statement_time = 0 */ /*!80000 , SESSION max_execution_time = 0 */"
)
TRANSACTIONAL: Final = ("innodb", "rocksdb")
# MySQL's numbers of errors: the user has no right, or not to all columns; the table, or all of its schema, is there no more.
MAY_NOT, GONE = (1044, 1142, 1143), (1049, 1146)
SMALL: Final = (b"1", b"2")  # of lower_case_table_names
VERSIONED: Final = "SYSTEM VERSIONED"  # MariaDB's word for such a table in its catalogue


class CannotFollow(Exception):
    """No try helps: what is wrong with the database or its settings, and what to do."""


class SourceLost(Exception):
    """The connection is gone. Another one may do."""


class WatchedConnection(Connection):  # type: ignore[misc]  # it is untyped
    """Says that it is lost in words that `mysql-replication` does not know: that library would connect again by itself,
    from where it once began, and tell everything since then a second time."""

    def __init__(self, **settings: Any) -> None:
        self._needs_tls = bool(settings.get("ssl_ca"))
        super().__init__(**settings)

    def connect(self, sock: Any = None) -> None:
        where = self.unix_socket or f"{self.host}:{self.port}"
        refused = f"the database at {where} offers no TLS, which --tls-ca asks for: give it a certificate, or leave --tls-ca out"
        try:
            super().connect(sock)
        except pymysql.OperationalError as trouble:
            if trouble.args[0] == CR.CR_SSL_CONNECTION_ERROR:
                raise CannotFollow(refused) from trouble
            raise
        except RuntimeError as trouble:  # a package is not there, which PyMySQL names
            raise CannotFollow(
                f"the database at {where} asks for the password in a way that PyMySQL can't "
                f"answer without TLS or another package: {trouble}. `pip install -e '.[binlog]'` has the one for MySQL's "
                "caching_sha2_password, `pip install pymysql[ed25519]` the one for MariaDB's ed25519"
            ) from trouble
        # PyMySQL before 1.2 goes on in plain text.
        if self._needs_tls and not isinstance(self._sock, SSLSocket):
            self._force_close()
            raise CannotFollow(refused)

    def _read_packet(self, *arguments: Any, **named: Any) -> Any:
        try:
            return super()._read_packet(*arguments, **named)
        except pymysql.OperationalError as trouble:
            if trouble.args[0] in (2006, 2013):
                raise SourceLost(f"the database does not answer: {trouble.args[1]}") from trouble
            raise


def login(settings: Settings) -> dict[str, Any]:
    place: dict[str, Any] = {"unix_socket": settings.socket}
    if not settings.socket:
        place = {"host": settings.host, "port": settings.port}
    tls: dict[str, Any] = {}
    if settings.tls_ca:
        tls = {"ssl_ca": settings.tls_ca, "ssl_verify_cert": True, "ssl_verify_identity": True}
    return {
        **place,
        **tls,
        "user": settings.user,
        "password": settings.password,
        "charset": "utf8mb4",
        "connect_timeout": CONNECT_S,
        "read_timeout": READ_S,
    }


class Database:
    """One connection. Values come as bytes."""

    def __init__(self, settings: Settings) -> None:
        self._connection = WatchedConnection(
            **{**login(settings), "read_timeout": QUERY_S},
            use_unicode=False,
            conv=CONVERSIONS,
            autocommit=True,
            init_command=SESSION,
        )
        version = self.one("SELECT VERSION()")[0].decode()
        self.flavor = MARIADB if "mariadb" in version.lower() else MYSQL
        # All spellings of a name are one: 1, on Windows as a rule, keeps orders of `Orders`; 2, on macOS, keeps each as it was said.
        self.names_are_small = self.one("SELECT @@GLOBAL.lower_case_table_names")[0] in SMALL
        self._settings = settings.in_small_letters() if self.names_are_small else settings

    def close(self) -> None:
        if self._connection.open:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def rows(self, sql: str, *values: str) -> Sequence[Sequence[Any]]:
        with closing(self._connection.cursor()) as cursor:
            cursor.execute(sql, values or None)
            found: Sequence[Sequence[Any]] = cursor.fetchall()
            return found

    def one(self, sql: str, *values: str) -> Sequence[Any]:
        found = self.rows(sql, *values)
        assert found, f"no answer to {sql}"
        return found[0]

    # -- can it be followed ----------------------------------------------------------------------

    def check(self) -> str:
        """What is wrong and accepted, for a warning."""
        told = {
            name.decode().lower(): value.decode()
            for name, value in self.rows(
                "SHOW GLOBAL VARIABLES WHERE Variable_name LIKE 'binlog%' OR Variable_name LIKE 'log_bin%'"
                " OR Variable_name LIKE 'log_%_updates' OR Variable_name LIKE '%flush_log_at_trx_commit'"
                " OR Variable_name IN ('gtid_mode', 'sync_binlog')"
            )
        }
        where = self._settings.database
        self._refuse(refused_variables(where, self.flavor, told))
        self._refuse(refused_filters(where, *self._filters()))
        if not logs_what_it_receives(told):
            self._refuse(refused_replica(where, self.flavor, self._received()))
        found = unsynced(where, told)
        if not self._settings.accept_unsynced_binlog:
            self._refuse(
                found
                and f"{found}. Set it to 1 (SET GLOBAL, and in its configuration); or say --accept-unsynced-binlog, if that may be"
            )
        return found

    def _refuse(self, wrong: str) -> None:
        if wrong:
            raise CannotFollow(wrong)

    def _filters(self) -> tuple[str, str]:
        """Which databases alone are logged, and which are not."""
        try:
            status = self.one("SHOW BINARY LOG STATUS")
        except pymysql.ProgrammingError:  # MariaDB, and MySQL before 8.2
            status = self.one("SHOW MASTER STATUS")
        return status[2].decode(), status[3].decode()

    def _received(self) -> str:
        """What came from a primary. Of MySQL's nothing, if this user may not ask."""
        if self.flavor == MARIADB:
            return str(self.one("SELECT @@GLOBAL.gtid_slave_pos")[0].decode())
        try:
            found = self.rows(
                "SELECT source_uuid, received_transaction_set FROM performance_schema.replication_connection_status"
                " WHERE service_state <> 'OFF' OR received_transaction_set <> ''"
            )
        except pymysql.MySQLError as trouble:
            if trouble.args[0] not in (*MAY_NOT, *GONE):
                raise
            return ""
        return ", ".join((received or uuid).decode().replace("\n", "") for uuid, received in found)

    def now(self) -> str:
        """The position of what is committed."""
        name = "gtid_binlog_pos" if self.flavor == MARIADB else "gtid_executed"
        return str(self.one(f"SELECT @@GLOBAL.{name}")[0].decode()).replace("\n", "")

    # -- the catalogue ---------------------------------------------------------------------------

    def tables(self) -> list[Table]:
        """Those that are asked for, with their columns."""
        self.refuse_versioned()
        wanted = self._wanted("BASE TABLE")
        for schema, name, engine in wanted:
            if engine.lower() not in TRANSACTIONAL:
                raise CannotFollow(
                    f"{schema}.{name} has the engine {engine}, which has no transactions: no snapshot of it can be consistent. "
                    f"Leave it out with --tables, or ALTER TABLE {schema}.{name} ENGINE=InnoDB"
                )
        return [self._table(schema, name) for schema, name, _ in wanted]

    def refuse_versioned(self) -> None:
        """Of the tables that are asked for, whether a snapshot is taken or not. MySQL has none."""
        if self.flavor == MYSQL:
            return
        for schema, name, _ in self._wanted(VERSIONED):
            raise CannotFollow(refused_versioned(f"{schema}.{name}"))

    def cascades(self) -> str:
        """A foreign key of a table that is asked for, by which InnoDB changes its rows beneath the binary log: for a warning, if that
        is accepted. Which there are the catalogue of constraints says only to who may do more than SELECT."""
        for schema, name, engine in self._wanted("BASE TABLE"):
            if engine.lower() not in TRANSACTIONAL:
                continue
            made = self.one(f"SHOW CREATE TABLE {quoted(schema)}.{quoted(name)}")[1].decode()
            if schema_statement_of(made).cascades:
                said = refused_cascades(f"{schema}.{name}")
                if not self._settings.accept_cascades:
                    raise CannotFollow(said)
                return said
        return ""

    def refuse_unreadable(self, table: Table) -> None:
        """The catalogue leaves such a table out, and so did the snapshot; the log has its changes."""
        try:
            self.rows(f"SELECT * FROM {quoted(table.schema)}.{quoted(table.name)} LIMIT 0")  # noqa: S608 - quoted names
        except pymysql.MySQLError as trouble:
            if trouble.args[0] in MAY_NOT:
                raise CannotFollow(
                    f"{table.full_name} has changes, and this user may not read it ({trouble.args[1]}): the rows that it had are in no "
                    "topic. GRANT SELECT on it, and start with --resnapshot; or leave it out with --tables"
                ) from trouble
            if trouble.args[0] not in GONE:
                raise

    def _wanted(self, kind: str) -> list[tuple[str, str, str]]:
        """Schema, name and engine."""
        found = self.rows(
            "SELECT table_schema, table_name, engine FROM information_schema.tables WHERE table_type = %s"
            " ORDER BY table_schema, table_name",
            kind,
        )
        return [
            (schema.decode(), name.decode(), (engine or b"").decode())
            for schema, name, engine in found
            if selects(self._settings.tables, *self._called(schema.decode(), name.decode()))
        ]

    def _called(self, schema: str, name: str) -> tuple[str, str]:
        """Here, of what the catalogue has."""
        return (schema.lower(), name.lower()) if self.names_are_small else (schema, name)

    def _table(self, schema: str, name: str) -> Table:
        fields = (
            *("table_schema", "table_name", "column_name", "data_type", "column_type"),
            *("numeric_precision", "numeric_scale", "datetime_precision"),
        )
        found = self.rows(
            f"SELECT {', '.join(fields)} FROM information_schema.columns"  # noqa: S608 - of names above
            " WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
            schema,
            name,
        )
        key = self.rows(
            "SELECT column_name FROM information_schema.statistics"
            " WHERE table_schema = %s AND table_name = %s AND index_name = 'PRIMARY' ORDER BY seq_in_index",
            schema,
            name,
        )
        columns = [
            column_of_catalogue(dict(zip(fields, map(_text, row), strict=True))) for row in found
        ]
        called = self._called(schema, name)
        return Table(*called, tuple(columns), tuple(row[0].decode() for row in key))

    # -- a snapshot ------------------------------------------------------------------------------

    def begin_snapshot(self) -> str:
        """From here on this connection sees everything as of the position that is returned."""
        self.rows("SET SESSION time_zone = '+00:00'")
        self.rows(f"SET SESSION net_write_timeout = {WAIT_FOR_US_S}")
        self.rows("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        begin = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
        if self.flavor == MYSQL:
            # Every write waits behind it, and it behind every query: better to try again.
            self.rows(f"SET SESSION lock_wait_timeout = {LOCK_S}")
            self.rows("FLUSH TABLES WITH READ LOCK")
            self.rows(begin)
            position = self.now()
            self.rows("UNLOCK TABLES")
            self.rows("SET SESSION lock_wait_timeout = DEFAULT")  # nobody waits for one table alone
            return position
        self.rows(begin)
        told: list[Any] = list(self.rows("SHOW STATUS LIKE 'binlog_snapshot_%'"))
        place = dict(told)
        file, at = (
            place[name].decode() for name in (b"Binlog_snapshot_file", b"Binlog_snapshot_position")
        )
        found = self.one("SELECT BINLOG_GTID_POS(%s, " + str(int(at)) + ")", file)
        if found[0] is None:  # which is not "", the beginning of the log
            raise SourceLost(
                f"the database no longer has its log {file}, in which the snapshot began: it was purged just then, and the snapshot "
                "begins anew"
            )
        return str(found[0].decode())

    def snapshot_rows(self, table: Table) -> Iterator[dict[str, Value]]:
        """By primary key; not all of them at a time."""
        names = ", ".join(selected(each) for each in table.columns)
        order = ", ".join(quoted(each) for each in table.primary_key)
        sql = f"SELECT {names} FROM {quoted(table.schema)}.{quoted(table.name)}"  # noqa: S608 - quoted names
        converters = [(each.name, from_select(each)) for each in table.columns]
        cursor = self._connection.cursor(SSCursor)
        is_read = False
        try:
            cursor.execute(sql + (f" ORDER BY {order}" if order else ""))
            for row in cursor:
                yield {
                    name: None if value is None else convert(value)
                    for (name, convert), value in zip(converters, row, strict=True)
                }
            is_read = True
        finally:
            if not is_read:
                self._drop(cursor)
            cursor.close()

    def _drop(self, cursor: SSCursor) -> None:
        """What is left of the rows is not wanted: to close the cursor would read it, however much it is."""
        self._connection._force_close()
        result = cursor._result
        if result is not None:
            result.unbuffered_active = False


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def refused_cascades(table: str) -> str:
    return (
        f"{table} has a foreign key that changes its rows when another table's go or change (CASCADE, SET NULL): InnoDB does that "
        "beneath the binary log, and no topic can follow it. Leave the table out with --tables; or give it a foreign key that "
        "refuses (RESTRICT), and start with --resnapshot; or say --accept-cascades, if its topic may be wrong"
    )


def refused_versioned(table: str) -> str:
    return (
        f"{table} is a system-versioned table: it keeps the rows that it had, and logs a DELETE as an UPDATE, so a topic of it "
        f"would never lose a row. Leave it out with --tables, or ALTER TABLE {table} DROP SYSTEM VERSIONING; then start with "
        "--resnapshot"
    )
