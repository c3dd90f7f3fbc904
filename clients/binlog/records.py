"""Changes as records: topic, key and value. Pure.

INVARIANT  a row's records have its primary key as their key, one row's in the order of its changes.
PREVENTS   an update that is read before the insert: two records of a row in two partitions.
PROVED BY  tests/binlog/test_binlog_records.py::test_a_row_whose_key_changes_leaves_its_old_key

The value is the envelope that Debezium made known:

    {"op": "u", "before": {…}, "after": {…},
     "source": {"name": "shop", "schema": "shop", "table": "orders", "gtid": "0-1-270", "row": 3, "ts_ms": …, "snapshot": false}}

`op` is r (was there at the snapshot), c, u, d, or t (all rows are gone). `gtid` and `row` together name a change of the stream.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from .changes import CREATE, DELETE, READ, TRUNCATE, UPDATE, Change, Row, SchemaChange
from .columns import Table
from .kept_positions import PARTITION
from .reading import NotReadable
from .settings import Settings

NOT_IN_TOPICS: Final = re.compile(r"[^a-zA-Z0-9._-]")
TOPIC_CHARACTERS_MAX: Final = 249  # Kafka's
ANY_PARTITION: Final = -1
EVERY_PARTITION: Final = -2
FIRST_PARTITION: Final = 0


SCHEMAS: Final = "the record of all tables' columns"
POSITIONS: Final = "the source's position"


class TopicTaken(ValueError):
    """Two tables would be written to one topic, by names that nobody chose."""


class Record(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None
    partition: int = ANY_PARTITION  # by the key


def in_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


class Topics:
    """Which topic a table is written to."""

    def __init__(self, settings: Settings) -> None:
        self._template, self._source = settings.topic, settings.source
        self._chosen = settings.topics
        # Topic -> the table that it was derived from; without {table} in the template, what somebody chose for many.
        self._owners = {settings.schema_topic_name: SCHEMAS, settings.position_topic: POSITIONS}
        self._names: dict[str, str] = {}
        self._mapped: dict[str, str] = {}  # topic -> the first table that --map gives it to
        for table, topic in self._chosen.items():
            if owner := self._owners.get(topic):
                raise TopicTaken(
                    f"--map {table}={topic}: {owner} is written to that topic. Name another one"
                )
            self._mapped.setdefault(topic, f"{table} (--map)")

    def of(self, table: str) -> str:
        """`table` is SCHEMA.TABLE."""
        if table not in self._names:
            self._names[table] = self._chosen.get(table) or self._derived(table)
        return self._names[table]

    def _derived(self, table: str) -> str:
        schema, _, name = table.partition(".")
        filled = (
            self._template.replace("{source}", self._source)
            .replace("{schema}", schema)
            .replace("{table}", name)
        )
        topic = NOT_IN_TOPICS.sub("_", filled)
        is_for_many = "{table}" not in self._template  # and may be for one more, by --map
        mine = filled if is_for_many else table
        owner = self._owners.setdefault(topic, mine)
        if not is_for_many:
            owner = self._mapped.get(topic, owner)
        if owner != mine or len(topic) > TOPIC_CHARACTERS_MAX:
            raise TopicTaken(
                f"{table} would be written to the topic {topic}, which "
                + (f"{owner} is written to" if owner != mine else "is too long a name")
                + f": give it one with --map {table}=TOPIC"
            )
        return topic


class Recorder:
    """Makes records of changes."""

    def __init__(self, settings: Settings, topics: Topics) -> None:
        self._source, self._tombstones = settings.source, settings.tombstones
        self._schema_topic = settings.schema_topic_name
        self._topics = topics

    def of_change(self, change: Change) -> list[Record]:
        topic = self._topics.of(change.table.full_name)
        if change.op == TRUNCATE:
            return [
                Record(topic, b"{}", self._value(change, TRUNCATE, None, None), EVERY_PARTITION)
            ]
        before, after = (key_of(change.table, row) for row in (change.before, change.after))
        if change.op == UPDATE and before != after:
            # Somebody else's key from now on: the old one's partition is told that its row is gone.
            gone = self._deleted(topic, before, change)
            return [
                *gone,
                self._record(topic, after, self._value(change, CREATE, None, change.after)),
            ]
        if change.op == DELETE:
            return self._deleted(topic, before, change)
        assert change.op in (CREATE, READ, UPDATE), change.op
        return [
            self._record(topic, after, self._value(change, change.op, change.before, change.after))
        ]

    def _deleted(self, topic: str, key: bytes | None, change: Change) -> list[Record]:
        told = [self._record(topic, key, self._value(change, DELETE, change.before, None))]
        if self._tombstones and key is not None:
            told.append(Record(topic, key, None))
        return told

    def _record(self, topic: str, key: bytes | None, value: bytes) -> Record:
        """Of a table without a primary key all is in one partition, so that it is in order."""
        return Record(topic, key, value, FIRST_PARTITION if key is None else ANY_PARTITION)

    def _value(self, change: Change, op: str, before: Row | None, after: Row | None) -> bytes:
        source = {
            "name": self._source,
            "schema": change.table.schema,
            "table": change.table.name,
            "gtid": change.gtid,
            "row": change.number,
            "ts_ms": change.ts_ms,
            "snapshot": change.op == READ,
        }
        return in_json({"op": op, "before": before, "after": after, "source": source})

    def of_table(self, table: Table, gtid: str) -> Record:
        """Its columns, whenever they are others than those that were told last. In partition 0, where they are looked for:
        what compaction keeps elsewhere, of a time with fewer partitions, has no order with it."""
        key = in_json({"schema": table.schema, "table": table.name})
        told = in_json({**table.as_json(), "gtid": gtid})
        return Record(self._schema_topic, key, told, PARTITION)

    def of_emptied(self, table: str) -> Record:
        """No row that was told is left: whatever key it has next is its first one. `table` is SCHEMA.TABLE."""
        schema, _, name = table.partition(".")
        return Record(
            self._schema_topic, in_json({"schema": schema, "table": name}), None, PARTITION
        )

    def of_schema_change(self, change: SchemaChange) -> Record:
        told = {
            "sql": change.sql,
            "schema": change.schema,
            "gtid": change.gtid,
            "ts_ms": change.ts_ms,
        }
        key = in_json({"gtid": change.gtid})
        return Record(self._schema_topic, key, in_json(told), PARTITION)


def key_of(table: Table, row: Row | None) -> bytes | None:
    if row is None or not table.primary_key:
        return None
    return in_json({name: row[name] for name in table.primary_key})


def told_columns(records: Mapping[bytes, bytes], topic: str) -> dict[str, dict[str, Any]]:
    """From what the schema topic has: a table's columns and key, as they were told last."""
    found = {}
    for key in records:
        try:
            names = json.loads(key)
            if "table" in names:
                told = json.loads(records[key])
                told.pop("gtid", None)
                found[f"{names['schema']}.{names['table']}"] = told
        except (ValueError, TypeError, KeyError, AttributeError) as trouble:
            raise NotReadable(
                f"the topic {topic} has a record that is none of a source's ({trouble}): its key is {key!r}. Somebody else writes "
                "there: give this source a schema topic of its own (--schema-topic), or write a null under that key"
            ) from trouble
    return found
