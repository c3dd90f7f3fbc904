"""A server to which all spellings of a name are one (lower_case_table_names=1, 2), whatever statements and settings call it."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymysql
import pytest
from fencepost.chaos.harness.mariadb import Mariadb
from fencepost.clients.binlog import Settings
from fencepost.clients.binlog import database as database_module
from fencepost.clients.binlog.database import CannotFollow, Database
from followed import Followed


@pytest.fixture(scope="module")
def small(database: Mariadb) -> Iterator[Mariadb]:
    """Beside `database`, which says whether there is a MariaDB at all."""
    folder = Path(tempfile.mkdtemp(prefix="fencepost-binlog-"))
    os.chmod(folder, 0o755)
    try:
        with Mariadb(folder / "database", settings=["lower-case-table-names=1"]) as found:
            yield found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def say(small: Mariadb, schema: str) -> Iterator[Any]:
    with pymysql.connect(**small.login, autocommit=True) as connection, connection.cursor() as at:
        at.execute(f"CREATE DATABASE {schema}")
        at.execute(f"USE {schema}")
        yield at.execute


@pytest.mark.slow
@pytest.mark.parametrize("tables", ["*", "orders", "Orders", "[N-P]*"])
def test_a_table_that_is_emptied_by_another_spelling_is_told(
    small: Mariadb, say: Any, schema: str, followed: Followed, tables: str
) -> None:
    followed.settings = replace(followed.settings, port=small.port, tables=(f"{schema}.{tables}",))
    say("CREATE TABLE Orders (id INT PRIMARY KEY)")
    say("INSERT INTO ORDERS VALUES (1), (2)")
    followed.run()
    assert followed.held("orders") == [1, 2]
    say("TRUNCATE TABLE Orders")
    say("INSERT INTO Orders VALUES (3)")
    followed.run()
    assert followed.held("orders") == [3]
    say("DROP TABLE ORDERS")
    followed.run()
    assert followed.held("orders") == []
    say("CREATE TABLE Orders (id INT PRIMARY KEY)")
    say("INSERT INTO Orders VALUES (4)")
    say("CREATE TABLE away (id INT PRIMARY KEY)")
    followed.run()
    say(f"DROP DATABASE {schema.upper()}")
    followed.run()
    assert followed.held("orders") == []


@pytest.mark.slow
def test_a_rename_by_another_spelling_ends_the_source(
    small: Mariadb, say: Any, schema: str, followed: Followed
) -> None:
    followed.settings = replace(followed.settings, port=small.port, tables=(f"{schema}.orders",))
    say("CREATE TABLE orders (id INT PRIMARY KEY)")
    say("CREATE TABLE copied (id INT PRIMARY KEY)")
    followed.run()
    say("RENAME TABLE orders TO old, copied TO ORDERS")
    with pytest.raises(CannotFollow, match=r"was renamed to .*orders, which is followed"):
        followed.run()


@pytest.mark.slow
def test_a_topic_that_is_chosen_for_a_table_by_another_spelling_is_its_topic(
    small: Mariadb, say: Any, schema: str, followed: Followed
) -> None:
    followed.settings = replace(
        followed.settings,
        port=small.port,
        topics={f"{schema}.Orders": f"{schema}.orders-elsewhere"},
    )
    say("CREATE TABLE Orders (id INT PRIMARY KEY)")
    say("INSERT INTO Orders VALUES (1)")
    followed.run()
    assert followed.held("orders-elsewhere") == [1]


# lower_case_table_names=2, which is the rule on macOS, keeps names as they were said and takes all spellings for one. A server
# with it needs a file system that does so, too; so here are its answers alone.
def test_a_server_that_keeps_spellings_has_one_table_for_all_of_them(monkeypatch: Any) -> None:
    catalogue = {
        "@@GLOBAL": [(b"2",)],
        "VERSION()": [(b"8.0.36",)],
        "information_schema.tables": [
            (b"Shop", b"Orders", b"InnoDB"),
            (b"Shop", b"items", b"InnoDB"),
        ],
        "information_schema.columns": [
            (b"Shop", b"Orders", b"Id", b"int", b"int", b"10", b"0", None)
        ],
        "information_schema.statistics": [(b"Id",)],
    }

    def rows(_: Database, sql: str, *_values: str) -> Any:
        return next(catalogue[each] for each in catalogue if each in sql)

    monkeypatch.setattr(database_module, "WatchedConnection", lambda **_: None)
    monkeypatch.setattr(Database, "rows", rows)
    settings = Settings(source="s", tables=("shop.ORDERS",))
    found = Database(settings)
    assert found.names_are_small
    assert [each.full_name for each in found.tables()] == ["shop.orders"]
