"""fetch.min.bytes: a consumer is kept waiting for what may still be written, not for what its own limits leave out.

A consumer with `fetch.min.bytes` that reads a backlog was held for the whole of `fetch.max.wait.ms` wherever one answer could
not be that large: at the end of each segment, where the next batch did not fit, and where it asked for more than it takes.
Kafka answers at once (DelayedFetch, "the fetch offset is on an older segment"; KafkaApis, the lesser of minBytes and maxBytes).
"""

from collections.abc import Iterator
from typing import Any

import pytest
from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.wire.api import ApiKey
from sim_node import SimNode, batch

WAIT_MS = 20_000
SOON_S = 5.0
VALUE = bytes(90_000)
SIZE = len(batch(VALUE))


@pytest.fixture(scope="module")
def node() -> Iterator[SimNode]:
    node = SimNode(seed="min bytes")
    node.start()
    yield node
    node.close()


def backlog(node: SimNode, name: str, batches: int, **configs: str) -> None:
    node.create_topic(name, **configs)
    for _ in range(batches):
        assert node.produce(name, batch(VALUE)).error_code == 0


def fetch(node: SimNode, *names: str, offset: int = 0, **limits: int) -> tuple[int, float]:
    """How many bytes came, and after how long."""
    started = node.world.loop.time()
    asked = {"min_bytes": 1, "max_bytes": 1 << 20, "partition_max_bytes": 1 << 20} | limits
    partition = {
        "partition": 0,
        "fetch_offset": offset,
        "partition_max_bytes": asked.pop("partition_max_bytes"),
    }
    topics = [{"topic_id": node.topic_ids[name], "partitions": [partition]} for name in names]
    fields: dict[str, Any] = {"session_epoch": -1, "topics": topics, **asked}
    reply = node.ask(ApiKey.fetch, max_wait=WAIT_MS, **fields)
    got = sum(len(bytes(each.partitions[0].records or b"")) for each in reply.responses)
    return got, node.world.loop.time() - started


def test_the_end_of_a_segment_is_not_waited_at(node: SimNode) -> None:
    """The answer ends with the segment; what is missing to min_bytes stands in the next one."""
    backlog(node, "rolls", 14, **{"segment.bytes": str(1 << 20)})
    log = node.broker.replicas.partitions[TopicPartition("rolls", 0)].log
    end = log.bases[1]
    assert 2 <= end < 12
    got, took_s = fetch(node, "rolls", offset=end - 2, min_bytes=3 * SIZE)
    assert got == 2 * SIZE
    assert took_s < SOON_S


def test_a_batch_that_does_not_fit_is_not_waited_for(node: SimNode) -> None:
    """One partition's answer is as large as it gets: three batches of four would be one too many."""
    backlog(node, "fits", 4)
    limit = 3 * SIZE - 1
    got, took_s = fetch(node, "fits", min_bytes=limit, partition_max_bytes=limit)
    assert got == 2 * SIZE
    assert took_s < SOON_S


def test_no_more_is_waited_for_than_the_whole_answer_may_hold(node: SimNode) -> None:
    backlog(node, "one", 2)
    backlog(node, "two", 2)
    for limit in (4 * SIZE, 4 * SIZE - 1, 3 * SIZE, SIZE):
        got, took_s = fetch(node, "one", "two", min_bytes=1 << 30, max_bytes=limit)
        assert got == limit // SIZE * SIZE
        assert took_s < SOON_S, limit


def test_what_one_partition_may_not_give_is_waited_for_from_others(node: SimNode) -> None:
    """As Kafka: a partition counts for what it is asked for at most, and the others have the whole wait."""
    backlog(node, "full", 4)
    node.create_topic("idle")
    got, took_s = fetch(node, "full", "idle", min_bytes=5 * SIZE, partition_max_bytes=3 * SIZE - 1)
    assert (got, took_s >= WAIT_MS / 1000) == (2 * SIZE, True)


def test_less_than_min_bytes_at_the_end_of_the_log_is_waited_with(node: SimNode) -> None:
    backlog(node, "ends", 2)
    got, took_s = fetch(node, "ends", min_bytes=3 * SIZE)
    assert (got, took_s >= WAIT_MS / 1000) == (2 * SIZE, True)
