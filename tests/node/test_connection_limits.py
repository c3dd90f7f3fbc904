"""max.connections and max.connections.per.ip, set while the node runs."""

from collections.abc import Iterator

import pytest
from fencepost.cluster.base.errors import Trouble
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient
from sim_node import NODE, PORT, SimNode

BROKER, SET, DELETE = 4, 0, 1


@pytest.fixture
def node() -> Iterator[SimNode]:
    node = SimNode(seed="limits", **{"max.connections.per.ip": "3"})
    node.start()
    yield node
    node.close()


def change(node: SimNode, name: str, value: str | None) -> None:
    operation = DELETE if value is None else SET
    configs = [{"name": name, "config_operation": operation, "value": value}]
    resource = {"resource_type": BROKER, "resource_name": "", "configs": configs}
    reply = node.ask(ApiKey.incremental_alter_configs, resources=[resource], validate_only=False)
    assert reply.responses[0].error_code == 0


def is_let_in(node: SimNode, port: int = PORT) -> bool:
    """One more connection than there is."""

    async def ask() -> bool:
        another = WireClient(node.client, NODE, port, timeout_s=5.0)
        try:
            await another.request(ApiKey.api_versions)
        except Trouble:
            return False
        else:
            return True
        finally:
            await another.close()

    let_in = node.run(ask)
    node.sleep(0.1)
    return let_in


@pytest.mark.parametrize("name", ["max.connections", "max.connections.per.ip"])
def test_limits_that_are_changed_while_the_node_runs_hold_for_who_comes_then(
    node: SimNode, name: str
) -> None:
    assert is_let_in(node)
    change(node, name, "1")
    assert not is_let_in(node)
    change(node, name, "2")
    assert is_let_in(node)
    change(node, name, "1")
    node.world.kill(NODE)
    node.start()
    assert not is_let_in(node), "it is kept"
    change(node, name, None)
    assert is_let_in(node)


def test_nobody_is_locked_out_who_could_take_it_back(node: SimNode) -> None:
    change(node, "max.connections", "0")
    node.run(node.wire.close)
    node.wire = WireClient(node.client, NODE, PORT, client_id="tests", timeout_s=5.0)
    node.sleep(0.1)
    change(node, "max.connections", None)


@pytest.mark.parametrize("name", ["max.connections", "max.connections.per.ip"])
def test_limits_count_the_connections_of_all_listeners_as_in_kafka(name: str) -> None:
    """Its documentation of max.connections: the number that is allowed in the broker. By address it counts likewise."""
    other = PORT + 1
    doors = {
        "listeners": f"INSIDE://0.0.0.0:{PORT},OUTSIDE://0.0.0.0:{other}",
        "advertised.listeners": f"INSIDE://{NODE}:{PORT},OUTSIDE://{NODE}:{other}",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    }
    node = SimNode(seed="two doors", **doors)
    try:
        node.start()
        assert is_let_in(node, other)
        change(node, name, "1")  # that is who asks, inside
        assert not is_let_in(node, other)
        assert not is_let_in(node)
        change(node, name, "2")
        assert is_let_in(node, other) and is_let_in(node)
    finally:
        node.close()
