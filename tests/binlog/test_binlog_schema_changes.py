"""Rows that come into a table, or go from it, without being logged: what is told of them."""

import json
from typing import Any

import pymysql
import pytest
from confluent_kafka import Producer
from fencepost.clients.binlog import BinlogSource
from fencepost.clients.binlog.database import CannotFollow
from fencepost.clients.binlog.kept_positions import KeptPositions
from fencepost.clients.binlog.schema_changes import emptied_by
from fencepost.clients.binlog.statements import statement_of
from followed import Followed, committed

BY_RANGE = (
    "PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (9), PARTITION b VALUES LESS THAN (99))"
)

IF_THERE = r"which is followed, if it was there \(IF EXISTS: the log does not say\): the rows"


def effect(sql: str, schema: str = "shop", *, rows_are_read: bool = True) -> list[str] | None:
    found = statement_of(sql).schema
    names = emptied_by(found, schema, ["shop.*"], rows_are_read=rows_are_read)
    return None if names is None else [".".join(each) for each in names]


@pytest.fixture
def other(sql, schema: str) -> str:
    """A database that is not followed."""
    sql(f"CREATE DATABASE other_{schema}")
    return f"other_{schema}"


def fill(sql: Any, *tables: str) -> None:
    for each in tables:
        sql(f"CREATE TABLE {each} (id INT PRIMARY KEY)")
        sql(f"INSERT INTO {each} VALUES (1), (2)")


def in_sql(sql: Any, schema: str) -> dict[str, list[int]]:
    tables = [row[0] for row in sql(f"SHOW TABLES IN {schema}")]
    return {
        each: [row[0] for row in sql(f"SELECT id FROM {schema}.{each} ORDER BY id")]
        for each in tables
    }


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("RENAME TABLE away.v TO v", "away.v was renamed to shop.v, which is followed: "),
        ("ALTER TABLE away.v ADD n INT, RENAME shop.v", "away.v was renamed to shop.v"),
        ("RENAME TABLE t TO away.t, away.v TO t", "away.v was renamed to shop.t"),
        ("RENAME TABLE t TO u", "shop.t was renamed to shop.u"),
        ("RENAME TABLE IF EXISTS away.v TO v", f"away.v was renamed to shop.v, {IF_THERE}"),
        ("ALTER TABLE IF EXISTS t RENAME u", f"shop.t was renamed to shop.u, {IF_THERE}"),
        ("ALTER TABLE p DROP PARTITION a", "DROP PARTITION takes rows out of shop.p"),
        ("ALTER TABLE away.p EXCHANGE PARTITION a WITH TABLE v", "EXCHANGE PARTITION .*shop.v"),
        ("ALTER TABLE t IMPORT TABLESPACE", "IMPORT TABLESPACE .*shop.t"),
        ("ALTER IGNORE TABLE t ADD UNIQUE (n)", "ALTER IGNORE .*shop.t"),
    ],
)
def test_rows_that_come_or_go_unlogged_end_the_source(sql: str, said: str) -> None:
    with pytest.raises(CannotFollow, match=f"^{said}.*--resnapshot"):
        effect(sql)


CASCADES = [
    "CREATE TABLE t (p INT, FOREIGN KEY (p) REFERENCES away.p (id) ON DELETE CASCADE)",
    "CREATE TABLE t (p INT REFERENCES p (id) ON UPDATE SET NULL)",
    "ALTER TABLE t ADD CONSTRAINT f FOREIGN KEY (p) REFERENCES p (id) ON UPDATE RESTRICT on delete\nset null",
]


@pytest.mark.parametrize("sql", CASCADES)
def test_a_foreign_key_that_changes_rows_beneath_the_log_ends_the_source(sql: str) -> None:
    said = r"^shop\.t has a foreign key .*--tables.*--resnapshot.*--accept-cascades"
    for rows_are_read in (True, False):
        with pytest.raises(CannotFollow, match=said):
            effect(sql, rows_are_read=rows_are_read)
    assert effect(sql, "other") is None  # which is not followed, though what it refers to may be
    found = statement_of(sql).schema
    given = {"rows_are_read": True, "cascades_are_accepted": True}
    assert emptied_by(found, "shop", ["shop.*"], **given) == []


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE t (p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE RESTRICT ON UPDATE NO ACTION)",
        "CREATE TABLE t (at TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, c INT COMMENT 'on delete cascade')",
        "CREATE TABLE t (i INT) /* on delete cascade */",
    ],
)
def test_a_foreign_key_that_refuses_is_none_of_that(sql: str) -> None:
    assert effect(sql) == []


