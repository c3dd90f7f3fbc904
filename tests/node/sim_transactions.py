"""A simulated cluster with its admin doors, and producers that speak the wire protocol to it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fencepost.chaos.sim.cluster_nodes import CLIENT_PORT, node_name
from fencepost.chaos.sim.http import TOKEN, ask_http
from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.base.ids import TRANSACTION_STATE_TOPIC
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient
from fencepost.txn.runtime.ownership import partition_for
from sim_cluster import CLIENT, Cluster

ADMIN_PORT = 9644
AGAIN = (
    ErrorCode.not_coordinator,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.concurrent_transactions,
    ErrorCode.not_leader_or_follower,
)


class Fenced(Exception):
    """A delayed InitProducerId of its own, given up long ago, has come after all."""


class TransactionCluster(Cluster):
    def __init__(self, nodes: int = 3, *, seed: int | str = 1, **settings: str) -> None:
        flags = [f"{name}={value}" for name, value in settings.items()]
        own = [
            f"admin.listener=0.0.0.0:{ADMIN_PORT}",
            f"admin.token={TOKEN}",
            "transaction.state.log.num.partitions=2",
            *flags,
        ]
        super().__init__(nodes, seed=seed, config=own)

    # -- people and their scripts ----------------------------------------------------------------

    async def admin(
        self, node_id: int, method: str, path: str, body: Any = None, **query: str
    ) -> tuple[int, Any]:
        client = self.world.node(CLIENT)
        work = ask_http(client, node_name(node_id), ADMIN_PORT, method, path, body, **query)
        return await self.world.on(client, work)

    async def admin_until(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Any node, again and again, as a driver does whose answer was lost."""
        for number in range(2_000):
            node_id = self.nodes.ids[number % len(self.nodes.ids)]
            try:
                async with asyncio.timeout(15):
                    status, fields = await self.admin(node_id, method, path, body)
            except (Trouble, TimeoutError):
                status, fields = 503, {}
            if status != 503:
                return status, fields
            await asyncio.sleep(0.05)
        raise AssertionError(f"{method} {path}: nobody answers")

    # -- producers -------------------------------------------------------------------------------

    def coordinator(self, group: str) -> int:
        """The node that coordinates the members of this group now; -1 for none."""
        image = self.nodes.image
        assert image is not None
        topic = image.topics.get(TRANSACTION_STATE_TOPIC)
        if topic is None:
            return -1
        return topic.partitions[partition_for(group, len(topic.partitions))].leader

    async def _until(
        self,
        group: str,
        api: ApiKey,
        code_of: Callable[[Any], ErrorCode],
        version: int | None = None,
        **fields: Any,
    ) -> Any:
        """The coordinator's answer, as soon as there is one that says more than to ask again."""
        for number in range(2_000):
            node_id = self.coordinator(group)
            if node_id < 0:
                node_id = self.nodes.ids[number % len(self.nodes.ids)]
                named = {"key_type": 1, "coordinator_keys": [f"{group}::m"]}
                await self._once(node_id, ApiKey.find_coordinator, None, named)
            else:
                reply = await self._once(node_id, api, version, fields)
                if reply is not None and code_of(reply) not in AGAIN:
                    return reply
            await asyncio.sleep(0.05)
        raise AssertionError(f"{api.name}: no coordinator takes it")

    async def _once(
        self, node_id: int, api: ApiKey, version: int | None, fields: dict[str, Any]
    ) -> Any:
        """None when the node does not answer."""
        client = self.world.node(CLIENT)

        async def work() -> Any:
            wire = WireClient(client, node_name(node_id), CLIENT_PORT, timeout_s=5.0)
            try:
                return await wire.request(api, version, **fields)
            except Trouble:
                return None
            finally:
                await wire.close()

        return await self.world.on(client, work())

    async def starts(self, group: str, member: str) -> dict[str, int]:
        reply = await self._until(
            group,
            ApiKey.init_producer_id,
            lambda reply: reply.error_code,
            transactional_id=f"{group}::{member}",
            transaction_timeout=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        assert reply.error_code == 0, reply
        return {"producer_id": reply.producer_id, "producer_epoch": reply.producer_epoch}

    async def writes(self, group: str, member: str, identity: dict[str, int], topic: str) -> None:
        """One partition of a topic becomes part of its transaction, as librdkafka does it before it writes."""
        reply = await self._until(
            group,
            ApiKey.add_partitions_to_txn,
            lambda reply: (
                reply.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            ),
            3,
            v3_and_below_transactional_id=f"{group}::{member}",
            v3_and_below_producer_id=identity["producer_id"],
            v3_and_below_producer_epoch=identity["producer_epoch"],
            v3_and_below_topics=[{"name": topic, "partitions": [0]}],
        )
        topics = reply.results_by_topic_v3_and_below
        code = topics[0].results_by_partition[0].partition_error_code
        if code is ErrorCode.producer_fenced:
            raise Fenced
        assert code == 0, reply

    async def phases(self, group: str, *members: str) -> list[str]:
        reply = await self._until(
            group,
            ApiKey.describe_transactions,
            lambda reply: reply.transaction_states[0].error_code,
            transactional_ids=[f"{group}::{member}" for member in members],
        )
        return [each.transaction_state for each in reply.transaction_states]

    async def until_phases(self, group: str, phase: str, *members: str) -> None:
        """The markers of all of them are written."""
        async with asyncio.timeout(60):
            while await self.phases(group, *members) != [phase] * len(members):
                await asyncio.sleep(0.1)

    def play_up(self, scenario: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """With all nodes up and a topic `t` to write to."""

        async def with_topic() -> Any:
            await self.create("t", copies=min(3, len(self.nodes.ids)))
            return await scenario()

        return self.play(with_topic)
