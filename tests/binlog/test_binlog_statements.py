"""What a statement in the log is, whatever stands before its verb."""

import pytest
from fencepost.clients.binlog.statements import Kind, Statement, statement_of

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
        ("TRUNCATE t", Statement(Kind.SCHEMA, table=("", "t"), empties=True)),
        (
            "truncate/**/table`a``b` . `c`",
            Statement(Kind.SCHEMA, table=("a`b", "c"), empties=True),
        ),
        ("ALTER TABLE s.t ADD x INT", Statement(Kind.SCHEMA, table=("s", "t"))),
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
        ("ANALYZE TABLE t /* */ , drop_me", Statement(Kind.OTHER)),
        ("/*!50000 CREATE */ TABLE t (i INT)", Statement(Kind.SCHEMA, table=("", "t"))),
        ("DROP TEMPORARY TABLE `tt` /* by server */", Statement(Kind.SCHEMA, table=("", "tt"))),
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
    assert (found.kind, found.fills, found.versions) == (Kind.SCHEMA, fills, versions)