@pytest.mark.parametrize(
    ("sql", "emptied"),
    [
        ("TRUNCATE t", ["shop.t"]),
        ("DROP TABLE t, away.t, shop.u", ["shop.t", "shop.u"]),
        ("CREATE OR REPLACE TABLE t (i INT)", ["shop.t"]),
        ("DROP TEMPORARY TABLE t", []),
        ("DROP TABLE away.t", None),
        ("DROP DATABASE away", None),
        ("DROP DATABASE shop", []),  # of which tables rows were told the source knows
        ("RENAME TABLE t TO away.t", ["shop.t"]),
        ("ALTER TABLE t RENAME shop.t", []),
        ("RENAME TABLE away.t TO away.u", None),
        ("ALTER TABLE t ADD n INT", []),
    ],
)
def test_what_is_gone_is_told_as_emptied(sql: str, emptied: list[str] | None) -> None:
    assert effect(sql) == emptied


def test_who_wants_changes_alone_is_told_of_a_rename_and_goes_on() -> None:
    assert effect("RENAME TABLE away.v TO v", rows_are_read=False) == []
    with pytest.raises(CannotFollow, match="DROP PARTITION"):
        effect("ALTER TABLE t DROP PARTITION a", rows_are_read=False)


# -- on a real MariaDB ---------------------------------------------------------------------------


def refers(sql: Any, rule: str) -> None:
    sql("CREATE TABLE p (id INT PRIMARY KEY)")
    sql(f"CREATE TABLE c (id INT PRIMARY KEY, p INT REFERENCES p (id) {rule})")
    sql("INSERT INTO p VALUES (1)")
    sql("INSERT INTO c VALUES (1, 1), (2, NULL)")


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["ON DELETE CASCADE", "ON UPDATE SET NULL"])
def test_what_a_foreign_key_does_beneath_the_log_is_refused_unless_that_is_accepted(
    sql, schema, followed: Followed, database, caplog, rule: str
) -> None:
    refers(sql, rule)
    sql(
        f"CREATE USER IF NOT EXISTS {schema[:20]} IDENTIFIED BY 'x'"
    )  # who may do no more than is asked for
    sql(f"GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO {schema[:20]}")
    plain = {"user": schema[:20], "password": "x"}
    for snapshot in ("initial", "never"):
        with pytest.raises(
            CannotFollow, match=rf"{schema}\.c has a foreign key.*--accept-cascades"
        ):
            followed.run(snapshot=snapshot, **plain)
    assert followed.records("c") == []
    followed.run(tables=(f"{schema}.p",), **plain)
    caplog.clear()
    source = followed.run(accept_cascades=True, resnapshot=True)
    source.run()
    assert ["c has a foreign key" in each for each in caplog.messages].count(True) == 1
    sql("ALTER TABLE c DROP FOREIGN KEY " + sql(FOREIGN_KEY, schema)[0][0])
    followed.run()


FOREIGN_KEY = "SELECT constraint_name FROM information_schema.referential_constraints WHERE constraint_schema = %s"


@pytest.mark.slow
def test_a_foreign_key_that_is_given_while_it_is_followed_ends_the_source(
    sql, schema, followed: Followed
) -> None:
    refers(sql, "ON DELETE RESTRICT")
    followed.run()
    sql("ALTER TABLE c ADD CONSTRAINT later FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE")
    sql("DELETE FROM c WHERE id = 1")
    sql("ALTER TABLE c DROP FOREIGN KEY later")
    with pytest.raises(CannotFollow, match=r"^\d+-\d+-\d+: \w+\.c has a foreign key"):
        followed.run()
    followed.run(resnapshot=True)
    assert followed.held("c") == [2]


