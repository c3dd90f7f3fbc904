"""A member of a classic consumer group on the wire: joins, is given partitions, shows that it lives, joins again when told.

Just enough of Java's consumer for exactly-once: its generation fences offsets of a member that the group has moved on from
(KIP-447). The leader of the group deals the partitions out in turn.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.wire.api import ApiKey

from .cluster_client import ClusterClient
from .coordinator_client import GROUP, Coordinator
from .txn_answers import Partition

JOIN_VERSION: Final = 5
SYNC_VERSION: Final = 3
HEARTBEAT_VERSION: Final = 3
LEAVE_VERSION: Final = 1
SESSION_TIMEOUT_MS: Final = 6_000
HEARTBEAT_S: Final = 0.5
RETRY_PAUSE_S: Final = 0.1
_SIZE: Final = Struct(">h")
_COUNT: Final = Struct(">i")


class GroupMember:
    """`await rejoined()` before each round; `lost` afterwards when the group moves on."""

    def __init__(
        self,
        client: ClusterClient,
        group: str,
        places: Sequence[Partition],
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
    ) -> None:
        self.client = client
        self.group = group
        (self.topic,) = {topic for topic, _ in places}
        self.all = [partition for _, partition in places]
        self.session_timeout_ms = session_timeout_ms
        self.member_id = ""
        self.generation = -1
        self.mine: list[Partition] = []
        self._coordinator = Coordinator(client, group, GROUP)
        self._beaten_s = 0.0

    @property
    def _joined(self) -> bool:
        return self.generation >= 0

    def lost(self) -> None:
        """The group has moved on: join again."""
        self.generation = -1

    def forget(self) -> None:
        """As a process that crashed: it is another member when it comes back, and the group has to find out."""
        self.lost()
        self.member_id = ""

    async def rejoined(self) -> bool:
        """Whether partitions are given anew: where it was in them counts no more."""
        clock = self.client.env.clock
        if self._joined and clock.steady() - self._beaten_s >= HEARTBEAT_S:
            await self._beat()
        if self._joined:
            return False
        while not await self._join():
            await clock.sleep(RETRY_PAUSE_S)
        self._beaten_s = clock.steady()
        return True

    async def _ask(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """None after Trouble."""
        try:
            return await self._coordinator.ask(
                api_key, version, group_id=self.group, member_id=self.member_id, **fields
            )
        except Trouble:
            return None

    async def _beat(self) -> None:
        reply = await self._ask(
            ApiKey.heartbeat,
            HEARTBEAT_VERSION,
            generation_id=self.generation,
            group_instance_id=None,
        )
        if reply is None:
            return
        if reply.error_code is ErrorCode.none:
            self._beaten_s = self.client.env.clock.steady()
        else:
            self._refused(reply.error_code)

    def _refused(self, error: ErrorCode) -> None:
        if error in (ErrorCode.not_coordinator, ErrorCode.coordinator_not_available):
            self._coordinator.forget()
        elif error is not ErrorCode.coordinator_load_in_progress:
            self.lost()
            if error is ErrorCode.unknown_member_id:
                self.member_id = ""

    async def _join(self) -> bool:
        reply = await self._ask(
            ApiKey.join_group,
            JOIN_VERSION,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.session_timeout_ms,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[{"name": "in-turn", "metadata": _subscription(self.topic)}],
        )
        if reply is None:
            return False
        if reply.error_code is ErrorCode.member_id_required:
            self.member_id = reply.member_id
            return False
        if reply.error_code is not ErrorCode.none:
            self._refused(reply.error_code)
            return False
        self.member_id = reply.member_id
        assignments = []
        if reply.leader == reply.member_id:
            members = sorted(each.member_id for each in reply.members)
            for place, member in enumerate(members):
                dealt = self.all[place :: len(members)]
                assignments.append(
                    {"member_id": member, "assignment": _assignment(self.topic, dealt)}
                )
        synced = await self._ask(
            ApiKey.sync_group,
            SYNC_VERSION,
            generation_id=reply.generation_id,
            group_instance_id=None,
            assignments=assignments,
        )
        if synced is None:
            return False
        if synced.error_code is not ErrorCode.none:
            self._refused(synced.error_code)
            return False
        self.generation = reply.generation_id
        self.mine = [(self.topic, each) for each in _assigned(bytes(synced.assignment))]
        return True

    async def leave(self) -> None:
        """As a consumer that is closed does; a crash does not."""
        if self.member_id:
            await self._ask(ApiKey.leave_group, LEAVE_VERSION)
        self.lost()
        self.member_id = ""


def _text(text: str) -> bytes:
    return _SIZE.pack(len(text)) + text.encode()


def _subscription(topic: str) -> bytes:
    """ConsumerProtocolSubscription v0."""
    return _SIZE.pack(0) + _COUNT.pack(1) + _text(topic) + _COUNT.pack(-1)


def _assignment(topic: str, partitions: Sequence[int]) -> bytes:
    """ConsumerProtocolAssignment v0."""
    packed = b"".join(_COUNT.pack(each) for each in partitions)
    head = _SIZE.pack(0) + _COUNT.pack(1) + _text(topic)
    return head + _COUNT.pack(len(partitions)) + packed + _COUNT.pack(-1)


def _assigned(data: bytes) -> list[int]:
    """The partitions of the one topic in a ConsumerProtocolAssignment."""
    if not data:
        return []
    (size,) = _SIZE.unpack_from(data, 6)
    at = 8 + size
    (count,) = _COUNT.unpack_from(data, at)
    return [_COUNT.unpack_from(data, at + 4 + 4 * place)[0] for place in range(count)]
