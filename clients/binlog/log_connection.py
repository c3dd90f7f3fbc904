"""The connection that the binary log comes by: from a position on, until it ends; and why it ended.

INVARIANT  a stream that the database ended is told for what it is: overtaken, no longer there, too large, damaged.
PREVENTS   a snapshot of everything because one event was larger than max_allowed_packet, or two sources that cut each other off.
PROVED BY  tests/binlog/test_binlog_connection.py::test_why_the_database_ended_the_stream_is_told_by_its_words
"""

import re
from collections.abc import Iterator
from typing import Any, Final, Self

import pymysql
from pymysql.connections import Connection
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.exceptions import StatusVariableMismatch

from . import driver_columns
from .binlog_stream import FOLLOWED, Interpreter
from .changes import Event, Untold
from .database import CannotFollow, SourceLost, WatchedConnection, login
from .gtids import MARIADB, MYSQL
from .rollbacks import LeftOut
from .settings import INITIAL, Settings

HEARTBEAT_S: Final = 0.2  # of a log in which nothing happens
CANT_READ_ON: Final = (
    1236  # ER_MASTER_FATAL_ERROR_READING_BINLOG, whatever the cause: only the text says which
)
SAME_ID: Final = 4052  # MariaDB's ER_SLAVE_SAME_ID
# What the texts beside CANT_READ_ON have in common (MariaDB 10.11's program, MySQL 8.0's errmsg and rpl_binlog_sender.cc).
DISPLACED_TEXT: Final = re.compile(r"same server_(?:uu)?id", re.IGNORECASE)
TOO_LARGE_TEXT: Final = re.compile(r"exceeded max_allowed_packet", re.IGNORECASE)
PURGED_TEXT: Final = re.compile(
    r"purged|not in the (?:master|source)'s binlog|missing the GTID|more GTIDs than|first log file name|GTID state requested",
    re.IGNORECASE,
)


class Purged(CannotFollow):
    """The database no longer has what comes next."""


class Displaced(SourceLost):
    """Somebody else follows the database as the same replica: a newer copy of this source, or a stranger."""


def _connect(**settings: Any) -> Connection:
    """The driver still says `db`, which PyMySQL warns of."""
    if "db" in settings:
        settings["database"] = settings.pop("db")
    return WatchedConnection(**settings)


def refuse_nowhere(flavor: str, position: str, where: str) -> None:
    """The driver would take no position of MySQL's for "from now on"."""
    if flavor == MYSQL and not position:
        raise CannotFollow(
            f"the database at {where} has logged no transaction yet (gtid_executed is empty): commit one, then start again"
        )


class BinlogStream:
    """Everything that was committed after a position."""

    def __init__(
        self,
        settings: Settings,
        flavor: str,
        position: str,
        left_out: LeftOut | None = None,
        *,
        names_are_small: bool = False,
    ) -> None:
        refuse_nowhere(flavor, position, settings.database)
        self._settings, self._position = settings, position
        self._interpreter = Interpreter(
            settings.tables,
            flavor,
            left_out,
            rows_are_read=settings.snapshot == INITIAL,
            cascades_are_accepted=settings.accept_cascades,
            names_are_small=names_are_small,
        )
        driver_columns.teach()
        self._driver = BinLogStreamReader(
            connection_settings=login(settings),
            server_id=settings.replica_id,
            blocking=True,
            resume_stream=True,
            only_events=list(FOLLOWED),
            filter_non_implemented_events=False,
            auto_position=position,
            is_mariadb=flavor == MARIADB,
            slave_heartbeat=HEARTBEAT_S,
            pymysql_wrapper=_connect,
            enable_logging=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._driver.close()

    def events(self) -> Iterator[Event]:
        while True:
            try:
                told = self._driver.fetchone()
            except pymysql.MySQLError as trouble:
                if trouble.args[0] in (CANT_READ_ON, SAME_ID):
                    raise self._ended(str(trouble.args[1])) from trouble
                raise
            except StatusVariableMismatch as trouble:
                raise CannotFollow(
                    f"the database at {self._settings.database} logged a statement with a mark that mysql-replication does not know. "
                    "Some session has set binlog_alter_two_phase (MariaDB's): have it use OFF, and start with --resnapshot; or a newer "
                    "version of that package may know it"
                ) from trouble
            if told is None:
                return
            is_told = False
            for each in self._interpreter.take(told):
                is_told = True
                yield each
            if not is_told:  # else what was told before would wait until a large transaction ends
                yield Untold()

    def _ended(self, said: str) -> Exception:
        where, after = self._settings.database, self._position or "the beginning of its log"
        if DISPLACED_TEXT.search(said):
            return Displaced(
                f"another one follows the database at {where} as the replica {self._settings.replica_id}: {said}. If that is no copy "
                "of this source, give this one a number of its own with --server-id"
            )
        if TOO_LARGE_TEXT.search(said):
            return CannotFollow(
                f"the database at {where} has an event that it does not send: {said}. Raise max_allowed_packet there (1G is the most), "
                "and start again: this goes on where it was"
            )
        if PURGED_TEXT.search(said):
            return Purged(
                f"the database at {where} can't go on from {after}: {said}. What comes next is no longer in its binary log, or this "
                "is another database: start with --resnapshot, which reads all tables anew, and keep the log longer "
                "(expire_logs_days, binlog_expire_logs_seconds)"
            )
        return CannotFollow(
            f"the database at {where} can't read its binary log behind {after}: {said}. Its error log says more. If that passes, start "
            "again: this goes on where it was. If the log is damaged, what it has there is lost: start with --resnapshot, which "
            "reads all tables anew"
        )
