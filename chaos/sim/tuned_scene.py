"""The settings of topics and brokers change while they are in use: what was acknowledged is what every node works by in the end."""

import random
from typing import Final

from fencepost.node.broker import Broker

from ..checkers import settings
from ..checkers.history import FINAL
from ..checkers.settings import Name
from ..workloads.tuner import Tuner
from .cluster_nodes import CLIENT_PORT, node_name
from .scene import On, Scene, Told
from .transaction_clients import TransactionClients

IDLE: Final = "tuned"
IN_USE: Final = ("bank", "append", "in", "out")
# Of a log, what it works by: setting -> field of its `LogConfig`.
IN_FORCE: Final = {
    "internal.segment.bytes": "segment_bytes",
    "index.interval.bytes": "index_interval_bytes",
    "max.message.bytes": "max_message_bytes",
    "retention.ms": "retention_ms",
    "retention.bytes": "retention_bytes",
    "segment.ms": "segment_ms",
    "delete.retention.ms": "delete_retention_ms",
}


class Tuned(Scene):
    name = "tuned"

    def __init__(self, clients: TransactionClients, dice: random.Random) -> None:
        super().__init__(clients, dice)
        self.places = [(IDLE, 0), (IDLE, 1)]
        self.tuner = Tuner(self._client(1, "tuner", patient=True), IN_USE, IDLE)

    def make(self) -> None:
        self.writers.append(self.tuner)

    async def judge(self, on: On) -> Told:
        await super().judge(on)
        nodes, asked = self.clients.nodes, self.tuner.asked
        asking = Tuner(self._client(0, FINAL, patient=True), IN_USE, IDLE)
        found: dict[str, dict[Name, str | None]] = {}
        for id_ in nodes.ids:
            address = node_name(id_), CLIENT_PORT
            found[node_name(id_)] = await on(asking.client.env, asking.find(address))
            known = found[node_name(id_)]
            for log, in_force in _in_force(nodes.broker(id_)).items():
                # What nobody has set there comes from elsewhere.
                found[log] = {name: value for name, value in in_force.items() if known.get(name)}
        changed = {"settings changed": sum(each.type == "ok" for each in asked)}
        return settings.check(asked, found), changed


def _in_force(broker: Broker) -> dict[str, dict[Name, str | None]]:
    """What each log of a node works by."""
    found: dict[str, dict[Name, str | None]] = {}
    for name, partition in broker.replicas.partitions.items():
        if name.topic in (*IN_USE, IDLE):
            config = partition.log.config
            values = {
                (f"topic {name.topic}", setting): str(getattr(config, field))
                for setting, field in IN_FORCE.items()
            }
            found[f"{node_name(broker.config.node_id)}'s log {name}"] = {**values}
    return found
