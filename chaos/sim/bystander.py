"""A client on a machine that no fault hits, which speaks to the node that it names: to one that was deposed, too.

What scenes of a fault ask by (`left_behind.py`, `late_batches.py`). Clients of workloads look for another node as soon as
they can; this one asks where its fault wants it, once, or until somebody answers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.base.ids import (
    GROUP_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    BrokerId,
    TopicPartition,
)
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient
from fencepost.txn.runtime.ownership import partition_for

from ..workloads.cluster_client import LOOK_AGAIN
from ..workloads.coordinator_client import BUSY, FIND_VERSION, GROUP, MOVED, TRANSACTION
from ..workloads.txn_answers import error_of
from .cluster_nodes import CLIENT_PORT, node_name

if TYPE_CHECKING:
    from .cluster_faults import ClusterFaults

MACHINE: Final = "bystander"
ANSWER_S: Final = 1.0
AGAIN_S: Final = 0.05
LATER: Final = MOVED | BUSY | LOOK_AGAIN | {ErrorCode.offset_not_available}
KEY_TYPES: Final = {GROUP_OFFSETS_TOPIC: GROUP, TRANSACTION_STATE_TOPIC: TRANSACTION}


class GivenUp(Exception):
    """Something else is broken, too: this scene can't be played."""


class Bystander:
    """`ask` a node once, or `ask_leader`, whoever leads a partition by then, until there is an answer."""

    def __init__(self, faults: "ClusterFaults") -> None:
        self.world = faults.world
        self.nodes = faults.nodes
        self._wires: dict[int, WireClient] = {}

    async def ask(self, node_id: int, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """Trouble when there is no answer in time."""
        env = self.world.node(MACHINE)
        wire = self._wires.get(node_id)
        if wire is None:
            address = (node_name(node_id), CLIENT_PORT)
            wire = WireClient(env, *address, client_id=MACHINE, timeout_s=ANSWER_S)
            self._wires[node_id] = wire
        try:
            return await self.world.on(env, wire.request(api_key, version, **fields))
        except Trouble:
            # What is asked next must not stand behind what is not answered.
            if self._wires.get(node_id) is wire:
                del self._wires[node_id]
            await self.world.on(env, wire.close())
            raise

    async def ask_leader(
        self, place: TopicPartition, question: Callable[[int], Awaitable[Any]], *, within_s: float
    ) -> tuple[BrokerId, Any]:
        """Who answered what. GivenUp when nobody did in this time."""
        end = self.world.loop.time() + within_s
        while self.world.loop.time() < end:
            leader = self.nodes.leader(*place)
            if leader is not None:
                try:
                    reply = await question(leader)
                except Trouble:
                    pass
                else:
                    if error_of(reply) not in LATER:
                        return leader, reply
            await asyncio.sleep(AGAIN_S)
        raise GivenUp(f"nobody answers for {place}")

    async def place_of(self, topic: str, key: str) -> TopicPartition:
        """Of which partition of a coordinators' topic this is. Who asks for the first one has the topic made."""
        image = self.nodes.image
        if image is None or topic not in image.topics:
            ready = self.nodes.ready()
            if ready:
                try:
                    await self.ask(
                        ready[0],
                        ApiKey.find_coordinator,
                        FIND_VERSION,
                        key=key,
                        key_type=KEY_TYPES[topic],
                    )
                except Trouble:
                    pass
            raise GivenUp(f"there is no {topic} yet")
        return TopicPartition(topic, partition_for(key, len(image.topics[topic].partitions)))

    async def close(self) -> None:
        env = self.world.node(MACHINE)
        for wire in self._wires.values():
            await self.world.on(env, wire.close())
        self._wires.clear()
