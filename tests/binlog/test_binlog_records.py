"""Changes become records: their topics, keys and envelopes."""

import json
import re

import pytest
from fencepost.clients.binlog import Settings, WrongSetting
from fencepost.clients.binlog.changes import CREATE, DELETE, READ, TRUNCATE, UPDATE, Change
from fencepost.clients.binlog.columns import Column, Table
from fencepost.clients.binlog.records import (
    ANY_PARTITION,
    EVERY_PARTITION,
    FIRST_PARTITION,
    Record,
    Recorder,
    Topics,
    TopicTaken,
    told_columns,
)
from fencepost.clients.binlog.settings import OPTIONS, read_settings

COLUMNS = (Column("id", "int"), Column("name", "varchar"))
ORDERS = Table("shop", "orders", COLUMNS, ("id",))
KEYLESS = Table("shop", "notes", COLUMNS, ())
SETTINGS = Settings(source="s")


def records(change: Change, settings: Settings = SETTINGS) -> list[Record]:
    return Recorder(settings, Topics(settings)).of_change(change)


def change(op: str, before: object = None, after: object = None, table: Table = ORDERS) -> Change:
    def row(value: object) -> dict[str, object] | None:
        return None if value is None else {"id": value, "name": "ä"}

    return Change("0-1-7", 3, 1_000, table, op, row(before), row(after))


@pytest.mark.parametrize(
    ("op", "before", "after"), [(CREATE, None, 1), (READ, None, 1), (UPDATE, 1, 1)]
)
def test_a_row_is_told_in_an_envelope_beneath_its_key(op, before, after) -> None:
    (record,) = records(change(op, before, after))
    assert record[:2] == ("s.shop.orders", b'{"id":1}') and record.partition == ANY_PARTITION
    told = json.loads(record.value or b"")
    source = told.pop("source")
    assert told == {
        "op": op,
        "before": before and {"id": 1, "name": "ä"},
        "after": {"id": 1, "name": "ä"},
    }
    assert source == {
        "name": "s",
        "schema": "shop",
        "table": "orders",
        "gtid": "0-1-7",
        "row": 3,
        "ts_ms": 1_000,
        "snapshot": op == READ,
    }


def test_a_deleted_row_leaves_a_tombstone_if_that_is_wanted() -> None:
    gone, tombstone = records(change(DELETE, 1))
    assert json.loads(gone.value or b"")["before"] == {"id": 1, "name": "ä"}
    assert tombstone == Record("s.shop.orders", b'{"id":1}', None)
    assert len(records(change(DELETE, 1), Settings(source="s", tombstones=False))) == 1


def test_a_row_whose_key_changes_leaves_its_old_key() -> None:
    gone, tombstone, made = records(change(UPDATE, 1, 2))
    assert (gone.key, tombstone.key, made.key) == (b'{"id":1}', b'{"id":1}', b'{"id":2}')
    assert [json.loads(each.value or b"")["op"] for each in (gone, made)] == ["d", "c"]
    assert tombstone.value is None


def test_a_table_without_a_key_is_in_one_partition() -> None:
    """With no key its records would be spread, and read in any order."""
    (record,) = records(change(UPDATE, 1, 2, KEYLESS))
    assert record.key is None and record.partition == FIRST_PARTITION
    (gone,) = records(change(DELETE, 1, None, KEYLESS))
    assert gone.key is None and gone.value is not None


def test_an_emptied_table_is_told_in_every_partition() -> None:
    (record,) = records(change(TRUNCATE))
    assert record.key == b"{}" and record.partition == EVERY_PARTITION


def test_topics_are_chosen_derived_or_refused() -> None:
    topics = Topics(
        Settings(source="s", topic="{schema}-{table}", topics={"shop.orders": "orders"})
    )
    assert [topics.of("shop.orders"), topics.of("shop.a b"), topics.of("shop.a b")] == [
        "orders",
        "shop-a_b",
        "shop-a_b",
    ]
    with pytest.raises(
        TopicTaken, match=r"shop.a\$b would be written to the topic shop-a_b.*--map"
    ):
        topics.of("shop.a$b")


