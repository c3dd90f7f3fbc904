"""What the driver tells becomes changes, and what can't be read ends the stream in a sentence. No database is asked."""

from types import SimpleNamespace
from typing import Any

import pytest
from fencepost.clients.binlog import rollbacks, row_images
from fencepost.clients.binlog.binlog_stream import FOLLOWED, SEQUENCES, Interpreter
from fencepost.clients.binlog.changes import (
    CREATE,
    TRUNCATE,
    UPDATE,
    Change,
    Idle,
    SchemaChange,
    TransactionEnd,
)
from fencepost.clients.binlog.columns import Column, Table
from fencepost.clients.binlog.database import CannotFollow
from fencepost.clients.binlog.rollbacks import TakenBack
from pymysqlreplication import event, row_event

ORDERS = Table("shop", "orders", (Column("id", "int"), Column("n", "tinyint")), ("id",))


def told(kind: type, **fields: Any) -> Any:
    """An event of the driver without a packet."""
    made = object.__new__(kind)
    made.__dict__.update(fields)
    return made


def gtid(number: int, flags: int = 0) -> Any:
    return told(event.MariadbGtidEvent, gtid=f"0-1-{number}", flags=flags)


def query(sql: str, schema: str = "shop") -> Any:
    return told(event.QueryEvent, query=sql, schema=schema.encode(), timestamp=5)


def column(name: str, code: int) -> Any:
    return SimpleNamespace(
        name=name,
        type=code,
        unsigned=False,
        character_set_name=None,
        enum_values=None,
        set_values=None,
    )


def metadata_of(key: list[int]) -> Any:
    return SimpleNamespace(
        simple_primary_key_list=key,
        primary_keys_with_prefix={},
        charset_collation_list=[],
        enum_and_set_collation_list=[],
    )


def table_map(**fields: Any) -> Any:
    metadata = metadata_of([0])
    columns = [column("id", 3), column("n", 1)]
    base = {"table_id": 9, "schema": "shop", "table": "orders", "columns": columns}
    return told(row_event.TableMapEvent, **{**base, "optional_metadata": metadata, **fields})


class Packet:
    def __init__(self, data: bytes) -> None:
        self.data, self.read_bytes = data, 0

    def read(self, size: int) -> bytes:
        self.read_bytes += size
        return self.data[:size]


def rows(kind: type, data: bytes, present: bytes = b"\x03") -> Any:
    fields = {"table_id": 9, "number_of_columns": 2, "timestamp": 5, "event_size": len(data)}
    maps = {"columns_present_bitmap": present, "columns_present_bitmap2": b"\x03"}
    return told(kind, **fields, **maps, packet=Packet(data))


def changes(*events: Any, tables: str = "shop.*", flavor: str = "mariadb") -> list[Any]:
    interpreter = Interpreter([tables], flavor)
    return [found for each in events for found in interpreter.take(each)]


ROW = b"\x00\x01\x00\x00\x00\x07"


def test_a_transactions_rows_are_numbered_and_end_with_its_gtid() -> None:
    found = changes(
        gtid(7),
        table_map(),
        rows(row_event.WriteRowsEvent, ROW + ROW),
        table_map(),
        rows(row_event.UpdateRowsEvent, ROW + ROW),
        told(event.XidEvent),
        told(event.HeartbeatLogEvent),
    )
    row = {"id": 1, "n": 7}
    assert found == [
        Change("0-1-7", 0, 5_000, ORDERS, CREATE, None, row),
        Change("0-1-7", 1, 5_000, ORDERS, CREATE, None, row),
        Change("0-1-7", 2, 5_000, ORDERS, UPDATE, row, row),
        TransactionEnd("0-1-7"),
        Idle(),
    ]


def test_rows_of_tables_that_nobody_asked_for_leave_their_gtid_alone() -> None:
    events = (gtid(7), table_map(), rows(row_event.WriteRowsEvent, ROW), told(event.XidEvent))
    assert changes(*events, tables="stock.*") == [TransactionEnd("0-1-7")]


