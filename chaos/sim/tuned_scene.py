"""The settings of topics and brokers change while they are in use: what was acknowledged is what every node works by in the end."""

import random
from collections.abc import Mapping
from typing import Final

from fencepost.node.broker import Broker
from fencepost.replication.partition import Partition

from ..checkers import settings
from ..checkers.history import FINAL, Anomaly
from ..checkers.settings import Name
from ..workloads.tuner import ALL_BROKERS, BROKER, TOPIC, Shown, Tuner, resource_name
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
INDEX_BYTES: Final = "log.index.size.max.bytes"


class Tuned(Scene):
    name = "tuned"

    def __init__(self, clients: TransactionClients, dice: random.Random) -> None:
        super().__init__(clients, dice)
        self.places = [(IDLE, 0), (IDLE, 1)]
        clients.watch.shortened.add(IDLE)  # a retention.bytes of it is small
        self.tuner = Tuner(self._client(1, "tuner", patient=True), IN_USE, IDLE)

    def make(self) -> None:
        self.writers.append(self.tuner)

    async def judge(self, on: On) -> Told:
        await super().judge(on)
        nodes, asked = self.clients.nodes, self.tuner.asked
        asking = Tuner(self._client(0, FINAL, patient=True), IN_USE, IDLE)
        found: dict[str, dict[Name, str | None]] = {}
        lost: list[Anomaly] = []
        for id_ in nodes.ids:
            shown = await on(asking.client.env, asking.find((node_name(id_), CLIENT_PORT)))
            found[node_name(id_)] = {name: shown[name].own for name in shown}
            for log, in_force in _in_force(nodes.broker(id_)).items():
                ours = {name: value for name, value in in_force.items() if name in shown}
                found[log] = {name: ours[name] for name in ours if shown[name].own}
                lost += _not_as_shown(log, ours, shown)
        changed = {"settings changed": sum(each.type == "ok" for each in asked)}
        return [*settings.check(asked, found), *lost], changed


def _not_as_shown(
    log: str, in_force: Mapping[Name, str | None], shown: Mapping[Name, Shown]
) -> list[Anomaly]:
    """What nobody has set of a topic comes from elsewhere, and its logs work by what its node shows, if it shows it at all."""
    return [
        Anomaly(
            "setting-lost",
            name[0],
            f"{log} works by {name[1]}={value}, shown is {shown[name].value}",
        )
        for name, value in in_force.items()
        if shown[name].own is None and shown[name].value not in (None, value)
    ]


def _in_force(broker: Broker) -> dict[str, dict[Name, str | None]]:
    """What each log of a node works by."""
    return {
        f"{node_name(broker.config.node_id)}'s log {name}": _works_by(name.topic, partition)
        for name, partition in broker.replicas.partitions.items()
        if name.topic in (*IN_USE, IDLE)
    }


def _works_by(topic: str, partition: Partition) -> dict[Name, str | None]:
    """Of its topic; and of all brokers what no topic has of its own."""
    config = partition.log.config
    values = {setting: str(getattr(config, field)) for setting, field in IN_FORCE.items()}
    values["min.insync.replicas"] = str(partition.machine.min_insync_replicas)
    values["compression.type"] = partition.config.compression_type
    values["cleanup.policy"] = ",".join(partition.config.cleanup_policy)
    of_topic = resource_name(TOPIC, topic)
    found: dict[Name, str | None] = {(of_topic, name): value for name, value in values.items()}
    found[resource_name(BROKER, ALL_BROKERS), INDEX_BYTES] = str(config.segment_index_bytes)
    return found
