"""When a producer's open transaction began, asked of its coordinator, wherever that is.

For clients that store offsets in a transaction without the generation of their group (`handlers/txn_offset_commit.py`).
Nodes tell each other how old it is: two clocks need not agree, they only have to go equally fast.
"""

from collections.abc import Mapping
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode, FrameRefused, Trouble
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.ports import Buffer, Clock
from fencepost.cluster.wire.peer_door import PeerDoor
from fencepost.txn.transactions.service import TransactionService

ASK_S_MAX: Final = 2.0
_AGE: Final = "transaction_age"


class TransactionStarts:
    def __init__(
        self,
        clock: Clock,
        node_id: BrokerId,
        door: PeerDoor | None,
        transactions: TransactionService,
    ) -> None:
        self._clock = clock
        self._node_id = node_id
        self._door = door
        self._transactions = transactions
        if door is not None:
            door.on_request(_AGE, self._on_asked)

    async def of(
        self, transactional_id: str, producer_id: int, producer_epoch: int
    ) -> int | ErrorCode:
        """Milliseconds since the epoch by this node's clock; an error that sends the client to ask again."""
        age_ms = await self._age_ms(transactional_id, producer_id, producer_epoch)
        return age_ms if isinstance(age_ms, ErrorCode) else self._clock.now_ms() - age_ms

    async def _age_ms(
        self, transactional_id: str, producer_id: int, producer_epoch: int
    ) -> int | ErrorCode:
        coordinator = await self._transactions.coordinator_of(transactional_id)
        if isinstance(coordinator, ErrorCode):
            return ErrorCode.coordinator_not_available
        if coordinator == self._node_id:
            return await self._transactions.age_ms(transactional_id, producer_id, producer_epoch)
        if self._door is None:
            return ErrorCode.coordinator_not_available
        try:
            answer, _ = await self._door.request(
                coordinator,
                _AGE,
                {"of": [transactional_id, producer_id, producer_epoch]},
                timeout_s=ASK_S_MAX,
            )
        except Trouble:
            return ErrorCode.coordinator_not_available
        age_ms = answer.get("age_ms")
        return age_ms if isinstance(age_ms, int) else ErrorCode.coordinator_not_available

    async def _on_asked(
        self, peer_id: BrokerId, header: dict[str, Any], _payload: memoryview
    ) -> tuple[Mapping[str, Any], Buffer]:
        match header.get("of"):
            case [str(transactional_id), int(producer_id), int(producer_epoch)]:
                found = await self._transactions.age_ms(
                    transactional_id, producer_id, producer_epoch
                )
            case _:
                raise FrameRefused(f"unreadable question of node {peer_id}")
        return {"age_ms": None if isinstance(found, ErrorCode) else found}, b""
