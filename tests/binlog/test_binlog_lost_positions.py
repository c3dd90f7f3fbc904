"""A position that is gone, with its topic or by another --position-topic, while rows are in topics: the snapshot is one that is taken again."""

import json

from fencepost.clients.binlog.changes import CREATE, TRUNCATE
from fencepost.clients.binlog.columns import Column, Table
from made_up import MadeUp

ORDERS = Table("shop", "orders", (Column("id", "int"),), ("id",))
GONE = Table("shop", "gone", (Column("id", "int"),), ("id",))


def held(made_up: MadeUp, topic: str) -> list[int]:
    """By a consumer that heeds `t`."""
    found: set[int] = set()
    for key, value in made_up.brokers.told(topic):
        if value["op"] == TRUNCATE:
            found.clear()
        else:
            found.add(key["id"])
    return sorted(found)


def test_what_was_told_before_a_position_was_lost_comes_to_nothing_first(made_up: MadeUp) -> None:
    """1. Rows are told. 2. The position is lost. 3. Meanwhile a row is deleted and a table dropped. 4. The next snapshot has what
    is left: nobody would ever say that the others are gone."""
    made_up.rows = [(ORDERS, {"id": 1}), (ORDERS, {"id": 2}), (GONE, {"id": 1})]
    made_up.source().run()
    assert held(made_up, "orders") == [1, 2] and held(made_up, "gone") == [1]
    made_up.rows = [(ORDERS, {"id": 2})]
    made_up.source(position_topic="another").run()
    assert held(made_up, "orders") == [2] and held(made_up, "gone") == []


def test_a_first_snapshot_empties_nothing(made_up: MadeUp) -> None:
    made_up.rows = [(ORDERS, {"id": 1})]
    made_up.source().run()
    made_up.commit(ORDERS, CREATE, after={"id": 2})
    made_up.source().run()
    assert [value["op"] for _, value in made_up.brokers.told("orders")] == ["r", "c"]
    keys = [each.key() for each in made_up.brokers.kept if each.topic() == "s.schema"]
    assert [json.loads(key)["table"] for key in keys] == ["orders"]
