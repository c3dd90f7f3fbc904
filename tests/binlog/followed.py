"""A source for a test, and what readers of committed records find in its topics."""

import json
from dataclasses import replace
from typing import Any

from confluent_kafka import Message
from confluent_kafka.admin import AdminClient
from fencepost.clients.binlog import BinlogSource, Settings
from fencepost.clients.binlog.reading import read_to_end

END_S = 30.0


class Followed:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def run(self, **other: Any) -> BinlogSource:
        """Until all that is there now is written."""
        source = BinlogSource(replace(self.settings, **other))
        source.run()
        return source

    def records(self, table: str) -> list[tuple[Any, Any]]:
        """Key and value of each, partition by partition."""
        return committed(self.settings.bootstrap, f"{self.settings.source}.{table}")

    def told(self, table: str) -> list[dict[str, Any]]:
        """The values that are not tombstones, in the order of the database."""
        values = [value for _, value in self.records(table) if value is not None]
        return sorted(values, key=_place)

    def held(self, table: str, schema: str = "") -> list[int]:
        """The ids that a consumer holds who has read all of the topic, and heeds `t`."""
        found: dict[int, dict[bytes, int]] = {}  # by partition and key
        topic = f"{schema or self.settings.source}.{table}"
        for each in _read(self.settings.bootstrap, topic):
            rows = found.setdefault(each.partition(), {})
            value = each.value() and json.loads(each.value())
            if value and value["op"] == "t":
                rows.clear()
            elif value and value["after"]:
                rows[each.key()] = value["after"]["id"]
            else:
                rows.pop(each.key(), None)
        return sorted(id_ for rows in found.values() for id_ in rows.values())


def _place(value: dict[str, Any]) -> tuple[int, int]:
    source = value["source"]
    return int(source["gtid"].rpartition("-")[2] or 0), source["row"]


def committed(bootstrap: str, topic: str) -> list[tuple[Any, Any]]:
    """Key and value of each, partition by partition."""
    found = [
        (
            each.partition(),
            each.offset(),
            *(t and json.loads(t) for t in (each.key(), each.value())),
        )
        for each in _read(bootstrap, topic)
    ]
    found.sort(key=lambda each: each[:2])
    return [each[2:] for each in found]


def _read(bootstrap: str, topic: str) -> list[Message]:
    """Up to the end: an open transaction in the way fails."""
    client = {"bootstrap.servers": bootstrap}
    if topic not in AdminClient(client).list_topics(timeout=END_S).topics:
        return []
    return list(read_to_end(client, topic))
