"""What a statement in the log is, whatever stands before its verb."""

from typing import Any

import pytest
from fencepost.clients.binlog.schema_statements import SchemaStatement
from fencepost.clients.binlog.statements import Kind, Statement, statement_of

T, U = ("", "t"), ("s", "u")


def schema(*tables: tuple[str, str], **more: Any) -> Statement:
    return Statement(Kind.SCHEMA, schema=SchemaStatement(tables, **more))


BEFORE = (
    "",
    "-- hi\n",
    "--\n# hi\n\t",
    "/* a */ /**/",
    "/*!50000 */",
    "SET STATEMENT max_statement_time=10 FOR ",
    "/* x */set statement sql_mode='a'' for \\' b', lc_messages=\"for \" for\n-- hi\n",
)


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("insert into t values (1)", Statement(Kind.DATA)),
        ("WITH a AS (SELECT 1) DELETE FROM t", Statement(Kind.DATA)),
        ("TRUNCATE t", schema(T, empties=(T,))),
        ("truncate/**/table`a``b` . `c`", schema(("a`b", "c"), empties=(("a`b", "c"),))),
        ("ALTER TABLE s.t ADD x INT", schema(("s", "t"))),
    ],
)
def test_a_statement_is_known_by_its_verb_whatever_stands_before_it(before, sql, expected) -> None:
    assert statement_of(before + sql) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("BEGIN", Statement(Kind.BEGIN)),
        ("COMMIT", Statement(Kind.COMMIT)),
        ("ROLLBACK", Statement(Kind.ROLLBACK)),
        ("SAVEPOINT `A b`", Statement(Kind.SAVEPOINT, "a b")),
        ('SAVEPOINT "a b`c"', Statement(Kind.SAVEPOINT, "a b`c")),
        ("ROLLBACK TO `a`", Statement(Kind.ROLLBACK_TO, "a")),
        ("rollback work to savepoint a;", Statement(Kind.ROLLBACK_TO, "a")),
        ("ROLLBACK TO savepoint", Statement(Kind.ROLLBACK_TO, "savepoint")),
        ("RELEASE SAVEPOINT a", Statement(Kind.RELEASE, "a")),
        ("XA COMMIT X'61',X'',1", Statement(Kind.XA)),
        ("XA START X'61',X'',1", Statement(Kind.XA)),
        ("XA ROLLBACK X'61',X'',1", Statement(Kind.OTHER)),
        ("CREATE USER drop_table", Statement(Kind.OTHER)),
        ("CREATE OR REPLACE USER bob IDENTIFIED BY 'a'", Statement(Kind.OTHER)),
        ("create or replace/**/role bob", Statement(Kind.OTHER)),
        ("CREATE OR REPLACE SERVER s OPTIONS (PASSWORD 'a')", Statement(Kind.OTHER)),
        ("ALTER SERVER s OPTIONS (PASSWORD 'a')", Statement(Kind.OTHER)),
        ("ANALYZE TABLE t /* */ , drop_me", Statement(Kind.OTHER)),
        ("/*!50000 CREATE */ TABLE t (i INT)", schema(T)),
        ("DROP TEMPORARY TABLE `tt` /* by server */", schema(("", "tt"))),
    ],
)
def test_each_kind_is_known(sql: str, expected: Statement) -> None:
    assert statement_of(sql) == expected