@pytest.mark.slow
def test_a_table_that_was_renamed_ends_the_source_and_is_read_by_a_snapshot(
    sql, schema, other, followed: Followed
) -> None:
    fill(sql, "t", "u", f"{other}.v")
    sql(f"CREATE TABLE p (id INT PRIMARY KEY) {BY_RANGE}")
    sql("INSERT INTO p VALUES (1), (10)")
    followed.run()
    sql(f"DELETE FROM {other}.v WHERE id = 1")
    sql(f"RENAME TABLE t TO {other}.t, {other}.v TO t")
    sql("ALTER TABLE p DROP PARTITION a")
    said = r"^\d+-\d+-\d+: other_\w+\.v was renamed to \w+\.t, which.*--resnapshot"
    with pytest.raises(CannotFollow, match=said):
        followed.run()
    sql("DROP TABLE u")
    followed.run(resnapshot=True)
    tables = in_sql(sql, schema)
    assert tables == {"p": [10], "t": [2]}
    assert {each: followed.held(each) for each in (*tables, "u")} == {**tables, "u": []}


@pytest.mark.slow
def test_a_table_that_is_gone_is_gone_for_who_reads_its_topic(
    sql, schema, other, followed: Followed
) -> None:
    fill(sql, "dropped", "dropped_too", "replaced", "moved", "kept", f"{other}.v", f"{other}.w")
    followed.run(tables=(f"{schema}.*", f"{other}.v"))
    assert followed.held("v", other) == [1, 2]
    sql("CREATE TEMPORARY TABLE kept (i INT)")
    sql("DROP TABLE kept")  # has the name of the one that is followed, and none of its rows
    sql("DROP TABLE dropped, dropped_too")
    sql("CREATE OR REPLACE TABLE replaced SELECT 7 AS id")
    sql("CREATE DATABASE away_" + schema)
    sql(f"RENAME TABLE moved TO away_{schema}.moved")
    sql(f"DROP DATABASE {other}")
    followed.run(tables=(f"{schema}.*", f"{other}.v"))
    tables = in_sql(sql, schema)
    assert tables == {"kept": [1, 2], "replaced": [7]}
    gone: dict[str, list[int]] = {"dropped": [], "dropped_too": [], "moved": []}
    assert {each: followed.held(each) for each in [*tables, *gone]} == {**tables, **gone}
    assert followed.held("v", other) == [] and followed.records("w") == []
    told = followed.told("replaced")
    named = {(each["source"]["gtid"], each["source"]["row"]) for each in told}
    assert len(named) == 2 + 1 + 1  # two rows, and what emptied it (in each partition), and one row


@pytest.mark.slow
def test_schema_changes_during_the_snapshot_leave_each_row_once(sql, schema, followed) -> None:
    """One that a table can't be read after makes the snapshot begin anew."""
    fill(sql, "a", "altered", "emptied", "yields")
    changes = iter(
        (
            "ALTER TABLE altered ADD n INT DEFAULT 5",
            "DELETE FROM emptied WHERE id = 1",
            "TRUNCATE emptied",
            "DROP TABLE yields",
            "CREATE TABLE made (id INT PRIMARY KEY)",
        )
    )
    began = 0

    def on_step(step: str) -> None:
        nonlocal began
        began += step == "snapshot-began"
        if step == "snapshot-row" and (change := next(changes, "")):
            sql(change)

    BinlogSource(followed.settings, on_step).run()
    sql("INSERT INTO made VALUES (1)")
    followed.run()
    tables = in_sql(sql, schema)
    assert tables == {"a": [1, 2], "altered": [1, 2], "emptied": [], "made": [1]}
    assert {each: followed.held(each) for each in tables} == tables
    rows = [value["op"] for value in followed.told("altered")]
    assert (rows, began) == (["r", "r"], 2)


@pytest.mark.slow
def test_tables_that_were_not_followed_before_are_refused(
    sql, schema, other, followed: Followed
) -> None:
    fill(sql, "t", "u", f"{other}.v")
    first = (f"{schema}.t", f"{schema}.v")
    followed.run(tables=first)
    with pytest.raises(CannotFollow, match=rf"{schema}\.\* may match other.*--resnapshot"):
        followed.run()
    sql(f"RENAME TABLE {other}.v TO v")
    sql("INSERT INTO u VALUES (3)")
    sql("INSERT INTO v VALUES (3)")
    followed.run(snapshot="never")
    assert (followed.held("t"), followed.held("u"), followed.held("v")) == ([1, 2], [3], [3])
    with pytest.raises(CannotFollow, match="gone on with --snapshot never"):
        followed.run()
    followed.run(resnapshot=True)
    assert (followed.held("t"), followed.held("v")) == ([1, 2], [1, 2, 3])


