"""What the source's user may not read: its changes are in the log all the same."""

from typing import Any

import pytest
from fencepost.clients.binlog.database import CannotFollow
from followed import Followed

pytestmark = pytest.mark.slow


def test_a_table_that_may_not_be_read_ends_the_source_at_its_first_row(
    sql: Any, schema: str, followed: Followed
) -> None:
    """The catalogue does not have it for such a user, so a snapshot leaves its rows out."""
    user = schema[-20:]
    for table in ("a", "b"):
        sql(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
        sql(f"INSERT INTO {table} VALUES (1)")
    sql(f"CREATE USER {user} IDENTIFIED BY 'x'")
    sql(f"GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO {user}")
    sql(f"GRANT SELECT ON {schema}.a TO {user}")
    plain = {"user": user, "password": "x"}
    followed.run(**plain)
    assert followed.held("a") == [1]
    sql("INSERT INTO a VALUES (2)")
    sql("INSERT INTO b VALUES (2)")
    for _ in range(2):
        said = rf"{schema}\.b .*may not read.*GRANT SELECT.*--resnapshot"
        with pytest.raises(CannotFollow, match=said):
            followed.run(**plain)
    assert (followed.held("a"), followed.held("b")) == ([1, 2], [])
    sql(f"GRANT SELECT ON {schema}.* TO {user}")
    followed.run(**plain, resnapshot=True)
    assert followed.held("b") == [1, 2]
    sql("CREATE TABLE gone (id INT PRIMARY KEY)")
    sql("INSERT INTO gone VALUES (1)")
    sql("DROP TABLE gone")
    sql("INSERT INTO b VALUES (3)")
    followed.run(**plain)
    assert (followed.held("gone"), followed.held("b")) == ([], [1, 2, 3])


def test_a_table_of_a_schema_that_is_gone_is_told(
    sql: Any, schema: str, followed: Followed
) -> None:
    followed.run()
    sql("CREATE TABLE t (id INT PRIMARY KEY)")
    sql("INSERT INTO t VALUES (1)")
    sql(f"DROP DATABASE {schema}")
    followed.run()
    assert [each["op"] for each in followed.told("t")][:1] == ["c"]
    assert followed.held("t") == []


def test_who_wants_changes_alone_has_them_of_all_tables(
    sql: Any, schema: str, followed: Followed
) -> None:
    user = schema[-20:]
    sql("CREATE TABLE b (id INT PRIMARY KEY)")
    sql("INSERT INTO b VALUES (1)")
    sql(f"CREATE USER {user} IDENTIFIED BY 'x'")
    sql(f"GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO {user}")
    plain = {"user": user, "password": "x", "snapshot": "never"}
    followed.run(**plain)
    sql("INSERT INTO b VALUES (2)")
    followed.run(**plain)
    assert followed.held("b") == [2]