@pytest.mark.parametrize(
    ("template", "one", "other"),
    [
        ("{source}.{schema}_{table}", "shop.eu_orders", "shop_eu.orders"),
        ("{source}.{schema}.{table}", "shop.a$b", "shop.a_b"),
        ("{source}.{schema}.{table}", "shop.a_b", "shop.a$b"),
    ],
)
def test_two_tables_that_nobody_put_together_share_no_topic(
    template: str, one: str, other: str
) -> None:
    topics = Topics(Settings(source="s", topic=template))
    topics.of(one)
    with pytest.raises(TopicTaken, match=f"which {re.escape(one)} is written to: give it one"):
        topics.of(other)


def test_a_topic_that_map_names_is_no_others_by_chance() -> None:
    """Two tables with equal keys in one topic: a delete in one took the other's row."""
    for template, topic in (
        ("{source}.{schema}.{table}", "s.shop.b"),
        ("{schema}.{table}", "shop.b"),
    ):
        topics = Topics(Settings(source="s", topic=template, topics={"shop.a": topic}))
        assert topics.of("shop.a") == topic
        said = rf"shop\.b would be .* topic {topic}, which shop\.a \(--map\) is written to"
        with pytest.raises(TopicTaken, match=said):
            topics.of("shop.b")
    both = {"shop.a": "all", "shop.b": "all"}
    assert {Topics(Settings(source="s", topics=both)).of(each) for each in both} == {"all"}
    one_of_all = Topics(Settings(source="s", topic="all", topics={"shop.a": "all"}))
    assert {one_of_all.of(each) for each in ("shop.a", "shop.b")} == {"all"}


@pytest.mark.parametrize(
    ("topic", "whose"),
    [("fencepost-binlog-positions", "the source's position"), ("s.schema", "the record of all")],
)
def test_map_names_no_topic_of_the_sources_own(topic: str, whose: str) -> None:
    with pytest.raises(TopicTaken, match=f"--map shop.a={topic}: {whose}"):
        Topics(Settings(source="s", topics={"shop.a": topic}))


@pytest.mark.parametrize("template", ["all", "{source}.{schema}"])
def test_a_topic_that_was_chosen_for_many_tables_is_that_of_all(template: str) -> None:
    topics = Topics(Settings(source="s", topic=template))
    assert topics.of("a$b.one") == topics.of("a$b.other")


@pytest.mark.parametrize(
    ("template", "table"),
    [("{source}.{table}", "shop.schema"), ("{schema}-{table}", "fencepost.binlog-positions")],
)
def test_no_table_is_written_to_a_topic_of_the_source_s_own(template: str, table: str) -> None:
    with pytest.raises(TopicTaken, match=r"which the .* is written to: give it one with --map"):
        Topics(Settings(source="s", topic=template)).of(table)


def test_columns_are_read_back_as_they_were_told() -> None:
    record = Recorder(SETTINGS, Topics(SETTINGS)).of_table(ORDERS, "0-1-7")
    assert record.partition == FIRST_PARTITION
    assert record.key is not None and record.value is not None
    told = told_columns({record.key: record.value, b'{"gtid":"0-1-8"}': b"{}"}, "s.schema")
    assert told == {"shop.orders": ORDERS.as_json()}


