"""Scrapes of simulated nodes, and what changed from one to the next."""

from collections.abc import Mapping
from typing import Any

from fencepost.chaos.sim.cluster_nodes import node_name
from prometheus_client.parser import text_string_to_metric_families

Key = tuple[str, tuple[tuple[str, str], ...]]


def samples(text: str) -> dict[Key, float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value_of(found: Mapping[Key, float], name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


class Scraper:
    """Of a whole cluster: `await scraper.all()` keeps the newest scrape of each node that is up."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.found: dict[int, dict[Key, float]] = {}

    async def all(self) -> "Scraper":
        nodes = self.cluster.nodes
        self.found = {}
        for node_id in nodes.up():
            work = nodes.broker(node_id).metrics.scrape.text()
            text = await self.cluster.world.on(self.cluster.world.node(node_name(node_id)), work)
            self.found[node_id] = samples(text.decode())
        return self

    def of(self, node_id: int, name: str, **labels: str) -> float:
        return value_of(self.found[node_id], f"fencepost_{name}", **labels)

    def sum(self, name: str, **labels: str) -> float:
        """Over all nodes that are up."""
        return sum(self.of(node_id, name, **labels) for node_id in self.found)
