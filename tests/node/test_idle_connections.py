"""connections.max.idle.ms at its edges."""

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey
from sim_node import NODE, SimNode


def asked_twice(idle_ms: str, pause_s: float) -> bool:
    """Whether a connection that is silent for so long is still there."""
    node = SimNode(seed="idle", **{"connections.max.idle.ms": idle_ms})
    try:
        node.start()
        (before,) = node.broker.listeners[0].connections
        node.sleep(pause_s)
        kept = before in node.broker.listeners[0].connections
        node.ask(ApiKey.metadata, topics=[])  # over a new one, if it must be
        return kept
    finally:
        node.close()


def test_a_silent_connection_is_closed_after_its_time_and_not_before() -> None:
    assert asked_twice("60000", 50.0)
    assert not asked_twice("60000", 70.0)


@pytest.mark.slow
@pytest.mark.timeout(180)  # ten hours of virtual time
def test_below_zero_a_silent_connection_is_never_closed() -> None:
    assert asked_twice("-1", 36_000.0)


def test_zero_closes_connections_without_keeping_the_node_busy() -> None:
    assert not asked_twice("0", 1.0)


def test_a_connection_whose_answer_takes_long_is_not_idle() -> None:
    """The topic waits for room on the disk, longer than a silent client may be there."""
    node = SimNode(seed="idle", **{"connections.max.idle.ms": "1000"})
    try:
        node.start()
        files = node.world.disk(NODE).files
        files.capacity = files.used
        topic = {"name": "late", "num_partitions": 1, "replication_factor": 1}
        reply = node.ask(ApiKey.create_topics, timeout=20_000, topics=[topic])
        assert reply.topics[0].error_code is ErrorCode.request_timed_out
    finally:
        node.close()
