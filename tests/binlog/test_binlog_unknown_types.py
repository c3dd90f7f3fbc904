"""Columns of types that the driver does not know: nobody's concern in other tables, and named in those that are followed."""

from typing import Any

import pytest
from fencepost.clients.binlog.columns import UnknownType
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
