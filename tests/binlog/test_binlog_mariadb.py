"""A real MariaDB, a real node: what is in the database is in the topics, each change once."""

import threading
import time
from dataclasses import replace
from typing import Any

import pymysql
import pytest
from every_type import TYPES, literal
from fencepost.chaos.harness.mariadb import Mariadb
from fencepost.clients.binlog import BinlogSource, rollbacks
from fencepost.clients.binlog.database import CannotFollow
from followed import Followed, committed

pytestmark = pytest.mark.slow


def test_a_snapshot_and_the_stream_give_the_same_row_for_every_type(sql, schema, followed) -> None:
    sql("SET sql_mode = '', time_zone = '+00:00'")
    columns = ", ".join(f"{name} {TYPES[name][0]}" for name in TYPES)
    sql(f"CREATE TABLE every_type (id INT PRIMARY KEY, {columns})")
    values = ", ".join(literal(name, TYPES[name][1]) for name in TYPES)
    sql(f"INSERT INTO every_type VALUES (1, {values})")
    followed.run()
    sql(f"INSERT INTO every_type VALUES (2, {values})")
    followed.run()
    expected = {name: TYPES[name][1] for name in TYPES}
    seen, streamed = followed.told("every_type")
    assert seen["after"] == {"id": 1, **expected}
    assert streamed["after"] == {"id": 2, **expected}
    # Nor has the table changed: what the catalogue calls its columns the log calls them too.
    told = [value for _, value in committed(followed.settings.bootstrap, f"{schema}.schema")]
    assert [each["columns"] for each in told] == [told[0]["columns"]]


def test_every_change_is_told_once_in_its_order(sql, schema, followed: Followed) -> None:
    sql("CREATE TABLE orders (id INT PRIMARY KEY, total DECIMAL(8,2))")
    sql("INSERT INTO orders VALUES (1, 1), (2, 2)")
    followed.run()
    sql("BEGIN")
    sql("INSERT INTO orders VALUES (3, 3)")
    sql("UPDATE orders SET total = total + 0.5")
    sql("COMMIT")
    sql("BEGIN")
    sql("DELETE FROM orders WHERE id = 1")
    sql("ROLLBACK")
    sql("DELETE FROM orders WHERE id = 2")
    sql("UPDATE orders SET id = 9 WHERE id = 3")
    for _ in range(2):
        followed.run()
    told = [
        (e["op"], (e["before"] or {}).get("id"), (e["after"] or {}).get("total"))
        for e in followed.told("orders")
    ]
    assert told == [
        ("r", None, "1.00"),
        ("r", None, "2.00"),
        ("c", None, "3.00"),
        ("u", 1, "1.50"),
        ("u", 2, "2.50"),
        ("u", 3, "3.50"),
        ("d", 2, None),
        ("d", 3, None),
        ("c", None, "3.50"),
    ]
    tombstones = [key for key, value in followed.records("orders") if value is None]
    assert sorted(each["id"] for each in tombstones) == [2, 3]


def test_what_changes_while_the_snapshot_is_taken_is_there_once(sql, schema, followed) -> None:
    sql("CREATE TABLE a (id INT PRIMARY KEY)")
    sql("CREATE TABLE b (id INT PRIMARY KEY)")
    sql("INSERT INTO a VALUES (1), (2)")
    rows = 0

    def on_step(step: str) -> None:
        nonlocal rows
        rows += step == "snapshot-row"
        if step == "snapshot-row" and rows == 1:
            sql("INSERT INTO a VALUES (3)")
            sql("INSERT INTO b VALUES (4)")

    BinlogSource(followed.settings, on_step).run()
    ops = [(e["op"], e["after"]["id"]) for t in "ab" for e in followed.told(t)]
    assert ops == [("r", 1), ("r", 2), ("c", 3), ("c", 4)]


