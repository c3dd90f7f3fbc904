"""A MySQL that has logged no transaction has no position that the log can be followed from: nothing is written of it."""

import json
from typing import Any

import pytest
from fencepost.clients.binlog import Settings
from fencepost.clients.binlog.changes import CREATE, TRUNCATE, Change
from fencepost.clients.binlog.columns import Column, Table
from fencepost.clients.binlog.database import CannotFollow
from fencepost.clients.binlog.gtids import MARIADB, MYSQL, position_of
from fencepost.clients.binlog.kept_place import as_kept, position_in
from made_up import MadeUp, MadeUpDatabase

ORDERS = Table("shop", "orders", (Column("id", "int"),), ("id",))
FIRST = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1"
SAID = r"has logged no transaction yet \(gtid_executed is empty\): commit one, then start again$"


@pytest.fixture
def mysql(made_up: MadeUp, monkeypatch: pytest.MonkeyPatch) -> MadeUp:
    monkeypatch.setattr(MadeUpDatabase, "flavor", MYSQL)
    made_up.rows = [(ORDERS, {"id": 1})]
    return made_up


def commit_first(mysql: MadeUp, row: dict[str, Any]) -> None:
    mysql.log.append((FIRST, [Change(FIRST, 0, 5_000, ORDERS, CREATE, after=row)]))
    mysql.rows.append((ORDERS, row))


def ops(made_up: MadeUp) -> list[tuple[str, Any]]:
    return [(value["op"], value["after"]) for _, value in made_up.brokers.told("orders")]


@pytest.mark.parametrize("snapshot", ["initial", "never"])
def test_nothing_is_kept_of_a_mysql_that_has_logged_nothing(mysql: MadeUp, snapshot: str) -> None:
    """Else the position, which is none, would be refused whenever it starts, whatever was committed since."""
    with pytest.raises(CannotFollow, match=SAID):
        mysql.source(snapshot=snapshot).run()
    assert mysql.brokers.kept == []
    commit_first(mysql, {"id": 2})
    mysql.source(snapshot=snapshot).run()
    assert ops(mysql) == ([("r", {"id": 1}), ("r", {"id": 2})] if snapshot == "initial" else [])
    (kept,) = (each.value() for each in mysql.brokers.kept if each.key() == b"s")
    assert json.loads(kept)["gtid"] == FIRST


def test_a_position_that_an_older_build_kept_of_such_a_one_counts_as_none(mysql: MadeUp) -> None:
    settings = Settings(source="s", topic="{table}")
    commit_first(mysql, {"id": 2})
    mysql.source().run()
    nowhere = as_kept(position_of(MYSQL, ""), MYSQL, settings)
    record = {"topic": settings.position_topic, "key": b"s", "value": nowhere.encode()}
    mysql.brokers.keep(record)
    mysql.source().run()
    told = ops(mysql)
    assert {op for op, _ in told[2:4]} == {TRUNCATE}, "which of those rows are left nobody knows"
    assert told[4:] == [("r", {"id": 1}), ("r", {"id": 2})]


def test_mariadbs_beginning_is_a_position_like_others() -> None:
    settings = Settings(source="s")
    kept = as_kept(position_of(MARIADB, ""), MARIADB, settings)
    found = position_in(kept, MARIADB, settings)
    assert str(found) == "" == json.loads(kept)["gtid"] and found is not None


def test_a_mariadb_that_has_logged_nothing_is_followed_from_its_beginning(made_up: MadeUp) -> None:
    made_up.rows = [(ORDERS, {"id": 1})]
    made_up.source().run()
    made_up.commit(ORDERS, CREATE, after={"id": 2})
    made_up.source().run()
    assert ops(made_up) == [("r", {"id": 1}), ("c", {"id": 2})]
