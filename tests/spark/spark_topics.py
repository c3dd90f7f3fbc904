"""A node for the suites of the data source, and what is in its topics."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from fencepost.clients.binlog.reading import read_to_end
from fencepost.clients.transactional.kept_topics import make_topic
from support.fencepost_process import fencepost

OPENED = re.compile(r'"admin_open".*"address": \["([^"]+)", (\d+)\]')


class Served(NamedTuple):
    bootstrap: str
    admin_url: str

    @property
    def reading(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap}

    @property
    def writing(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, "adminUrl": self.admin_url}

    def create(self, topic: str, *, partitions: int = 1, **config: str) -> None:
        """Kept for good, unless `config` says otherwise: some records of tests are of 1970."""
        settings = {"retention.ms": "-1"}
        settings |= {name.replace("_", "."): value for name, value in config.items()}
        admin = self._admin()  # its calls end with it
        assert make_topic(admin, NewTopic(topic, partitions, config=settings))

    def delete(self, topic: str) -> None:
        admin = self._admin()
        admin.delete_topics([topic])[topic].result(20)

    def grow(self, topic: str, partitions: int) -> None:
        admin = self._admin()
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(20)

    def delete_records(self, topic: str, before: int) -> None:
        admin = self._admin()
        done = admin.delete_records([TopicPartition(topic, 0, before)])
        for each in done.values():
            each.result(20)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def write(self, topic: str, values: list[str], *, partition: int = 0, **fields: Any) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for value in values:
            producer.produce(topic, value=value.encode(), partition=partition, **fields)
        assert producer.flush(20) == 0

    def transaction(self, topic: str, values: list[str], outcome: str, name: str) -> Producer:
        """`outcome`: commit, abort, or open."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": name})
        producer.init_transactions(20)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value=value.encode(), partition=0)
        assert producer.flush(20) == 0
        if outcome != "open":
            getattr(producer, f"{outcome}_transaction")(20)
        return producer

    def committed(self, topic: str) -> list[str]:
        """What a `read_committed` reader finds, up to the last record: an open transaction in the way fails."""
        read = read_to_end({"bootstrap.servers": self.bootstrap}, topic)
        return sorted(each.value().decode() for each in read)


def column_of(*values: str) -> pa.RecordBatch:
    """Rows as Spark hands them to a task."""
    return pa.record_batch({"value": pa.array(values, pa.string())})


@contextmanager
def served(settings: Mapping[str, str] | None = None) -> Iterator[Served]:
    with fencepost(environment=settings) as node:
        found = OPENED.search(node.process.said())
        assert found is not None, node.process.said()
        yield Served(node.bootstrap, f"http://{found[1]}:{found[2]}")