@pytest.mark.parametrize(
    ("sql", "is_told"),
    [
        ("ALTER TABLE orders ADD x INT", True),
        ("create /* hm */ index i on orders (n)", True),
        ("ALTER TABLE stock.items ADD x INT", False),
        ("CREATE USER somebody", False),
        ("GRANT ALL ON *.* TO somebody", False),
        ("ANALYZE TABLE orders", False),
    ],
)
def test_schema_changes_of_what_is_followed_are_told(sql: str, is_told: bool) -> None:
    change = [SchemaChange("0-1-7", 5_000, "shop", sql)] if is_told else []
    assert changes(gtid(7, flags=1), query(sql)) == [*change, TransactionEnd("0-1-7")]


def test_an_emptied_table_is_a_change_of_it() -> None:
    found = changes(gtid(7, flags=1), query("TRUNCATE `shop`.`orders`", "other"))
    assert found[1:] == [
        Change("0-1-7", 0, 5_000, Table("shop", "orders", (), ()), TRUNCATE),
        TransactionEnd("0-1-7"),
    ]


def test_mysqls_transactions_begin_with_a_word_and_its_schema_changes_do_not() -> None:
    name = "3e11fa47-71ca-11e1-9e33-c80aa9429562:7"
    begin = told(event.GtidEvent)
    object.__setattr__(begin, "sid", bytes.fromhex(name[:36].replace("-", "")))
    object.__setattr__(begin, "gno", 7)
    inside = (query("BEGIN"), table_map(), rows(row_event.WriteRowsEvent, ROW), query("COMMIT"))
    assert changes(begin, *inside, flavor="mysql")[-1] == TransactionEnd(name)
    assert len(changes(begin, query("CREATE TABLE t (i INT)"), flavor="mysql")) == 2


def test_a_change_that_was_logged_as_a_statement_ends_the_stream() -> None:
    with pytest.raises(CannotFollow, match="0-1-7: a change was logged as a statement"):
        changes(gtid(7), query("INSERT INTO orders VALUES (1, 2)"))


@pytest.mark.parametrize(
    ("sql", "schema", "flags"),
    [
        ("INSERT INTO shop.orders VALUES (1, 2)", "other", 0),
        ("SET STATEMENT max_statement_time=10 FOR INSERT INTO orders VALUES (1, 2)", "shop", 0),
        ("-- hi\nINSERT INTO orders VALUES (1, 2)", "shop", 0),
        ("SELECT shop.fn()", "shop", 0),
        ("FLUSH TABLES", "shop", 0),  # what it is nobody knows: rows are the only change there
        ("# hi\nUPDATE shop.orders SET n = 1", "other", 1),
        ("CREATE TABLE stock SELECT * FROM orders", "shop", 1),
    ],
)
def test_a_statement_ends_the_stream_whatever_hides_it(sql: str, schema: str, flags: int) -> None:
    with pytest.raises(CannotFollow, match=r"0-1-7: a change was logged.*binlog_format=ROW"):
        changes(gtid(7, flags), query(sql, schema))


@pytest.mark.parametrize("kind", [event.BeginLoadQueryEvent, event.ExecuteLoadQueryEvent])
def test_a_load_that_was_logged_as_a_statement_ends_the_stream(kind: type) -> None:
    """The driver leaves out what it was not asked for, without a word."""
    assert kind in FOLLOWED
    with pytest.raises(CannotFollow, match=r"as a statement.*LOAD DATA"):
        changes(gtid(7), told(kind))


def test_a_file_without_checksums_is_not_read() -> None:
    """The driver cut four bytes off each event of it: 'hello' was told as 'h', and a number in the last column as 0."""
    file = told(event.FormatDescriptionEvent, checksum_algorithm=1)
    inserted = (gtid(7), table_map(), rows(row_event.WriteRowsEvent, ROW), told(event.XidEvent))
    assert [type(each) for each in changes(file, *inserted)] == [Change, TransactionEnd]
    plain = told(event.FormatDescriptionEvent, checksum_algorithm=0)
    with pytest.raises(CannotFollow, match=r"after 0-1-7 a file .* no checksums.*--resnapshot"):
        changes(file, gtid(7), told(event.XidEvent), plain)


