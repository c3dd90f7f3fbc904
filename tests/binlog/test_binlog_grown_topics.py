"""A table's topic that is given more partitions while its source runs."""

import time

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from fencepost.clients.binlog import Settings
from fencepost.clients.binlog.kept_positions import KeptPositions
from fencepost.clients.binlog.reading import read_to_end
from fencepost.clients.binlog.records import EVERY_PARTITION, Record
from fencepost.clients.binlog.transactions import Transactions

pytestmark = pytest.mark.slow
BEFORE, AFTER = 2, 5
SOON_S = 30.0


def grow(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, AFTER)])[topic].result(SOON_S)
    deadline = time.monotonic() + SOON_S
    while len(admin.list_topics(timeout=30).topics[topic].partitions) < AFTER:
        assert time.monotonic() < deadline, "it has no more partitions"


def test_a_table_that_is_emptied_is_so_in_partitions_that_were_added_meanwhile(
    bootstrap: str,
) -> None:
    """Rows go there as soon as librdkafka has heard of them. Who keeps a copy of them is told nothing else by a TRUNCATE."""
    client, topic = {"bootstrap.servers": bootstrap}, "grown.shop.orders"
    settings = Settings(source="grown", bootstrap=bootstrap, partitions=BEFORE)
    positions = KeptPositions(client, settings.position_topic)
    positions.prepare()
    transactions = Transactions(settings, positions)
    transactions.start()
    emptied = Record(topic, b"{}", b"t", EVERY_PARTITION)
    transactions.write(emptied)
    transactions.commit("0-1-1")
    grow(bootstrap, topic)
    transactions.write(emptied)
    transactions.commit("0-1-2")
    told = sorted(each.partition() for each in read_to_end(client, topic))
    assert told == sorted([*range(BEFORE), *range(AFTER)])
