"""A table's primary key becomes another one: its rows are in the topic under the keys that they had."""

import pytest
from fencepost.clients.binlog.changes import CREATE, DELETE, TRUNCATE, UPDATE
from fencepost.clients.binlog.columns import Column, Table, key_form
from fencepost.clients.binlog.database import CannotFollow
from followed import Followed
from made_up import MadeUp

ID, NEW_ID, B = Column("id", "int"), Column("order_id", "int"), Column("b", "int")
ORDERS = Table("shop", "orders", (ID, B), ("id",))
OTHERS = {
    "another column": Table("shop", "orders", (ID, B), ("b",)),
    "another order": Table("shop", "orders", (ID, B), ("b", "id")),
    "another name": Table("shop", "orders", (NEW_ID, B), ("order_id",)),
    "another type": Table("shop", "orders", (Column("id", "varchar"), B), ("id",)),
    "another scale": Table("shop", "orders", (Column("id", "decimal", scale=2), B), ("id",)),
    "none": Table("shop", "orders", (ID, B), ()),
}
ROW = {"id": 7, "order_id": 7, "b": 1}


def fill(made_up: MadeUp) -> None:
    made_up.rows.append((ORDERS, {"id": 7, "b": 1}))
    made_up.source().run()


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("op", [UPDATE, DELETE, CREATE])
def test_a_primary_key_that_is_another_one_ends_the_source(
    made_up: MadeUp, name: str, op: str
) -> None:
    """1. A row is told under {"id":7}. 2. The key becomes another one: no row is logged. 3. A delete of the row would drop
    another key than the one that readers have."""
    fill(made_up)
    made_up.commit(OTHERS[name], op, before=ROW, after=None if op == DELETE else ROW)
    said = r"^0-1-1: the primary key of shop\.orders is .* and was \(id\).*--resnapshot"
    for _ in range(2):  # a restart comes by it again
        with pytest.raises(CannotFollow, match=said):
            made_up.source().run()
    assert [key for key, _ in made_up.brokers.told("orders")] == [{"id": 7}]


@pytest.mark.parametrize("name", OTHERS)
def test_a_snapshot_that_is_taken_again_has_the_new_key(made_up: MadeUp, name: str) -> None:
    fill(made_up)
    made_up.commit(OTHERS[name], UPDATE, before=ROW, after=ROW)
    made_up.rows[:] = [(OTHERS[name], ROW)]
    made_up.source(resnapshot=True).run()
    made_up.commit(OTHERS[name], UPDATE, before=ROW, after=ROW)
    made_up.source().run()
    told = made_up.brokers.told("orders")
    assert [value["op"] for _, value in told] == ["r", "t", "t", "r", "u"]
    key = dict.fromkeys(OTHERS[name].primary_key, 7)
    assert [list(each or {}) for each, _ in told[-2:]] == 2 * [list(key)]


@pytest.mark.parametrize("restarts", [True, False])
def test_an_emptied_table_may_have_any_key(made_up: MadeUp, restarts: bool) -> None:
    """DROP TABLE and CREATE TABLE, or TRUNCATE and ALTER TABLE; also when the source begins anew in between."""
    fill(made_up)
    made_up.commit(Table("shop", "orders", (), ()), TRUNCATE)
    if restarts:
        made_up.source().run()
    made_up.commit(OTHERS["another column"], CREATE, after=ROW)
    made_up.source().run()
    assert made_up.brokers.told("orders")[-1][0] == {"b": 1}
    columns = [(value or {}).get("primary_key") for _, value in made_up.brokers.told("s.schema")]
    assert columns == [["id"], None, ["b"]]


def test_who_wants_changes_alone_goes_on_with_another_key(made_up: MadeUp) -> None:
    made_up.commit(ORDERS, CREATE, after=ROW)
    made_up.source().run()
    made_up.commit(ORDERS, CREATE, after=ROW)
    made_up.commit(OTHERS["none"], UPDATE, before=ROW, after=ROW)
    made_up.source(snapshot="never").run()
    assert [key for key, _ in made_up.brokers.told("orders")] == [{"id": 7}, None]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Column("id", "int"), Column("id", "bigint", unsigned=True)),
        (Column("id", "varchar"), Column("id", "text")),
        (Column("id", "decimal", precision=5, scale=2), Column("id", "decimal", precision=9, scale=2)),
        (Column("id", "enum", values=("a",)), Column("id", "enum", values=("a", "b"))),
    ],
)  # fmt: skip
def test_a_key_that_looks_the_same_is_the_same(before: Column, after: Column) -> None:
    def form(column: Column) -> object:
        return key_form(Table("s", "t", (column, B), ("id",)).as_json())

    assert form(before) == form(after)


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    [
        "DROP PRIMARY KEY, ADD PRIMARY KEY (b)",
        "RENAME COLUMN id TO order_id",
        "MODIFY id VARCHAR(9)",
    ],
)
def test_mariadbs_key_that_is_altered_ends_the_source(
    sql, schema, followed: Followed, statement
) -> None:
    sql("CREATE TABLE t (id INT, b INT, PRIMARY KEY (id))")
    sql("INSERT INTO t VALUES (1, 1), (2, 2)")
    followed.run()
    sql("ALTER TABLE t MODIFY id BIGINT, ADD c INT")
    sql("UPDATE t SET c = 1")
    followed.run()
    sql(f"ALTER TABLE t {statement}")
    sql("DELETE FROM t WHERE b = 2")
    with pytest.raises(CannotFollow, match=r"the primary key of \w+\.t is .*--resnapshot"):
        followed.run()
    sql("TRUNCATE t")
    with pytest.raises(CannotFollow, match="the primary key"):
        followed.run()  # the delete is still before it
    followed.run(resnapshot=True)
    assert followed.held("t") == []
