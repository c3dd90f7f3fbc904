"""What is said of addresses that clients are told, and lead elsewhere or nowhere."""

import asyncio
from typing import Any

import pytest
from fencepost.chaos.sim.cluster_nodes import CLIENT_PORT, node_config, node_name
from fencepost.cluster.base.errors import ConnectionLost, Outcome
from fencepost.cluster.base.exit_codes import EXIT_IDENTITY, CannotRun
from fencepost.cluster.metadata.image import Endpoint
from fencepost.node.address_check import AddressCheck
from fencepost.node.broker import Broker
from fencepost.node.config import NodeConfig
from scraping import samples, value_of
from sim_cluster import Cluster

STATES = ("right", "of_another", "unresolved", "not_reached")
pytestmark = pytest.mark.slow


class Addressed(Cluster):
    def start_as(self, node_id: int, address: str) -> Broker:
        """Node `node_id`, which tells clients another address than its own."""
        env = self.world.restart(node_name(node_id))
        text = dict(node_config(node_id, 3).text)
        text["advertised.listeners"] = f"PLAINTEXT://{address}"
        broker = Broker(env, NodeConfig(text))

        async def serve(_env: object) -> None:
            await broker.start()
            await AddressCheck(env, broker).run()

        self.world.start(env, serve)
        return broker

    async def told(self, node_id: int) -> tuple[str, Any]:
        await asyncio.sleep(30.0)
        (one,) = self.said(node_id)
        return one

    def said(self, node_id: int) -> list[tuple[str, Any]]:
        return [
            (event, fields.get("cause"))
            for _, event, fields in self.world.machine(node_name(node_id)).events
            if event.startswith("address_")
        ]


def test_an_address_that_leads_to_another_node_is_named() -> None:
    """By another way than that node tells its own clients, or nothing could know which of them is right."""
    cluster = Addressed(3)

    async def scenario() -> None:
        cluster.kill(2)
        other = cluster.world.node("elsewhere")  # somebody's server, at a name that was ours

        async def serve(_env: object) -> None:
            text = {"log.dirs": "/data", "listeners": f"PLAINTEXT://0.0.0.0:{CLIENT_PORT}"}
            text["advertised.listeners"] = f"PLAINTEXT://elsewhere:{CLIENT_PORT}"
            await Broker(other, NodeConfig(text)).start()

        cluster.world.start(other, serve)
        cluster.start_as(2, f"elsewhere:{CLIENT_PORT}")
        assert await cluster.told(2) == ("address_of_another", None)

    cluster.play(scenario)


def test_an_address_where_nobody_answers_is_named_and_the_node_serves_on() -> None:
    cluster = Addressed(3)

    async def scenario() -> None:
        cluster.kill(2)
        broker = cluster.start_as(2, "node-2:9999")
        event, cause = await cluster.told(2)
        assert event == "address_not_reached" and "node-2:9999" in cause
        assert broker.is_ready

    cluster.play(scenario)


def test_what_is_found_at_an_address_is_a_metric_and_is_looked_at_again_until_it_is_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A gauge that stayed at what a name service said in its first minute would wake people for ever."""
    answers = True
    ask = AddressCheck._ask

    async def sometimes(self: AddressCheck, endpoint: Endpoint) -> bool:
        if not answers:
            raise ConnectionLost("[Errno -2] Name or service not known", Outcome.REFUSED)
        return await ask(self, endpoint)

    monkeypatch.setattr(AddressCheck, "_ask", sometimes)
    cluster = Addressed(3)

    async def found(broker: Broker) -> list[str]:
        env = cluster.world.node(node_name(2))
        told = samples((await cluster.world.on(env, broker.metrics.scrape.text())).decode())
        name, door = "fencepost_advertised_address", "PLAINTEXT"
        return [each for each in STATES if value_of(told, name, listener=door, state=each)]

    async def scenario() -> None:
        nonlocal answers
        assert await found(cluster.nodes.broker(2)) == [], "nobody has looked"
        cluster.kill(2)
        answers = False
        broker = cluster.start_as(2, f"node-2:{CLIENT_PORT}")
        await asyncio.sleep(300)  # several looks
        assert [event for event, _ in cluster.said(2)] == ["address_unresolved"]
        assert await found(broker) == ["unresolved"]
        answers = True
        await asyncio.sleep(90)
        assert [event for event, _ in cluster.said(2)][1:] == ["address_checked"]
        assert await found(broker) == ["right"]

    cluster.play(scenario)


def test_an_address_that_leads_here_is_no_news() -> None:
    cluster = Addressed(3)

    async def scenario() -> None:
        cluster.kill(2)
        cluster.start_as(2, f"node-2:{CLIENT_PORT}")
        assert await cluster.told(2) == ("address_checked", None)

    cluster.play(scenario)


def test_a_node_that_tells_clients_a_living_nodes_address_does_not_start() -> None:
    cluster = Addressed(3, deaths_allowed=True)

    async def scenario() -> None:
        cluster.kill(2)
        cluster.start_as(2, f"node-1:{CLIENT_PORT}")
        await cluster.until(lambda: bool(cluster.world.deaths))
        ((name, reason),) = cluster.world.deaths
        assert name == node_name(2)
        assert isinstance(reason, CannotRun) and reason.exit_code == EXIT_IDENTITY
        assert str(reason).startswith(
            "node-1:9092 (PLAINTEXT) is where node 1 tells clients to find it"
        )

    cluster.play(scenario)
