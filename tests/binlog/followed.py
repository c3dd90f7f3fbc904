"""A source for a test, and what readers of committed records find in its topics."""

import json
from dataclasses import replace
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from fencepost.clients.binlog import BinlogSource, Settings

END_S = 20.0


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


def _place(value: dict[str, Any]) -> tuple[int, int]:
    source = value["source"]
    return int(source["gtid"].rpartition("-")[2] or 0), source["row"]


def committed(bootstrap: str, topic: str) -> list[tuple[Any, Any]]:
    """Up to the end: an open transaction in the way fails."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "looks",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        known = consumer.list_topics(topic, END_S).topics[topic]
        if known.error is not None:
            return []
        consumer.assign([TopicPartition(topic, each, 0) for each in sorted(known.partitions)])
        ended: set[int] = set()
        found: list[tuple[int, int, Any, Any]] = []
        while len(ended) < len(known.partitions):
            message = consumer.poll(END_S)
            assert message is not None, f"{topic} has no end"
            if message.error() is None:
                key, value = (
                    each and json.loads(each) for each in (message.key(), message.value())
                )
                found.append((message.partition(), message.offset(), key, value))
            else:
                ended.add(message.partition())
        found.sort(key=lambda each: each[:2])
        return [each[2:] for each in found]
    finally:
        consumer.close()
