"""What the driver does not know: nobody's concern in other tables, and named where it is."""

from typing import Any

import pytest
from fencepost.clients.binlog.columns import UnknownType
from fencepost.clients.binlog.database import CannotFollow
from followed import Followed

pytestmark = pytest.mark.slow
COMPRESSED = [
    "id INT PRIMARY KEY, c VARCHAR(100) COMPRESSED",
    "id INT PRIMARY KEY, c BLOB COMPRESSED, e ENUM('x', 'y'), d DECIMAL(9, 2)",
    "c VARCHAR(100) COMPRESSED, id INT PRIMARY KEY, t TEXT COMPRESSED, v VARCHAR(9), s SET('x')",
]


@pytest.mark.parametrize("columns", COMPRESSED)
def test_a_compressed_column_of_another_table_ends_no_source(
    sql: Any, schema: str, followed: Followed, columns: str
) -> None:
    sql("CREATE TABLE t (id INT PRIMARY KEY)")
    followed.run()
    sql(f"CREATE DATABASE other_{schema}")
    sql(f"CREATE TABLE other_{schema}.u ({columns})")
    sql(f"INSERT INTO other_{schema}.u (id, c) VALUES (1, REPEAT('a', 90))")
    sql("INSERT INTO t VALUES (1)")
    sql(f"UPDATE other_{schema}.u SET id = 2")
    sql("INSERT INTO t VALUES (2)")
    followed.run()
    assert followed.held("t") == [1, 2]


@pytest.mark.parametrize("columns", COMPRESSED)
def test_a_compressed_column_that_is_followed_is_named(
    sql: Any, schema: str, followed: Followed, columns: str
) -> None:
    sql("CREATE TABLE t (id INT PRIMARY KEY)")
    followed.run()
    sql("INSERT INTO t VALUES (1)")
    sql(f"CREATE TABLE u ({columns})")
    sql("INSERT INTO u (id, c) VALUES (1, REPEAT('a', 90))")
    with pytest.raises(UnknownType, match=rf"{schema}\.u: column c is compressed.*--tables"):
        followed.run()
    assert followed.held("t") == [1]


def test_a_compressed_column_is_named_before_a_snapshot(
    sql: Any, schema: str, followed: Followed
) -> None:
    sql("CREATE TABLE u (id INT PRIMARY KEY, e ENUM('COMPRESSED'), c TEXT COMPRESSED)")
    with pytest.raises(UnknownType, match=rf"{schema}\.u: column c is compressed"):
        followed.run()


def test_long_names_and_values_of_another_table_end_no_source(
    sql: Any, schema: str, followed: Followed
) -> None:
    """The driver read what it takes for the length of 128 bytes and more, and then something that was no table's map."""
    sql("CREATE TABLE t (id INT PRIMARY KEY)")
    followed.run()
    sql(f"CREATE DATABASE other_{schema}")
    sql(f"CREATE TABLE other_{schema}.u (`{'表' * 60}` INT PRIMARY KEY, e ENUM('{'日' * 80}'))")
    sql(f"INSERT INTO other_{schema}.u VALUES (1, 1)")
    sql(f"CREATE TABLE u LIKE other_{schema}.u")
    sql("INSERT INTO u VALUES (1, 1)")
    sql("INSERT INTO t VALUES (1)")
    followed.run()
    assert followed.held("t") == [1]
    assert [each["after"] for each in followed.told("u")] == [{"表" * 60: 1, "e": "日" * 80}]


def test_an_alter_that_is_logged_in_two_phases_names_the_setting(
    sql: Any, schema: str, followed: Followed
) -> None:
    """MariaDB's; the driver does not know its mark."""
    sql("CREATE TABLE t (id INT PRIMARY KEY)")
    followed.run()
    sql("SET GLOBAL binlog_alter_two_phase = 1")
    try:
        with pytest.raises(CannotFollow, match=r"binlog_alter_two_phase=ON: .* Set it to OFF"):
            followed.run()
    finally:
        sql("SET GLOBAL binlog_alter_two_phase = DEFAULT")
    sql("SET SESSION binlog_alter_two_phase = 1")
    sql("ALTER TABLE t ADD n INT, ALGORITHM = COPY")
    with pytest.raises(CannotFollow, match=r"has set binlog_alter_two_phase.*--resnapshot"):
        followed.run()
    followed.run(resnapshot=True)
