"""What speaks to the admin doors and coordinators of a simulated cluster for transaction groups and half messages.

Each question goes to some node, again and again, until there is an answer that says more than to ask again: so does a
driver whose answer was lost.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.base.ports import Env
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient

AGAIN: Final = frozenset(
    {
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.concurrent_transactions,
        ErrorCode.not_leader_or_follower,
    }
)
ATTEMPTS_MAX: Final = 2_000
PAUSE_S: Final = 0.05
ADMIN_S_MAX: Final = 15.0
WIRE_S_MAX: Final = 5.0
UNAVAILABLE: Final = 503
TIMEOUT_MS: Final = 60_000
Identity = dict[str, int]
# (node id, method, path, body, query) -> status and fields; Trouble when there is no answer.
AskAdmin = Callable[[int, str, str, Any, dict[str, str]], Awaitable[tuple[int, Any]]]


class Fenced(Exception):
    """A delayed InitProducerId of its own, given up long ago, has come after all."""


class NobodyAnswers(AssertionError):
    """After so many attempts, with nothing broken any more, somebody should have."""


class AddedClient:
    """Everything is asked in the client machine's name; `nodes` are (id, address) of all."""

    def __init__(
        self,
        env: Env,
        nodes: Sequence[tuple[int, tuple[str, int]]],
        ask_admin: AskAdmin,
        coordinator: Callable[[str], int],
    ) -> None:
        """`coordinator` says who coordinates a group now; -1 when that can't be told."""
        self._env = env
        self._ids = [node_id for node_id, _ in nodes]
        self._addresses = dict(nodes)
        self._ask_admin = ask_admin
        self._coordinator = coordinator

    # The admin doors.

    async def admin(
        self, node_id: int, method: str, path: str, body: Any = None, **query: str
    ) -> tuple[int, Any]:
        return await self._ask_admin(node_id, method, path, body, query)

    async def admin_until(
        self, method: str, path: str, body: Any = None, **query: str
    ) -> tuple[int, Any]:
        """Any node, until one can tell."""
        for number in range(ATTEMPTS_MAX):
            node_id = self._ids[number % len(self._ids)]
            try:
                async with asyncio.timeout(ADMIN_S_MAX):
                    status, fields = await self.admin(node_id, method, path, body, **query)
            except (Trouble, TimeoutError):
                status, fields = UNAVAILABLE, {}
            if status != UNAVAILABLE:
                return status, fields
            await self._env.clock.sleep(PAUSE_S)
        raise NobodyAnswers(f"no-progress: {method} {path}: nobody answers")

    # Producers.

    async def _until(
        self,
        group: str,
        api: ApiKey,
        code_of: Callable[[Any], ErrorCode],
        version: int | None = None,
        **fields: Any,
    ) -> Any:
        for number in range(ATTEMPTS_MAX):
            node_id = self._coordinator(group)
            if node_id < 0:
                named = {"key_type": 1, "coordinator_keys": [f"{group}::m"]}
                some = self._ids[number % len(self._ids)]
                await self._once(some, ApiKey.find_coordinator, None, named)
            else:
                reply = await self._once(node_id, api, version, fields)
                if reply is not None and code_of(reply) not in AGAIN:
                    return reply
            await self._env.clock.sleep(PAUSE_S)
        raise NobodyAnswers(f"no-progress: {api.name}: no coordinator takes it")

    async def _once(
        self, node_id: int, api: ApiKey, version: int | None, fields: dict[str, Any]
    ) -> Any:
        """None when the node does not answer."""
        wire = WireClient(self._env, *self._addresses[node_id], timeout_s=WIRE_S_MAX)
        try:
            return await wire.request(api, version, **fields)
        except Trouble:
            return None
        finally:
            await wire.close()

    async def starts(self, group: str, member: str) -> Identity:
        reply = await self._until(
            group,
            ApiKey.init_producer_id,
            lambda reply: reply.error_code,
            transactional_id=f"{group}::{member}",
            transaction_timeout=TIMEOUT_MS,
            producer_id=-1,
            producer_epoch=-1,
        )
        assert reply.error_code is ErrorCode.none, reply
        return {"producer_id": reply.producer_id, "producer_epoch": reply.producer_epoch}

    async def adds(self, group: str, member: str, identity: Identity, topic: str) -> None:
        """The topic's first partition becomes part of its transaction, as librdkafka does it before it writes."""
        reply = await self._until(
            group,
            ApiKey.add_partitions_to_txn,
            _code_of_added,
            3,
            v3_and_below_transactional_id=f"{group}::{member}",
            v3_and_below_producer_id=identity["producer_id"],
            v3_and_below_producer_epoch=identity["producer_epoch"],
            v3_and_below_topics=[{"name": topic, "partitions": [0]}],
        )
        if _code_of_added(reply) is ErrorCode.producer_fenced:
            raise Fenced
        assert _code_of_added(reply) is ErrorCode.none, reply


def _code_of_added(reply: Any) -> ErrorCode:
    topic = reply.results_by_topic_v3_and_below[0]
    code: ErrorCode = topic.results_by_partition[0].partition_error_code
    return code
