"""DescribeProducers of a partition whose producers can't be read."""

from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.wire.api import ApiKey
from fencepost.replication.log import snapshots
from sim_node import SimNode, batch


def test_a_log_that_can_not_be_read_is_an_error_of_its_partition_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = SimNode(seed="producers")
    try:
        node.start()
        node.create_topic("t", 2)
        node.produce("t", batch(b"a"), partition=1)
        log = node.broker.replicas.partitions[TopicPartition("t", 0)].log
        assert not log.producers_loaded, "they are when somebody writes"

        def load(_: Any) -> Any:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(snapshots, "load_producers", load)
        asked = [{"name": "t", "partition_indexes": [0, 1]}]
        first, second = node.ask(ApiKey.describe_producers, topics=asked).topics[0].partitions
        assert first.error_code is ErrorCode.kafka_storage_error
        assert second.error_code is ErrorCode.none
    finally:
        monkeypatch.undo()
        node.close()
