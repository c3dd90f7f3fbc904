"""Producer ids are never given twice."""

import asyncio
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

import pytest
from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.base.ids import BrokerEpoch, BrokerId
from fencepost.cluster.controller.commands import AllocateProducerIds, ProducerIdBlock
from fencepost.cluster.controller.service import Controller
from fencepost.cluster.metadata.image import BrokerState
from fencepost.node.producer_ids import ProducerIds

ME = BrokerState(BrokerId(1), BrokerEpoch(5), UUID(int=1), ())


class Blocks:
    """A controller that hands out blocks of three."""

    def __init__(self) -> None:
        self.next = 0
        self.asked = 0
        self.error = ErrorCode.none

    async def execute(self, command: AllocateProducerIds) -> ProducerIdBlock:
        self.asked += 1
        await asyncio.sleep(0)
        if self.error is not ErrorCode.none:
            return ProducerIdBlock(error_code=self.error, error_message="no")
        self.next += 3
        return ProducerIdBlock(first_producer_id=self.next - 3, count=3)


def ids(blocks: Blocks) -> ProducerIds:
    broker: Callable[[], BrokerState] = lambda: ME  # noqa: E731
    return ProducerIds(cast("Controller", blocks), broker)


def test_a_restart_never_gives_an_id_again() -> None:
    """What was left of the block at the crash is skipped."""
    blocks = Blocks()

    async def take(count: int) -> list[Any]:
        source = ids(blocks)
        return [await source.take() for _ in range(count)]

    before = asyncio.run(take(4))
    after = asyncio.run(take(4))
    assert before == [0, 1, 2, 3]
    assert after == [6, 7, 8, 9]


def test_those_who_ask_together_share_one_block() -> None:
    blocks = Blocks()

    async def together() -> list[Any]:
        source = ids(blocks)
        return list(await asyncio.gather(*(source.take() for _ in range(3))))

    assert sorted(asyncio.run(together())) == [0, 1, 2]
    assert blocks.asked == 1


def test_a_refused_block_is_trouble_and_not_an_id() -> None:
    blocks = Blocks()
    blocks.error = ErrorCode.stale_broker_epoch
    with pytest.raises(Trouble, match="stale_broker_epoch"):
        asyncio.run(ids(blocks).take())