def test_columns_are_told_by_name_whenever_they_change(sql, schema, followed: Followed) -> None:
    sql("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    sql("INSERT INTO t VALUES (1, 1)")
    followed.run()
    sql("ALTER TABLE t ADD b VARCHAR(5) FIRST, DROP a")
    sql("INSERT INTO t VALUES ('x', 2)")
    sql("TRUNCATE t")
    sql("CREATE TABLE later (k INT)")
    sql("INSERT INTO later VALUES (7)")
    followed.run()
    followed.run()
    told = followed.told("t")
    assert [each["op"] for each in told] == [
        "r",
        "c",
        "t",
        "t",
    ]  # an emptied table in each partition
    assert told[1]["after"] == {"b": "x", "id": 2}
    assert followed.told("later")[0]["after"] == {"k": 7}
    records = committed(followed.settings.bootstrap, f"{schema}.schema")
    schemas = [value or {"table": f"no {key['table']}"} for key, value in records]
    assert [(s.get("table"), s.get("sql", "").partition(" ")[0]) for s in schemas] == [
        ("t", ""),
        (None, "ALTER"),
        ("t", ""),
        (None, "TRUNCATE"),
        ("no t", ""),
        (None, "CREATE"),
        ("later", ""),
    ]
    assert schemas[2]["columns"] == [
        {"name": "b", "type": "varchar"},
        {"name": "id", "type": "int"},
    ]
    assert schemas[2]["primary_key"] == ["id"]


def test_a_source_that_waits_goes_on_when_its_database_was_killed(
    sql, schema, followed: Followed, database: Mariadb
) -> None:
    """Its library would begin again where it once began, and tell the first insert twice."""
    sql("CREATE TABLE t (id INT PRIMARY KEY)")
    source = BinlogSource(replace(followed.settings, stop_when_caught_up=False))
    running = threading.Thread(target=source.run)
    running.start()
    try:
        until(source, 0)
        for number in range(2):
            before = source.transactions
            with pymysql.connect(**database.login, database=schema, autocommit=True) as connection:
                connection.cursor().execute("INSERT INTO t VALUES (%s)", (number,))
            until(source, before)
            if number == 0:
                database.kill()
                database.start()
    finally:
        source.stop()
        running.join(30)
    assert [each["after"] for each in followed.told("t")] == [{"id": 0}, {"id": 1}]


def test_a_log_that_rotates_while_it_is_followed_is_followed_on(sql, schema, followed) -> None:
    sql("CREATE TABLE t (id INT PRIMARY KEY)")
    steps: list[str] = []
    source = BinlogSource(replace(followed.settings, stop_when_caught_up=False), steps.append)
    running = threading.Thread(target=source.run)
    running.start()
    try:
        until(source, 0)
        for number in range(0, 6, 2):
            before = source.transactions
            sql("INSERT INTO t VALUES (%s)", number)
            sql("FLUSH BINARY LOGS")
            sql("INSERT INTO t VALUES (%s)", number + 1)
            until(source, before)
    finally:
        source.stop()
        running.join(30)
    followed.run()  # what was not committed when it was stopped
    assert [each["after"]["id"] for each in followed.told("t")] == list(range(6))
    assert steps.count("fenced") == 1  # it went on, and did not begin again


def until(source: BinlogSource, transactions: int) -> None:
    deadline = time.monotonic() + 30
    while source.transactions <= transactions:
        assert time.monotonic() < deadline, "nothing was committed in thirty seconds"
        time.sleep(0.01)


def purge(sql: Any) -> None:
    """Again while a connection that has just ended still holds a file."""
    sql("FLUSH BINARY LOGS")
    deadline = time.monotonic() + 30
    while len(logs := sql("SHOW BINARY LOGS")) > 1:
        assert time.monotonic() < deadline, f"{logs} are not purged in thirty seconds"
        sql(f"PURGE BINARY LOGS TO '{logs[-1][0]}'")
        time.sleep(0.05)


def test_a_log_that_was_purged_ends_in_a_sentence_that_says_what_to_do(
    sql, schema, followed
) -> None:
    sql("CREATE TABLE t (id INT PRIMARY KEY)")
    followed.run()
    sql("INSERT INTO t VALUES (1)")
    purge(sql)
    with pytest.raises(CannotFollow, match=r"no longer in its binary log.*--resnapshot"):
        followed.run()
    followed.run(resnapshot=True)
    assert [each["after"] for each in followed.told("t") if each["op"] == "r"] == [{"id": 1}]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("SET GLOBAL binlog_row_metadata = MINIMAL", "binlog_row_metadata=MINIMAL.*Say"),
        ("SET GLOBAL binlog_checksum = NONE", "binlog_checksum=NONE: else primary keys"),
        ("CREATE TABLE m (id INT) ENGINE=MyISAM", r"\.m has the engine MyISAM"),
        ("CREATE TABLE v (id INT) WITH SYSTEM VERSIONING", r"\.v is a system-versioned table"),
        ("CREATE TABLE u (id UUID)", r"\.u: column id has the type uuid"),
    ],
)
def test_what_cant_be_followed_is_said_before_anything_is_written(
    sql, schema, followed, statement, said
) -> None:
    sql(statement)
    try:
        with pytest.raises((CannotFollow, ValueError), match=said):
            followed.run()
    finally:
        sql("SET GLOBAL binlog_row_metadata = FULL")
        sql("SET GLOBAL binlog_checksum = CRC32")
    assert committed(followed.settings.bootstrap, f"{schema}.schema") == []


