"""Several doors for clients, each with the addresses that its own clients can reach."""

import asyncio
import errno
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from fencepost.cluster.base.errors import ConfigRefused, ErrorCode
from fencepost.cluster.base.exit_codes import EXIT_LATER, CannotRun
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient
from fencepost.node.config import NodeConfig
from fencepost.node.server.listener import ClientListener
from fencepost.node.server.places import Places
from sim_node import NODE, SimNode

INSIDE, OUTSIDE = 9092, 19092
DOORS = {
    "listeners": f"INSIDE://0.0.0.0:{INSIDE},OUTSIDE://0.0.0.0:{OUTSIDE}",
    "advertised.listeners": f"INSIDE://{NODE}:{INSIDE},OUTSIDE://bastion.example:31092",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
}
ADVERTISED = {INSIDE: (NODE, INSIDE), OUTSIDE: ("bastion.example", 31092)}


@pytest.fixture(scope="module")
def node() -> Iterator[SimNode]:
    node = SimNode(**DOORS)
    node.start()
    node.create_topic("orders")
    yield node
    node.close()


def ask(node: SimNode, port: int, key: ApiKey, **fields: Any) -> Any:
    async def program() -> Any:
        wire = WireClient(node.env, NODE, port, timeout_s=60.0)
        try:
            return await wire.request(key, **fields)
        finally:
            await wire.close()

    return node.run(program)


@pytest.mark.parametrize("port", [INSIDE, OUTSIDE])
def test_a_client_is_told_the_addresses_of_the_listener_that_it_asked_on(
    node: SimNode, port: int
) -> None:
    told = ADVERTISED[port]
    metadata = ask(node, port, ApiKey.metadata, topics=[{"name": "orders"}])
    assert [(each.host, each.port) for each in metadata.brokers] == [told]
    assert metadata.topics[0].partitions[0].leader_id == 1
    cluster = ask(node, port, ApiKey.describe_cluster)
    assert [(each.host, each.port) for each in cluster.brokers] == [told]
    found = ask(node, port, ApiKey.find_coordinator, key_type=1, coordinator_keys=["billing-1"])
    assert found.coordinators[0].error_code is ErrorCode.none
    assert (found.coordinators[0].host, found.coordinators[0].port) == told


def settings(*flags: str) -> NodeConfig:
    return NodeConfig.load(flags=flags, environment={}, file=None)


MAP = "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT"


def test_advertised_addresses_belong_to_their_listeners_in_whatever_order_they_stand() -> None:
    config = settings(
        "listeners=INSIDE://0.0.0.0:9092,OUTSIDE://0.0.0.0:19092",
        "advertised.listeners=OUTSIDE://localhost:19092,INSIDE://fencepost-1:9092",
        MAP,
    )
    assert [each.name for each in config.listeners] == ["INSIDE", "OUTSIDE"]
    assert [each.host for each in config.advertised] == ["fencepost-1", "localhost"]


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (
            ("listeners=INSIDE://h:1",),
            ("INSIDE", "listener.security.protocol.map", "add INSIDE:PLAINTEXT"),
        ),
        (
            ("listeners=INSIDE://h:1", "listener.security.protocol.map=INSIDE:SSL"),
            ("SSL is not there yet", "PLAINTEXT"),
        ),
        (
            ("listener.security.protocol.map=PLAINTEXT",),
            ("'PLAINTEXT'", "NAME:PROTOCOL", "SASL_SSL"),
        ),
        (
            ("listener.security.protocol.map=A:PLAINTEXT,A:PLAINTEXT",),
            ("A stands there twice",),
        ),
        (
            ("listeners=INSIDE://h:1,OUTSIDE://h:2", "advertised.listeners=INSIDE://h:1", MAP),
            ("advertised.listeners", "INSIDE://h:1,OUTSIDE://h:2"),
        ),
        (
            ("listeners=INSIDE://h:9092,OUTSIDE://0.0.0.0:9092", MAP),
            ("INSIDE and OUTSIDE can't both listen on port 9092",),
        ),
        (
            ("listeners=PEER://h:1", "listener.security.protocol.map=PEER:PLAINTEXT"),
            ("PEER", "peer.listener"),
        ),
    ],
)
def test_listeners_that_nobody_could_use_stop_the_start(
    flags: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigRefused) as refused:
        settings(*flags)
    for part in parts:
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EADDRNOTAVAIL, "No interface of this machine has that address, or not yet"),
        (errno.EACCES, "Ports below 1024 are the system's"),
        (errno.EADDRINUSE, "Stop what holds that address"),
    ],
)
def test_why_a_node_can_not_listen_is_told_with_what_helps(number: int, said: str) -> None:
    async def refuses(*_: object) -> object:
        raise OSError(number, os.strerror(number))

    env: Any = SimpleNamespace(net=SimpleNamespace(listen=refuses))
    dispatcher: Any = None
    listener = ClientListener(env, "PLAINTEXT", dispatcher, Places(1, 1), idle_s_max=1.0)
    with pytest.raises(CannotRun, match=said) as refused:
        asyncio.run(listener.open("192.0.2.1", 9092))
    assert os.strerror(number) in str(refused.value)
    assert refused.value.exit_code == EXIT_LATER
