"""A controller on a machine without a quorum: proposals are applied at once."""

import asyncio
import random
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from fencepost.cluster.controller.brokers_policy import FEATURES
from fencepost.cluster.controller.commands import (
    AlterPartition,
    FormCluster,
    IsrChange,
    IsrMember,
    RegisterBroker,
)
from fencepost.cluster.controller.service import Controller
from fencepost.cluster.metadata import levels
from fencepost.cluster.metadata.image import Endpoint
from fencepost.cluster.metadata.machine import MetadataMachine

# Of a broker that fits in.
LEVELS = {name: (0, level) for name, level in FEATURES.items()}
LEVELS[levels.NAME] = (levels.OLDEST, levels.NEWEST)


class EventLog(list[tuple[str, dict[str, object]]]):
    """Stands for Env.log."""

    def info(self, event: str, **fields: object) -> None:
        self.append((event, fields))

    debug = warn = error = info


class Alone:
    """Stands for the quorum: this node leads, and agrees with itself."""

    def __init__(self, node_id: int = 1) -> None:
        self.machine = MetadataMachine()
        self.node_id = node_id
        self.is_leader = True
        self.term = 1
        self.leader_id = node_id
        self.voters: frozenset[int] = frozenset()  # who votes matters where a test says so
        self.proposed: list[bytes] = []
        self.before_apply: Any = None  # called once, before the next proposal is applied

    @property
    def image(self) -> Any:
        return self.machine.image

    @property
    def voters_to_be(self) -> frozenset[int]:
        return self.voters

    async def propose(self, record: bytes) -> Any:
        self.proposed.append(record)
        hook, self.before_apply = self.before_apply, None
        if hook is not None:
            hook()
        return self.machine.apply(record)


class Scene:
    """`when(command)` is its answer; a cluster is formed and broker 1 registered."""

    def __init__(self, node_config: Mapping[str, str] | None = None, brokers: int = 1) -> None:
        self.quorum = Alone()
        env: Any = SimpleNamespace(
            rng=random.Random(7), clock=SimpleNamespace(now_ms=lambda: 0), log=EventLog()
        )
        self.log = env.log
        self.controller = Controller(env, self.quorum, node_config or {})
        self.cluster_id = self.when(FormCluster())
        for broker_id in range(1, brokers + 1):
            self.register(broker_id)

    def when(self, command: Any) -> Any:
        return asyncio.run(self.controller.execute(command))

    def register(self, broker_id: int, **other: Any) -> Any:
        other.setdefault("features", LEVELS)
        return self.when(
            RegisterBroker(
                broker_id=broker_id,
                cluster_id=self.cluster_id,
                incarnation_id=UUID(int=broker_id),
                endpoints=(Endpoint("PLAINTEXT", f"node{broker_id}", 9092, "PLAINTEXT"),),
                **other,
            )
        )

    @property
    def image(self) -> Any:
        return self.quorum.image

    def epoch(self, broker_id: int = 1) -> int:
        return self.image.brokers[broker_id].broker_epoch

    def partition(self, topic: str = "t", index: int = 0) -> Any:
        return self.image.partition(topic, index)


def wish(
    scene: Scene,
    *isr: int,
    broker: int = 1,
    broker_epoch: int | None = None,
    topic: str = "t",
    **other: int,
) -> Any:
    """The leader's wish for the ISR of t-0, or another one, and its answer."""
    now = scene.partition(topic, other.get("partition", 0))
    change = IsrChange(
        topic_id=scene.image.topics[topic].topic_id,
        partition=other.get("partition", 0),
        leader_epoch=other.get("leader_epoch", now.leader_epoch if now else 0),
        partition_epoch=other.get("partition_epoch", now.partition_epoch if now else 0),
        isr=tuple(IsrMember(broker_id=each) for each in isr),
    )
    epoch = scene.epoch(broker) if broker_epoch is None else broker_epoch
    (result,) = scene.when(
        AlterPartition(broker_id=broker, broker_epoch=epoch, partitions=(change,))
    )
    return result
