"""A binary log that is purged while a snapshot begins: where the snapshot is in it, the database can't say any more."""

import time
from collections.abc import Sequence
from typing import Any

import pytest
from fencepost.clients.binlog.database import Database
from followed import Followed

pytestmark = pytest.mark.slow


def purge(sql: Any) -> None:
    """All but the last file: InnoDB must have noted first that it needs them no more."""
    deadline = time.monotonic() + 30
    while len(logs := sql("SHOW BINARY LOGS")) > 1:
        assert time.monotonic() < deadline, f"it keeps {logs}"
        sql(f"PURGE BINARY LOGS TO '{logs[-1][0]}'")
        time.sleep(0.05)


def test_a_log_that_is_purged_as_a_snapshot_begins_is_not_read_from_its_beginning(
    sql: Any, schema: str, followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. The snapshot begins in a file. 2. The log goes on in another one, and that file is purged. 3. Asked for the GTID there, the
    database says NULL. That is not the beginning of the log."""
    sql("CREATE TABLE t (id INT PRIMARY KEY)")
    sql("INSERT INTO t VALUES (1)")
    purges = iter([True])
    ask = Database.rows

    def rows(asked: Database, text: str, *values: str) -> Sequence[Sequence[Any]]:
        found = ask(asked, text, *values)
        if text.startswith("SHOW STATUS LIKE 'binlog_snapshot") and next(purges, False):
            sql("FLUSH BINARY LOGS")
            purge(sql)
        return found

    monkeypatch.setattr(Database, "rows", rows)
    followed.run()
    assert [(each["op"], each["source"]["gtid"] > "") for each in followed.told("t")] == [
        ("r", True)
    ]
    sql("INSERT INTO t VALUES (2)")
    followed.run()
    assert followed.held("t") == [1, 2]
