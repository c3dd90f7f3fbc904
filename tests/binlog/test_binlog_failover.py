"""The database is gone, and its replica takes its place: it has the same GTIDs."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
from fencepost.chaos.harness.mariadb import Mariadb
from fencepost.clients.binlog.database import CannotFollow
from followed import Followed

pytestmark = pytest.mark.slow
CAUGHT_UP_S = 30


@pytest.fixture
def replica(database: Mariadb) -> Iterator[Mariadb]:
    """Stands by, not yet told whose it is."""
    folder = Path(tempfile.mkdtemp(prefix="fencepost-binlog-"))
    os.chmod(folder, 0o755)
    settings = ("server-id=2", "log-slave-updates=ON")
    try:
        with Mariadb(folder / "database", settings=settings) as found:
            yield found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_a_source_goes_on_from_a_replica(
    sql, schema: str, followed: Followed, database: Mariadb, replica: Mariadb
) -> None:
    with pymysql.connect(**replica.login, autocommit=True) as connection:

        def there(statement: str) -> Any:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return cursor.fetchall()

        there(f"SET GLOBAL gtid_slave_pos = '{sql('SELECT @@gtid_binlog_pos')[0][0]}'")
        there(
            f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={database.port}, MASTER_USER='root',"
            " MASTER_USE_GTID=slave_pos"
        )
        there(f"SET STATEMENT sql_log_bin=0 FOR CREATE DATABASE {schema}")
        there("START SLAVE")
        sql("CREATE TABLE t (id INT PRIMARY KEY)")
        sql("INSERT INTO t VALUES (1)")
        followed.run()
        sql("INSERT INTO t VALUES (2)")
        position = sql("SELECT @@gtid_binlog_pos")[0][0]
        assert there(f"SELECT MASTER_GTID_WAIT('{position}', {CAUGHT_UP_S})") == ((0,),)
        there("STOP SLAVE")
        there(f"INSERT INTO {schema}.t VALUES (3)")
        followed.run(port=replica.port)
        told = [(each["op"], each["after"]["id"]) for each in followed.told("t")]
        assert told == [("r", 1), ("c", 2), ("c", 3)]
        # The old one has not got what the new one did since, and goes its own way.
        sql("INSERT INTO t VALUES (4)")
        sql("INSERT INTO t VALUES (5)")
        with pytest.raises(CannotFollow, match="can't go on from"):
            followed.run()
