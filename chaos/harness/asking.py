"""Who leads what, asked of real brokers on this machine: of Fencepost and of Kafka alike.

Blocking, for code that drives processes. Each question has a connection of its own, to the first of the
addresses that answers, and takes a broker's word as it is: a stale one knows no better.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.base.log import StreamLog
from fencepost.cluster.base.real_env import open_env
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient

Address = tuple[str, int]
T = TypeVar("T")
ANSWER_S = 2.0
METADATA_TOPIC = "__cluster_metadata"
TRANSACTION = 1  # a key type of FindCoordinator
FIND_ONE = 3  # its newest version with one key a request
UPGRADE_TYPE = 1  # of UpdateFeatures
UPDATE_MS = 5_000


class NobodyAnswers(Exception):
    """None of the addresses answered in time."""


@dataclass(frozen=True, slots=True)
class PartitionView:
    topic: str
    partition: int
    leader: int  # -1 for none
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


def partitions(addresses: Sequence[Address], topic: str | None = None) -> list[PartitionView]:
    """All partitions of the cluster, or of one topic, as Metadata has them."""

    async def ask(client: WireClient) -> list[PartitionView]:
        topics = None if topic is None else [{"name": topic}]
        reply = await client.request(
            ApiKey.metadata, topics=topics, allow_auto_topic_creation=False
        )
        return [
            PartitionView(
                each.name,
                part.partition_index,
                part.leader_id,
                tuple(part.replica_nodes),
                tuple(part.isr_nodes),
            )
            for each in reply.topics
            for part in each.partitions
        ]

    return ask_any(addresses, ask)


def brokers(addresses: Sequence[Address]) -> list[int]:
    """The brokers that are registered and not fenced."""

    async def ask(client: WireClient) -> list[int]:
        reply = await client.request(ApiKey.metadata, topics=[], allow_auto_topic_creation=False)
        return sorted(int(each.node_id) for each in reply.brokers)

    return ask_any(addresses, ask)


def quorum_leader(addresses: Sequence[Address]) -> int:
    """The active controller, as DescribeQuorum has it; -1 while there is none."""

    async def ask(client: WireClient) -> int:
        wanted = [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]
        reply = await client.request(ApiKey.describe_quorum, topics=wanted)
        part = reply.topics[0].partitions[0] if reply.topics else None
        if part is None or part.error_code is not ErrorCode.none:
            return -1
        return int(part.leader_id)

    return ask_any(addresses, ask)


def coordinator_of(addresses: Sequence[Address], transactional_id: str) -> int:
    """The node that coordinates the transactions of an id; -1 while there is none."""

    async def ask(client: WireClient) -> int:
        reply = await client.request(
            ApiKey.find_coordinator, FIND_ONE, key=transactional_id, key_type=TRANSACTION
        )
        return int(reply.node_id) if reply.error_code is ErrorCode.none else -1

    return ask_any(addresses, ask)


def feature_levels(addresses: Sequence[Address]) -> dict[str, int]:
    """The levels that the cluster has, as this node knows them; those at 0 are left out."""

    async def ask(client: WireClient) -> dict[str, int]:
        reply = await client.request(
            ApiKey.api_versions, client_software_name="harness", client_software_version="1"
        )
        return {str(each.name): int(each.max_version_level) for each in reply.finalized_features}

    return ask_any(addresses, ask)


def update_features(
    addresses: Sequence[Address], levels: Mapping[str, int]
) -> tuple[ErrorCode, str]:
    """All of them upwards, or none; what was answered."""
    updates = [
        {"feature": name, "max_version_level": level, "upgrade_type": UPGRADE_TYPE}
        for name, level in levels.items()
    ]

    async def ask(client: WireClient) -> tuple[ErrorCode, str]:
        reply = await client.request(
            ApiKey.update_features, timeout=UPDATE_MS, feature_updates=updates
        )
        return reply.error_code, str(reply.error_message or "")

    return ask_any(addresses, ask, UPDATE_MS / 1000 + ANSWER_S)


def ask_any(
    addresses: Sequence[Address],
    ask: Callable[[WireClient], Awaitable[T]],
    timeout_s: float = ANSWER_S,
) -> T:
    async def first_answer() -> T:
        said: list[str] = []
        async with open_env(log=StreamLog(levels="error")) as env:
            for host, port in addresses:
                client = WireClient(env, host, port, client_id="harness", timeout_s=timeout_s)
                try:
                    return await ask(client)
                except Trouble as trouble:
                    said.append(str(trouble))
                finally:
                    await client.close()
        raise NobodyAnswers("; ".join(said))

    return asyncio.run(first_answer())


def addresses_of(bootstrap: str) -> list[Address]:
    found: list[Any] = [each.rpartition(":") for each in bootstrap.split(",")]
    return [(host, int(port)) for host, _, port in found]
