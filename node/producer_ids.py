"""Producer ids, handed out from blocks that the controller reserves.

INVARIANT  no id is given twice, not by another node and not after a crash: a block belongs to one broker epoch.
PREVENTS   two producers sharing an id, so that one's batches pass as the other's duplicates.
PROVED BY  tests/node/test_producer_ids.py::test_a_restart_never_gives_an_id_again
"""

import asyncio
from collections.abc import Callable

from fencepost.cluster.base.errors import ErrorCode, Outcome, Trouble
from fencepost.cluster.base.ids import ProducerId
from fencepost.cluster.controller.commands import AllocateProducerIds
from fencepost.cluster.controller.service import Executes
from fencepost.cluster.metadata.image import BrokerState


class ProducerIds:
    """One node's current block. What is left of it at a crash is never used: ids are plenty."""

    def __init__(self, controller: Executes, broker: Callable[[], BrokerState]) -> None:
        self._controller = controller
        self._broker = broker
        self._next = 0
        self._end = 0
        self._refill = asyncio.Lock()

    async def take(self) -> ProducerId:
        """The next id. Raises Trouble when the controller can't be asked."""
        while self._next >= self._end:
            async with self._refill:
                if self._next >= self._end:
                    await self._take_block()
        taken = self._next
        self._next += 1
        return ProducerId(taken)

    async def _take_block(self) -> None:
        broker = self._broker()
        block = await self._controller.execute(
            AllocateProducerIds(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch)
        )
        if block.error_code is not ErrorCode.none:
            raise Trouble(
                f"no block of producer ids: {block.error_code.name}, {block.error_message}",
                Outcome.REFUSED,
            )
        assert block.first_producer_id >= self._end, "the controller gave a block twice"
        self._next = block.first_producer_id
        self._end = self._next + block.count