@pytest.mark.parametrize(
    ("kind", "images"),
    [
        (row_event.WriteRowsEvent, ROW),
        (row_event.DeleteRowsEvent, ROW),
        (row_event.UpdateRowsEvent, ROW + ROW),
    ],
)
def test_a_row_that_ends_too_early_is_not_told(kind: type, images: bytes) -> None:
    for cut in range(1, len(images)):
        with pytest.raises(CannotFollow, match=r"0-1-7: a row of shop\.orders ends before all"):
            changes(gtid(7), table_map(), rows(kind, images[:-cut]))


def test_no_password_is_told_of_a_statement() -> None:
    sql = "CREATE TABLE shop.f (id INT) ENGINE=FEDERATED CONNECTION='mysql://root:{}@h/db/t'"
    found = changes(gtid(7, flags=1), query(sql.format("secret")))
    assert found[0] == SchemaChange("0-1-7", 5_000, "shop", sql.partition("'")[0] + "'…'")
    with pytest.raises(CannotFollow, match="CREATE USER u IDENTIFIED BY '…'") as raised:
        changes(gtid(7), query("CREATE USER u IDENTIFIED BY 'secret'"))
    assert "secret" not in str(raised.value)


def test_schema_changes_and_savepoints_may_stand_in_a_transaction() -> None:
    sql = "CREATE TABLE `orders` (`id` INT)"
    marks = (query("SAVEPOINT `a`"), query("RELEASE SAVEPOINT `a`"), query("XA ROLLBACK 'x'"))
    found = changes(gtid(7), query("BEGIN"), query(sql), *marks[:2], told(event.XidEvent))
    assert found == [SchemaChange("0-1-7", 5_000, "shop", sql), TransactionEnd("0-1-7")]
    assert changes(gtid(8, flags=1), marks[2]) == [TransactionEnd("0-1-8")]


def test_an_emptied_table_is_seen_behind_a_comment() -> None:
    found = changes(gtid(7, flags=1), query("-- hi\nTRUNCATE orders"))
    assert [getattr(each, "op", None) for each in found] == [None, TRUNCATE, None]


def writes() -> tuple[Any, Any]:
    """Fresh ones: a packet is read once."""
    return table_map(), rows(row_event.WriteRowsEvent, ROW)


def test_rows_that_were_rolled_back_are_not_told() -> None:
    found = changes(gtid(7), *writes(), query("ROLLBACK"))
    assert found == [TransactionEnd("0-1-7")]
    marked = (query("SAVEPOINT `a`"), *writes(), query("ROLLBACK TO `A`"))
    found = changes(gtid(7), *writes(), *marked, *writes(), told(event.XidEvent))
    assert [each.number for each in found[:-1]] == [0, 2]


def test_a_large_transaction_that_rolls_back_is_told_to_begin_again(monkeypatch) -> None:
    monkeypatch.setattr(rollbacks, "HELD_BYTES_MAX", 0)
    interpreter = Interpreter(["shop.*"], "mariadb")
    events = [gtid(7), *writes(), query("ROLLBACK")]
    with pytest.raises(TakenBack, match=r"0-1-7 rolled back rows.*0 to 0") as raised:
        [found for each in events for found in interpreter.take(each)]
    spans = {raised.value.name: raised.value.spans}
    interpreter = Interpreter(["shop.*"], "mariadb", spans)
    events = [gtid(7), *writes(), query("ROLLBACK"), gtid(8), *writes(), told(event.XidEvent)]
    found = [found for each in events for found in interpreter.take(each)]
    assert [each.gtid for each in found] == ["0-1-7", "0-1-8", "0-1-8"]


def test_a_transaction_that_its_database_died_in_is_not_told(monkeypatch) -> None:
    """Its GTID is the next one's."""
    left_out: dict[Any, Any] = {}

    def found() -> list[type]:
        events = (gtid(7), *writes(), gtid(7), *writes(), told(event.XidEvent))
        interpreter = Interpreter(["shop.*"], "mariadb", left_out)
        return [type(found) for each in events for found in interpreter.take(each)]

    assert found() == [Change, TransactionEnd]
    monkeypatch.setattr(rollbacks, "HELD_BYTES_MAX", 0)
    with pytest.raises(TakenBack, match="0-1-7") as raised:
        found()
    left_out[raised.value.name] = raised.value.spans
    assert found() == [Change, TransactionEnd]


