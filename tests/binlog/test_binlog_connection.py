"""Why the stream ended, by what the database says; and what comes of it while nothing is told. No database is asked."""

from types import SimpleNamespace
from typing import Any

import pymysql
import pytest
from fencepost.clients.binlog import Settings, log_connection
from fencepost.clients.binlog.binlog_stream import Interpreter
from fencepost.clients.binlog.changes import Idle, TransactionEnd, Untold
from fencepost.clients.binlog.database import CannotFollow, Database, SourceLost, login
from fencepost.clients.binlog.log_connection import BinlogStream, Displaced, Purged
from fencepost.clients.binlog.settings import WrongSetting
from pymysql.connections import Connection
from pymysqlreplication import event, row_event
from test_binlog_stream import ROW, gtid, rows, table_map, told

SETTINGS = Settings(source="s", tables=("shop.*",))


def stream_of(monkeypatch: pytest.MonkeyPatch, *found: Any) -> BinlogStream:
    """Its driver gives these, or raises them, and ends."""
    left = iter(found)

    def fetchone() -> Any:
        each = next(left, None)
        if isinstance(each, Exception):
            raise each
        return each

    driver = SimpleNamespace(fetchone=fetchone, close=lambda: None)
    monkeypatch.setattr(log_connection, "BinLogStreamReader", lambda **_: driver)
    return BinlogStream(SETTINGS, "mariadb", "0-1-6")


PURGED = (
    "can't go on from 0-1-6: .*--resnapshot, which reads all tables anew, and keep the log longer"
)
SAME = r"another one follows the database .* as the replica \d+: .*--server-id"
TOO_LARGE = r"an event that it does not send: .*Raise max_allowed_packet.*goes on where it was$"
DAMAGED = r"can't read its binary log behind 0-1-6: .*error log.*If the log is damaged"
# As MariaDB 10.11 and MySQL 8.0 say it.
SAID = [
    ("Could not find GTID state requested by slave in any binlog files. Probably the slave state is too old", Purged, PURGED),
    ("Error: connecting slave requested to start from GTID 0-1-5, which is not in the master's binlog", Purged, PURGED),
    ("The binlog on the master is missing the GTID 0-1-5 requested by the slave (even though a later one exists)", Purged, PURGED),
    ("Could not find first log file name in binary log index file", Purged, PURGED),
    ("Cannot replicate because the source purged required binary logs. Replicate the missing transactions from elsewhere", Purged, PURGED),
    ("Slave has more GTIDs than the master has, using the master's SERVER_UUID.", Purged, PURGED),
    ("A slave with the same server_uuid/server_id as this slave has connected to the master", Displaced, SAME),
    ("A replica with the same server_uuid/server_id as this replica has connected to the source; the first event", Displaced, SAME),
    ("log event entry exceeded max_allowed_packet; Increase max_allowed_packet on master; the first event 'binlog.000001' at 4",
     CannotFollow, TOO_LARGE),
    ("binlog truncated in the middle of event; consider out of disk space on master", CannotFollow, DAMAGED),
    ("event read from binlog did not pass crc check", CannotFollow, DAMAGED),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "said"), SAID)
def test_why_the_database_ended_the_stream_is_told_by_its_words(
    monkeypatch, text: str, kind: type[Exception], said: str
) -> None:
    trouble = pymysql.err.OperationalError(1236, text)
    with pytest.raises(kind, match=said) as raised:
        list(stream_of(monkeypatch, trouble).events())
    assert type(raised.value) is kind and text in str(raised.value)


def test_another_replica_of_the_same_number_is_no_purged_log(monkeypatch) -> None:
    """MariaDB has a number of its own for it, and it may pass."""
    trouble = pymysql.err.OperationalError(4052, SAID[6][0])
    with pytest.raises(SourceLost, match=SAME):
        list(stream_of(monkeypatch, trouble).events())


def test_something_is_given_for_what_is_logged_and_not_told(monkeypatch) -> None:
    """Rows of a table that is not followed, and rows that are held: else nobody looks at the time until the transaction ends."""
    stock = table_map(schema="stock", table_id=8)
    others = rows(row_event.WriteRowsEvent, ROW)
    others.table_id = 8
    held = (table_map(), rows(row_event.WriteRowsEvent, ROW))
    stream = stream_of(
        monkeypatch,
        gtid(7),
        stock,
        others,
        *held,
        told(event.XidEvent),
        told(event.HeartbeatLogEvent),
    )
    assert isinstance(stream._interpreter, Interpreter)
    found = list(stream.events())
    assert found[:5] == [Untold()] * 5
    assert found[-2:] == [TransactionEnd("0-1-7"), Idle()]


# -- how it is asked -----------------------------------------------------------------------------


def test_a_login_that_needs_another_package_ends_in_a_sentence(monkeypatch) -> None:
    """MySQL's caching_sha2_password without TLS."""

    def connect(*_: Any) -> None:
        raise RuntimeError("'cryptography' package is required for sha256_password")

    monkeypatch.setattr(Connection, "connect", connect)
    said = (
        r"^the database at 127\.0\.0\.1:3306 asks .*'cryptography' package is required.*pip install"
    )
    with pytest.raises(CannotFollow, match=said):
        Database(SETTINGS)


def test_a_file_of_certificates_is_what_the_database_is_checked_against(tmp_path) -> None:
    file = tmp_path / "ca.pem"
    with pytest.raises(WrongSetting, match=r"--tls-ca .*ca\.pem: there is no such file"):
        Settings(source="s", tls_ca=str(file))
    file.write_text("")
    asked = login(Settings(source="s", tls_ca=str(file)))
    assert (asked["ssl_ca"], asked["ssl_verify_cert"], asked["ssl_verify_identity"]) == (
        str(file),
        True,
        True,
    )
    assert not any(each.startswith("ssl") for each in login(SETTINGS))