@pytest.mark.parametrize(
    ("sql", "fills", "versions"),
    [
        ("CREATE TABLE t SELECT * FROM u", True, False),
        ("create or replace table t (id int primary key) ignore (select 1)", True, False),
        ("CREATE TABLE t (`select` INT COMMENT 'select')", False, False),
        ("CREATE TABLE t (selected INT) -- select", False, False),
        ("CREATE TEMPORARY TABLE t SELECT 1", False, False),
        ("CREATE VIEW v AS SELECT 1", False, False),
        ("CREATE TABLE t (i INT) WITH SYSTEM VERSIONING", False, True),
        ("ALTER TABLE t ADD\nSYSTEM VERSIONING", False, True),
        ("ALTER TABLE t DROP SYSTEM VERSIONING", False, False),
        ("CREATE TABLE t (i INT) COMMENT 'with system versioning'", False, False),
    ],
)
def test_what_fills_a_table_and_what_versions_it_is_seen(sql, fills, versions) -> None:
    found = statement_of(sql)
    assert (found.kind, found.schema.fills, found.schema.versions) == (Kind.SCHEMA, fills, versions)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("DROP TABLE t", schema(T, empties=(T,))),
        ("DROP TABLES IF EXISTS t,`s`.`u` WAIT 5 CASCADE", schema(T, U, empties=(T, U))),
        ("DROP /*!40005 TEMPORARY */ TABLE t, s.u", schema(T, U)),
        ("DROP VIEW t", schema()),
        ("DROP INDEX i ON t", schema()),
        ("DROP DATABASE IF EXISTS `s`", schema(drops_schema="s")),
        ("CREATE OR REPLACE TABLE IF NOT EXISTS t (drop_partition INT)", schema(T, empties=(T,))),
        ("CREATE OR REPLACE TEMPORARY TABLE t (i INT)", schema(T)),
        ("CREATE OR REPLACE VIEW t AS SELECT 1", schema()),
        ("CREATE PROCEDURE p() BEGIN DROP TABLE t; END", schema()),
        ("RENAME TABLE t TO s.u", schema(T, U, renames=((T, U),))),
        (
            "rename tables if exists t wait 5 to s.u, s.u nowait to `t`",
            schema(T, U, U, T, renames=((T, U), (U, T)), renames_if_there=True),
        ),
        ("ALTER TABLE IF EXISTS t ADD i INT", schema(T)),
        (
            "ALTER TABLE IF EXISTS t RENAME s.u",
            schema(T, U, renames=((T, U),), renames_if_there=True),
        ),
        ("ALTER ONLINE TABLE t ADD i INT, RENAME AS s.u", schema(T, U, renames=((T, U),))),
        ("ALTER TABLE t WAIT 5 RENAME s.u", schema(T, U, renames=((T, U),))),
        ("ALTER TABLE t RENAME COLUMN a TO b, RENAME KEY a TO b", schema(T)),
        ("ALTER TABLE t COMMENT 'rename to u', CHANGE `rename` u INT", schema(T)),
        ("ALTER TABLE t DROP PARTITION IF EXISTS p", schema(T, unlogged="DROP PARTITION")),
        ("ALTER TABLE t TRUNCATE PARTITION ALL", schema(T, unlogged="TRUNCATE PARTITION")),
        (
            "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE s.u WITHOUT VALIDATION",
            schema(T, U, unlogged="EXCHANGE PARTITION"),
        ),
        (
            "ALTER TABLE t CONVERT PARTITION p TO TABLE s.u",
            schema(T, U, unlogged="CONVERT PARTITION"),
        ),
        (
            "ALTER TABLE t CONVERT TABLE s.u TO PARTITION p VALUES LESS THAN (1)",
            schema(T, U, unlogged="CONVERT TABLE"),
        ),
        ("ALTER TABLE t DISCARD TABLESPACE", schema(T, unlogged="DISCARD TABLESPACE")),
        ("ALTER TABLE t IMPORT TABLESPACE", schema(T, unlogged="IMPORT TABLESPACE")),
        (
            "ALTER TABLE t IMPORT PARTITION p TABLESPACE",
            schema(T, unlogged="IMPORT PARTITION"),
        ),
        ("ALTER TABLE t ADD PARTITION (PARTITION p VALUES LESS THAN (1))", schema(T)),
        ("ALTER TABLE t REMOVE PARTITIONING", schema(T)),
        ("ALTER TABLE t DROP `partition`, CONVERT TO CHARACTER SET utf8mb4", schema(T)),
        ("ALTER TABLE", schema(("", ""))),
        ("RENAME TABLE t", schema(T, ("", ""), renames=((T, ("", "")),))),
    ],
)
def test_what_empties_renames_and_moves_rows_is_seen(sql: str, expected: Statement) -> None:
    assert statement_of(sql) == expected


