"""Asks whoever coordinates a group or a transactional id, and looks for it anew when told, as Java's and librdkafka's do.

A request that took too long ends its connection, as theirs do: what was sent may still arrive, and an answer to it
nobody reads.
"""

from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode, Outcome, Trouble
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient

from .cluster_client import ClusterClient

GROUP: Final = 0
TRANSACTION: Final = 1
FIND_VERSION: Final = 3  # one key a request
# Look for the coordinator again. The first may follow an append whose fate is open.
MOVED: Final = frozenset(
    {
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.request_timed_out,
        ErrorCode.network_exception,
        ErrorCode.unknown_server_error,
    }
)
# The coordinator is the right one and has done nothing: ask it again.
BUSY: Final = frozenset(
    {
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.concurrent_transactions,
        ErrorCode.throttling_quota_exceeded,
        ErrorCode.not_enough_replicas,
    }
)


class Coordinator:
    """`ask` raises Trouble; its outcome says whether the request may have happened."""

    def __init__(self, client: ClusterClient, key: str, key_type: int) -> None:
        self.client = client
        self.key = key
        self.key_type = key_type
        self._wire: WireClient | None = None

    async def ask(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        wire = self._wire
        if wire is None:
            wire = self._wire = await self._find()
        try:
            return await wire.request(api_key, version, **fields)
        except Trouble:
            await self.client.drop(wire)
            self._wire = None
            raise

    async def _find(self) -> WireClient:
        try:
            reply = await self.client.any().request(
                ApiKey.find_coordinator, FIND_VERSION, key=self.key, key_type=self.key_type
            )
        except Trouble as trouble:
            raise Trouble(f"no coordinator found: {trouble}", Outcome.REFUSED) from trouble
        if reply.error_code is not ErrorCode.none:
            raise Trouble(f"find coordinator: {reply.error_code.name}", Outcome.REFUSED)
        return self.client.wire_to((reply.host, reply.port))

    def forget(self) -> None:
        """It is not, or no more, the coordinator."""
        self._wire = None
