"""connections.max.idle.ms at its edges."""

from fencepost.cluster.wire.api import ApiKey
from sim_node import SimNode


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


def test_below_zero_a_silent_connection_is_never_closed() -> None:
    assert asked_twice("-1", 36_000.0)


def test_zero_closes_connections_without_keeping_the_node_busy() -> None:
    assert not asked_twice("0", 1.0)