@pytest.mark.parametrize(
    ("names", "key", "is_versioned"),
    [
        (("id", "row_start", "row_end"), [0, 2], True),
        (("id", "row_start", "row_end"), [], True),
        (("id", "row_start", "row_end"), [0], False),  # somebody's own columns
        (("id", "row_start", "n"), [], False),
    ],
)
def test_a_system_versioned_table_ends_the_stream(names, key, is_versioned: bool) -> None:
    columns = [column(each, 3) for each in names]
    its_map = table_map(columns=columns, optional_metadata=metadata_of(key))
    if is_versioned:
        with pytest.raises(CannotFollow, match=r"0-1-7: shop\.orders is a system-versioned table"):
            changes(gtid(7), its_map)
    else:
        assert changes(gtid(7), its_map) == []


def test_a_statement_that_makes_a_table_system_versioned_ends_the_stream() -> None:
    sql = "ALTER TABLE orders ADD SYSTEM VERSIONING"
    with pytest.raises(CannotFollow, match=r"shop\.orders is a system-versioned.*--tables"):
        changes(gtid(7, flags=1), query(sql))
    assert changes(gtid(7, flags=1), query(sql, "other")) == [TransactionEnd("0-1-7")]


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (
            [rows(row_event.WriteRowsEvent, ROW, present=b"\x01")],
            "logged in part.*binlog_row_image",
        ),
        ([told(event.NotImplementedEvent, event_type=0xA5)], "event of kind 165.*compression"),
        ([told(event.XAPrepareEvent)], "XA transaction"),
        ([query("XA COMMIT X'61',X'',1")], "XA transaction"),
        ([table_map(columns=[column(None, 3)])], "without the names of their columns"),
        ([table_map(columns=[column("c", 12)])], "ALTER TABLE shop.orders FORCE"),
    ],
)
def test_what_may_hold_changes_and_cant_be_read_ends_the_stream(events, said) -> None:
    with pytest.raises((CannotFollow, ValueError), match=said):
        changes(gtid(7), table_map(), *events)


def test_a_sequence_is_no_table() -> None:
    its_map = table_map(columns=[column(each, 8) for each in SEQUENCES])
    assert changes(gtid(7), its_map, rows(row_event.WriteRowsEvent, ROW)) == []


def test_a_table_that_begins_like_a_sequence_is_a_table() -> None:
    its_map = table_map(columns=[column("next_not_cached_value", 3), column("n", 1)])
    written = rows(row_event.WriteRowsEvent, ROW)
    found = changes(gtid(7), its_map, written, told(event.XidEvent))
    assert [each.after for each in found[:-1]] == [{"next_not_cached_value": 1, "n": 7}]


def test_what_holds_no_change_is_passed_over() -> None:
    assert changes(gtid(7), told(event.NotImplementedEvent, event_type=0x24)) == []


def test_a_json_document_that_is_damaged_ends_the_stream_in_a_sentence() -> None:
    described = {**vars(column("n", row_images.JSON)), "length_size": 4}
    events = (
        gtid(7),
        table_map(columns=[column("id", 3), SimpleNamespace(**described)]),
        rows(row_event.WriteRowsEvent, b"\x00\x01\x00\x00\x00" + b"\x02\x00\x00\x00\x05\x00"),
    )
    with pytest.raises(
        CannotFollow, match=r"^0-1-7: a row of shop\.orders can't be read: .*damaged"
    ):
        changes(*events)


def test_rows_and_statements_of_any_spelling_are_of_one_table() -> None:
    """lower_case_table_names=2: rows have a schema as somebody has said it."""
    interpreter = Interpreter(["shop.orders"], "mariadb", names_are_small=True)
    events = (
        gtid(7),
        table_map(schema="Shop", table="Orders"),
        rows(row_event.WriteRowsEvent, b"\x00\x01\x00\x00\x00\x07"),
        told(event.XidEvent),
        gtid(8, flags=1),
        query("TRUNCATE ORDERS", schema="SHOP"),
    )
    found = [each for event in events for each in interpreter.take(event)]
    names = [(each.op, each.table.full_name) for each in found if isinstance(each, Change)]
    assert names == [("c", "shop.orders"), ("t", "shop.orders")]