@pytest.mark.parametrize("name", ["sync_binlog", "innodb_flush_log_at_trx_commit"])
def test_a_database_that_forgets_what_it_told_is_refused_unless_that_is_accepted(
    sql, followed: Followed, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    sql("CREATE TABLE t (id INT PRIMARY KEY)")
    sql(f"SET GLOBAL {name} = 0")
    try:
        with pytest.raises(CannotFollow, match=rf"{name}=0.*loses power.*Set it to 1.*--accept-"):
            followed.run()
        assert caplog.messages == []
        source = followed.run(accept_unsynced_binlog=True)
        source.run()
        assert [f"{name}=0" in each for each in caplog.messages] == [True]
    finally:
        sql(f"SET GLOBAL {name} = 1")


@pytest.mark.parametrize("held_bytes", [rollbacks.HELD_BYTES_MAX, 0])
def test_rows_that_were_rolled_back_are_in_no_topic(
    sql, schema, followed: Followed, monkeypatch, held_bytes: int
) -> None:
    """MariaDB logs them, because a temporary table that was made can't be taken back."""
    monkeypatch.setattr(rollbacks, "HELD_BYTES_MAX", held_bytes)
    sql("CREATE TABLE t (id INT PRIMARY KEY)")
    followed.run()
    for first, statements in (
        (10, ("ROLLBACK",)),
        (20, ("SAVEPOINT a", "INSERT INTO t VALUES (22)", "ROLLBACK TO a", "COMMIT")),
        (30, ("COMMIT",)),
    ):
        sql("BEGIN")
        sql(f"INSERT INTO t VALUES ({first})")
        sql("CREATE TEMPORARY TABLE tt (i INT)")
        sql(f"INSERT INTO t VALUES ({first + 1})")
        for each in statements:
            sql(each)
        sql("DROP TEMPORARY TABLE tt")
    logged = [each[5] for each in sql("SHOW BINLOG EVENTS IN '" + log_of(sql) + "'")]
    assert "ROLLBACK" in logged and "ROLLBACK TO `a`" in logged
    source = followed.run()
    ids = [each["after"]["id"] for each in followed.told("t")]
    assert ids == [row[0] for row in sql("SELECT id FROM t ORDER BY id")] == [20, 21, 30, 31]
    assert source._left_out == {}  # what was committed is not remembered


def log_of(sql: Any) -> str:
    return str(sql("SHOW MASTER STATUS")[0][0])


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO {schema}.t VALUES (1)",
        "SET STATEMENT max_statement_time=10 FOR INSERT INTO {schema}.t VALUES (1)",
        "-- hi\nINSERT INTO {schema}.t VALUES (1)",
        "LOAD DATA INFILE '{file}' INTO TABLE {schema}.t",
        "CREATE TABLE {schema}.filled SELECT 1 AS id",
    ],
)
def test_a_statement_from_any_schema_ends_the_source(
    sql, schema, followed: Followed, database: Mariadb, statement: str
) -> None:
    sql("CREATE TABLE t (id INT PRIMARY KEY)")
    followed.run()
    file = database.folder / "rows"
    file.write_text("1\n")
    sql("USE mysql")
    sql("SET binlog_format = STATEMENT")
    sql(statement.format(schema=schema, file=file))
    with pytest.raises(CannotFollow, match=r"as a statement.*binlog_format=ROW.*--resnapshot"):
        followed.run()


def test_what_came_before_the_end_is_written_before_it_ends(sql, followed: Followed) -> None:
    """Nobody comes by there again: `--resnapshot` goes on behind it."""
    sql("CREATE TABLE t (id INT PRIMARY KEY)")
    followed.run()
    sql("INSERT INTO t VALUES (1), (2)")
    sql("TRUNCATE t")
    sql("INSERT INTO t VALUES (3)")
    sql("ALTER TABLE t DROP PRIMARY KEY")
    sql("INSERT INTO t VALUES (4)")
    for _ in range(2):
        with pytest.raises(CannotFollow, match="key"):
            followed.run()
        told = [each["source"]["gtid"] for each in followed.told("t")]
        assert len(set(told)) == 3  # the first INSERT, TRUNCATE and the second: each in order, once
        assert followed.held("t") == [3]


@pytest.mark.parametrize("key", ["PRIMARY KEY", ""])
def test_a_table_that_was_system_versioned_for_a_while_ends_the_source(
    sql, schema, followed: Followed, key: str
) -> None:
    """Neither the catalogue has it nor a statement that says so of a table that is followed."""
    sql("CREATE TABLE t (id INT PRIMARY KEY)")
    followed.run()
    other = f"{schema}_other"
    sql(f"CREATE DATABASE {other}")
    sql(f"CREATE TABLE {other}.v (id INT {key}) WITH SYSTEM VERSIONING")
    sql(f"CREATE TABLE {schema}.v LIKE {other}.v")
    sql("INSERT INTO v VALUES (1)")
    sql("DROP TABLE v")
    with pytest.raises(CannotFollow, match=r"\.v is a system-versioned table.*--tables"):
        followed.run()


def test_a_system_versioned_table_is_refused_without_a_snapshot_too(sql, followed) -> None:
    sql("CREATE TABLE v (id INT PRIMARY KEY) WITH SYSTEM VERSIONING")
    with pytest.raises(CannotFollow, match=r"\.v is a system-versioned table.*--tables"):
        followed.run(snapshot="never")


def test_a_sequence_is_left_out_and_a_table_that_begins_like_one_is_not(
    sql, schema, followed: Followed
) -> None:
    followed.run()
    sql("CREATE SEQUENCE numbers")
    sql("SELECT NEXTVAL(numbers)")
    sql("CREATE TABLE t (next_not_cached_value INT PRIMARY KEY)")
    sql("INSERT INTO t VALUES (1)")
    followed.run()
    assert followed.records("numbers") == []
    assert [each["after"] for each in followed.told("t")] == [{"next_not_cached_value": 1}]