def test_what_is_said_on_the_command_line_beats_the_environment() -> None:
    environment = {
        "FENCEPOST_BINLOG_SOURCE": "shop",
        "FENCEPOST_BINLOG_PORT": "3307",
        "FENCEPOST_BINLOG_TOMBSTONES": "false",
        "FENCEPOST_BINLOG_PASSWORD": "secret",
    }
    arguments = ["--port", "3308", "--tables", "shop.*, stock.items", "--map", "shop.a=x,shop.b=y"]
    found = read_settings([*arguments, "--kafka", "acks=all"], environment)
    assert found == Settings(
        source="shop",
        port=3308,
        tables=("shop.*", "stock.items"),
        topics={"shop.a": "x", "shop.b": "y"},
        tombstones=False,
        password="secret",
        kafka={"acks": "all"},
    )
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        ([], {}, "--source is not said"),
        (["--source", "a b"], {}, "a name has letters"),
        (["--source", "s", "--tables", "orders"], {}, "say SCHEMA.TABLE"),
        (["--source", "s", "--topic", "{name}"], {}, "{source}, {schema}, {table}"),
        (["--source", "s", "--port", "x"], {}, "--port 'x' is no whole number"),
        (["--source", "s", "--snapshot", "often"], {}, "say initial or never"),
        (["--source", "s", "--kafka", "transactional.id=x"], {}, "a second copy fences the first"),
        (["--source", "s", "--linger-ms", "-1"], {}, "0 or more"),
        (
            ["--source", "s"],
            {"FENCEPOST_BINLOG_TABEL": "x"},
            "FENCEPOST_BINLOG_TABEL is no setting",
        ),
        (["--source", "s", "--password-file", "/nowhere"], {}, "No such file"),
        (["--source", "s", "--tables", ""], {}, "--tables '': say SCHEMA.TABLE"),
        (["--source", "s", "--tables", "shop."], {}, "--tables 'shop.': say SCHEMA.TABLE"),
        (["--source", "s", "--port", "99999"], {}, "--port 99999: 1 to 65535"),
        (["--source", "s", "--server-id", "-1"], {}, "--server-id -1: 0 to 4294967295"),
        (["--source", "s", "--server-id", "4294967296"], {}, "0 to 4294967295"),
        (["--source", "s", "--partitions", "0"], {}, "--partitions 0: 1 or more, or -1"),
        (["--source", "s", "--replication", "-2"], {}, "--replication -2: 1 or more, or -1"),
        (["--source", "s", "--give-up-s", "-1"], {}, "--give-up-s -1: 0 or more"),
        (["--source", "s", "--transaction-timeout-s", "2147484"], {}, "1 to 2147483"),
        (["--source", "s", "--map", "a.b=x y"], {}, "--map a.b=x y: a topic's name has letters"),
        (["--source", "s", "--position-topic", ""], {}, "--position-topic '': a topic's name has"),
        (
            ["--source", "s", "--schema-topic", "x/y"],
            {},
            "--schema-topic 'x/y': a topic's name has",
        ),
        (["--source", "s", "--kafka", "partitioner=random"], {}, "in the order of its changes"),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed(arguments, environment, said) -> None:
    with pytest.raises(WrongSetting, match=said.replace("{", "\\{")):
        read_settings(arguments, environment)


def test_a_password_of_kafkas_may_have_commas_and_no_part_of_it_is_shown() -> None:
    said = "sasl.username=u,sasl.password=hun,ter2,=x, acks=all,"
    found = read_settings(["--source", "s"], {"FENCEPOST_BINLOG_KAFKA": said})
    assert found.kafka == {"sasl.username": "u", "sasl.password": "hun,ter2,=x", "acks": "all,"}
    for environment, more in (
        ({"FENCEPOST_BINLOG_KAFKA": "hunter2"}, []),
        ({}, ["--kafka", "hunter2"]),
        ({}, ["--kafka", "=hunter2"]),
    ):
        with pytest.raises(WrongSetting, match="--kafka: say NAME=VALUE") as raised:
            read_settings(["--source", "s", *more], environment)
        assert "hunter2" not in str(raised.value)


def test_the_readme_has_every_option(request: pytest.FixtureRequest) -> None:
    text = (request.config.rootpath / "clients/binlog/README.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `--")]
    assert rows == [f"| `--{o.name}` | {o.default} | {o.meaning} |" for o in OPTIONS]