@pytest.mark.slow
def test_a_position_of_an_older_build_gets_its_tables(sql, schema, followed: Followed) -> None:
    fill(sql, "t")
    followed.run()
    client = {"bootstrap.servers": followed.settings.bootstrap}
    positions = KeptPositions(client, followed.settings.position_topic)
    kept = json.loads(positions.find(schema, 0).position)
    assert kept.pop("tables") == kept.pop("read") == [f"{schema}.*"]
    producer = Producer(client)
    positions.write(producer, schema, json.dumps(kept))
    assert producer.flush(20) == 0
    sql("INSERT INTO t VALUES (3)")
    followed.run(tables=(f"{schema}.t",))
    assert json.loads(positions.find(schema, 0).position)["tables"] == [f"{schema}.t"]
    assert followed.held("t") == [1, 2, 3]


@pytest.mark.parametrize("charset", ["latin1", "cp1250", "utf8mb4"])
def test_a_name_is_known_whatever_character_set_it_was_said_in(
    sql, schema, database, followed: Followed, charset: str
) -> None:
    sql("CREATE TABLE `café` (id INT PRIMARY KEY)")
    sql("INSERT INTO `café` VALUES (1), (2)")
    followed.run()
    login = {**database.login, "charset": charset, "database": schema, "autocommit": True}
    with pymysql.connect(**login) as other, other.cursor() as at:
        at.execute("TRUNCATE TABLE `café` -- \\xe9")
    followed.run()
    assert followed.held("caf_") == []
    records = committed(followed.settings.bootstrap, f"{schema}.schema")
    told = [value["sql"] for _, value in records if value and "sql" in value]
    assert told[-1].startswith("TRUNCATE TABLE `café`")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "statement"),
    [
        ("NO_BACKSLASH_ESCAPES", "ALTER TABLE t COMMENT 'C:\\', RENAME TO {other}.t, COMMENT 'x'"),
        (
            "ANSI_QUOTES",
            'ALTER TABLE t DROP CONSTRAINT IF EXISTS "a\\", RENAME TO {other}.t, DROP CONSTRAINT IF EXISTS "b"',
        ),
    ],
)
def test_a_rename_behind_a_string_that_ends_as_its_session_has_it_is_seen(
    sql, schema, other: str, followed: Followed, mode: str, statement: str
) -> None:
    fill(sql, "t")
    followed.run()
    assert followed.held("t") == [1, 2]
    sql(f"SET SESSION sql_mode = '{mode}'")
    sql(statement.format(other=other))
    followed.run()
    assert followed.held("t") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "what",
    [
        "MODIFY k VARCHAR(5) COLLATE utf8mb4_general_ci",
        "CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
        "ADD CHECK (k <> 'A')",
    ],
)
def test_an_alter_that_leaves_rows_out_ends_the_source(
    sql: Any, schema: str, followed: Followed, what: str
) -> None:
    sql("CREATE TABLE t (k VARCHAR(5) COLLATE utf8mb4_bin PRIMARY KEY)")
    sql("INSERT INTO t VALUES ('a'), ('A')")
    followed.run()
    sql("ALTER IGNORE TABLE t ADD n INT, ADD INDEX i (n)")
    followed.run()
    sql(f"ALTER IGNORE TABLE t {what}")
    assert len(sql("SELECT * FROM t")) < 2
    with pytest.raises(CannotFollow, match=rf"ALTER IGNORE takes rows out of {schema}\.t"):
        followed.run()


@pytest.mark.slow
def test_a_rename_of_a_table_that_was_not_there_is_not_said_to_have_been_one(
    sql: Any, schema: str, followed: Followed
) -> None:
    """MariaDB logs it all the same."""
    sql("CREATE TABLE t (id INT PRIMARY KEY)")
    followed.run()
    sql("RENAME TABLE IF EXISTS nosuch TO u")
    with pytest.raises(CannotFollow, match=rf"{schema}\.u, {IF_THERE}.*--resnapshot"):
        followed.run()
    followed.run(resnapshot=True)