@pytest.mark.parametrize(
    "what",
    [
        "ADD UNIQUE (i)",
        "ADD i INT NOT NULL, ADD UNIQUE (i)",
        "ADD (i INT NOT NULL UNIQUE)",
        "ADD i INT KEY",
        "ADD CONSTRAINT c CHECK (i > 2)",
        "ADD PERIOD FOR p (i, j)",
        "MODIFY k VARCHAR(5) COLLATE utf8mb4_general_ci",
        "CHANGE k l VARCHAR(1)",
        "ALGORITHM=COPY, MODIFY COLUMN k TINYINT",
        "CONVERT TO CHARACTER SET utf8mb4",
        "PARTITION BY RANGE (i) (PARTITION p VALUES LESS THAN (2))",
        "DROP PRIMARY KEY, ADD PRIMARY KEY (i)",
        "WAIT 5 MODIFY k INT",
        "ENGINE=InnoDB",
        "FORCE",
    ],
)
def test_an_alter_ignore_may_leave_rows_out_unless_it_is_known_that_it_does_not(what: str) -> None:
    """With MariaDB 10.11 a CHECK, another collation and a smaller number did, as a UNIQUE does."""
    assert statement_of(f"ALTER IGNORE TABLE t {what}") == schema(T, unlogged="ALTER IGNORE")


@pytest.mark.parametrize(
    "what",
    [
        "ADD i INT",
        "ADD COLUMN IF NOT EXISTS (i INT NOT NULL, j ENUM('a,b', 'unique')), ADD `key` INT FIRST",
        "WAIT 5 ADD i DECIMAL(9, 2) DEFAULT 1.5 COMMENT 'primary key', LOCK=NONE, ALGORITHM=COPY",
        "NOWAIT ADD KEY i (k), ADD INDEX j (k), COMMENT 'x'",
        "RENAME COLUMN a TO b, RENAME INDEX a TO b",
        "DROP COLUMN a, DROP INDEX b, ALTER COLUMN c SET DEFAULT 1",
    ],
)
def test_an_alter_ignore_that_is_known_to_keep_all_rows_is_like_another(what: str) -> None:
    assert statement_of(f"ALTER IGNORE TABLE t {what}") == schema(T)


NO_BACKSLASHES, ANSI = 1 << 20, 1 << 2  # MySQL's and MariaDB's sql_mode


@pytest.mark.parametrize(
    ("mode", "sql", "expected"),
    [
        (
            NO_BACKSLASHES,
            r"ALTER TABLE t COMMENT 'C:\', RENAME TO s.u, COMMENT 'D'",
            schema(T, U, renames=((T, U),)),
        ),
        (
            NO_BACKSLASHES,
            'ALTER TABLE t COMMENT "C:\\", DROP PARTITION p, COMMENT "\'"',
            schema(T, unlogged="DROP PARTITION"),
        ),
        (
            NO_BACKSLASHES,
            r"CREATE TABLE t (c VARCHAR(9) DEFAULT '\') COMMENT '/*' SELECT 'a' AS c -- '",
            schema(T, fills=True),
        ),
        (
            NO_BACKSLASHES,
            r"CREATE TABLE t (c VARCHAR(9) DEFAULT '\', FOREIGN KEY (c) REFERENCES u (c) ON DELETE CASCADE) COMMENT ''",
            schema(T, cascades=True),
        ),
        (NO_BACKSLASHES, r"SET STATEMENT lc_messages='\' FOR TRUNCATE t", schema(T, empties=(T,))),
        (NO_BACKSLASHES, r"TRUNCATE `a\`", schema(("", "a\\"), empties=(("", "a\\"),))),
        (
            0,
            r"ALTER TABLE t COMMENT 'C:\', RENAME TO s.u, COMMENT 'D'",
            schema(T),
        ),
        (
            ANSI,
            'ALTER TABLE "s\\" RENAME "u`""v", COMMENT "\'"',
            schema(("", "s\\"), ("", 'u`"v'), renames=((("", "s\\"), ("", 'u`"v')),)),
        ),
        (ANSI, 'SAVEPOINT "A\\"', Statement(Kind.SAVEPOINT, "a\\")),
    ],
)
def test_a_strings_end_is_where_the_sessions_mode_has_it(mode, sql, expected) -> None:
    assert statement_of(sql, mode) == expected
