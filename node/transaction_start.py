"""When a producer's open transaction began, asked of its coordinator, wherever that is.

For clients that store offsets in a transaction without the generation of their group (`handlers/txn_offset_commit.py`).
Nodes tell each other how old it is: two clocks need not agree, they only have to go equally fast (`txn/runtime/moments.py`).
"""

from collections.abc import Mapping
from typing import Any, Final

from fencepost.cluster.base.errors import ErrorCode, FrameRefused, Trouble
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.base.ports import Buffer, Clock
from fencepost.cluster.wire.peer_door import PeerDoor
from fencepost.txn.runtime.moments import Age, Began
from fencepost.txn.transactions.commands import FindOpened
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
    ) -> Began | ErrorCode:
        """An error sends the client to ask again."""
        asked_s = self._clock.elapsed()
        age = await self._age(FindOpened(transactional_id, producer_id, producer_epoch))
        if isinstance(age, ErrorCode):
            return age
        now_ms, answered_s = self._clock.now_ms(), self._clock.elapsed()
        return age.began(asked_s=asked_s, answered_s=answered_s, now_ms=now_ms)

    async def _age(self, who: FindOpened) -> Age | ErrorCode:
        coordinator = await self._transactions.coordinator_of(who.transactional_id)
        if isinstance(coordinator, ErrorCode):
            return ErrorCode.coordinator_not_available
        if coordinator == self._node_id:
            return await self._transactions.age(who)
        if self._door is None:
            return ErrorCode.coordinator_not_available
        try:
            answer, _ = await self._door.request(
                coordinator,
                _AGE,
                {"of": [*who]},
                timeout_s=ASK_S_MAX,
            )
        except Trouble:
            return ErrorCode.coordinator_not_available
        return _age_told(answer)

    async def _on_asked(
        self, peer_id: BrokerId, header: dict[str, Any], _payload: memoryview
    ) -> tuple[Mapping[str, Any], Buffer]:
        match header.get("of"):
            case [str(transactional_id), int(producer_id), int(producer_epoch)]:
                who = FindOpened(transactional_id, producer_id, producer_epoch)
                found = await self._transactions.age(who)
            case _:
                raise FrameRefused(f"unreadable question of node {peer_id}")
        return {} if isinstance(found, ErrorCode) else _told(found), b""


def _told(age: Age) -> Mapping[str, Any]:
    return {"age_ms": age.by_wall_ms, "least_s": age.least_s, "most_s": age.most_s}


def _age_told(answer: Mapping[str, Any]) -> Age | ErrorCode:
    """A node of an older build tells `age_ms` alone."""
    match dict(answer):
        case {"age_ms": int(by_wall_ms), "least_s": float(least_s), "most_s": float(most_s)}:
            return Age(by_wall_ms, least_s, most_s)
        case {"age_ms": int(by_wall_ms)}:
            return Age(by_wall_ms)
        case _:
            return ErrorCode.coordinator_not_available
