"""A row of the stream is what a SELECT gives, and a snapshot is all of it, whatever the server is set to."""

import time
from typing import Any

import pytest
from fencepost.clients.binlog import BinlogSource
from followed import Followed, committed

pytestmark = pytest.mark.slow


def rows(followed: Followed, table: str) -> list[tuple[str, Any, Any]]:
    return [(each["op"], each["before"], each["after"]) for each in followed.told(table)]


def test_a_column_that_no_select_has_is_not_told(sql, schema, followed: Followed) -> None:
    """MariaDB keeps a hash of a text that is UNIQUE in a column of its own."""
    sql("CREATE TABLE t (id INT PRIMARY KEY, b TEXT UNIQUE, c TEXT UNIQUE, n INT)")
    sql("INSERT INTO t VALUES (1, 'x', 'y', 7)")
    followed.run()
    sql("INSERT INTO t VALUES (2, 'z', 'w', 8)")
    sql("UPDATE t SET n = 9 WHERE id = 1")
    sql("DELETE FROM t WHERE id = 2")
    followed.run()
    one, two = ({"id": 1, "b": "x", "c": "y", "n": 7}, {"id": 2, "b": "z", "c": "w", "n": 8})
    assert rows(followed, "t") == [
        ("r", None, one),
        ("c", None, two),
        ("u", one, {**one, "n": 9}),
        ("d", two, None),
    ]
    # Nor has the table changed.
    assert len(committed(followed.settings.bootstrap, f"{schema}.schema")) == 1


@pytest.mark.parametrize(
    ("variable", "value"),
    [("sql_select_limit", "100"), ("sql_mode", "'PAD_CHAR_TO_FULL_LENGTH'")],
)
def test_what_the_server_gives_to_new_sessions_changes_no_snapshot(
    sql, schema, followed: Followed, variable: str, value: str
) -> None:
    sql("CREATE TABLE t (k CHAR(9) PRIMARY KEY)")
    sql("INSERT INTO t SELECT seq FROM seq_1_to_150")
    sql(f"SET GLOBAL {variable} = {value}")
    try:
        followed.run()
    finally:
        sql(f"SET GLOBAL {variable} = DEFAULT")
    sql("UPDATE t SET k = '151' WHERE k = '150'")
    followed.run()
    held: dict[str, Any] = {}
    for key, told in followed.records("t"):
        held[key["k"]] = told
    assert sorted(key for key in held if held[key]) == sorted(
        str(each) for each in (*range(1, 150), 151)
    )


def test_a_snapshot_may_take_longer_than_a_statement_of_others(sql, schema, followed) -> None:
    """Else it is ended in the middle, each time: it would begin anew for ever."""
    sql("CREATE TABLE t (id INT PRIMARY KEY, v MEDIUMTEXT)")
    sql("INSERT INTO t SELECT seq, REPEAT('x', 20000) FROM seq_1_to_1500")
    steps: list[str] = []

    def on_step(step: str) -> None:
        steps.append(step)
        if step == "snapshot-row" and steps.count(step) == 1:
            time.sleep(2.0)

    sql("SET GLOBAL max_statement_time = 1")
    try:
        BinlogSource(followed.settings, on_step).run()
    finally:
        sql("SET GLOBAL max_statement_time = DEFAULT")
    assert steps.count("snapshot-began") == 1
    assert len(followed.held("t")) == 1500


def test_what_a_column_is_made_of_others_by_is_told_as_a_select_has_it(
    sql, schema, followed: Followed
) -> None:
    sql(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT, v INT AS (n * 2) VIRTUAL, s VARCHAR(9) AS (CONCAT('s', n)) STORED,"
        " i INT INVISIBLE DEFAULT 5, w INT AS (n + 1) VIRTUAL)"
    )
    sql("INSERT INTO t (id, n) VALUES (1, 7)")
    followed.run()
    sql("INSERT INTO t (id, n) VALUES (2, 8)")
    sql("UPDATE t SET n = 9 WHERE id = 1")
    sql("DELETE FROM t WHERE id = 2")
    followed.run()

    def row(number: int, n: int) -> dict[str, Any]:
        return {"id": number, "n": n, "v": 2 * n, "s": f"s{n}", "i": 5, "w": n + 1}

    assert rows(followed, "t") == [
        ("r", None, row(1, 7)),
        ("c", None, row(2, 8)),
        ("u", row(1, 7), row(1, 9)),
        ("d", row(2, 8), None),
    ]
    assert len(committed(followed.settings.bootstrap, f"{schema}.schema")) == 1
