"""How long a transaction has been open, asked of its coordinator: of one that goes on, that slept, that began anew, that was deposed."""

import asyncio
from math import inf
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TRANSACTION_STATE_TOPIC
from fencepost.txn.transactions.commands import FindOpened
from transaction_node import ID, TransactionNode, on_node, ready

E = ErrorCode


def test_a_coordinator_that_was_deposed_says_of_no_transaction_that_it_is_not_open() -> None:
    """1. another took over, and the producer has begun its transaction there   2. the leader of the positions had word of
    that, and asks here how old it is   3. only now this node hears that it coordinates no more."""

    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()

        async def hears_of_it() -> bool:
            node.lead(TRANSACTION_STATE_TOPIC, 0, 2)
            return True  # what it knows is of now

        node.service._confirm_image = hears_of_it
        said = await node.service.age(FindOpened(ID, who.producer_id, who.producer_epoch))
        assert said is E.not_coordinator

    on_node(scenario, partitions=1)


async def opened(node: TransactionNode) -> FindOpened:
    await ready(node)
    who = await node.init()
    assert await node.add(who) is E.none
    return FindOpened(ID, who.producer_id, who.producer_epoch)


async def age(node: TransactionNode, who: FindOpened) -> Any:
    found = await node.service.age(who)
    assert not isinstance(found, ErrorCode)
    return found


def test_a_coordinator_that_saw_it_begin_knows_how_old_it_is_whatever_its_wall_clock_says() -> None:
    async def scenario(node: TransactionNode) -> None:
        who = await opened(node)
        await asyncio.sleep(3.0)
        node.world.machine("n").wall.jump(-3_600_000)
        found = await age(node, who)
        assert found.least_s == found.most_s == pytest.approx(3.0, abs=0.01)

    on_node(scenario, partitions=1)


def test_it_is_no_younger_for_a_machine_that_was_suspended() -> None:
    """Its steady clock stands still meanwhile: who began before a rebalance seemed to have begun behind it."""

    async def scenario(node: TransactionNode) -> None:
        who = await opened(node)
        steady = node.world.machine("n").steady
        steady.stop()
        await asyncio.sleep(2.5)
        steady.go_on()
        assert (await age(node, who)).least_s >= 2.5

    on_node(scenario, partitions=1)


def test_one_that_is_read_from_the_log_is_as_old_as_its_coordinator_at_least_whenever_it_is_read() -> (
    None
):
    async def scenario(node: TransactionNode) -> None:
        who = await opened(node)
        await asyncio.sleep(7.0)
        node.lead(TRANSACTION_STATE_TOPIC, 0, 2)
        node.lead(TRANSACTION_STATE_TOPIC, 0, 1, epoch=2)
        await asyncio.sleep(3.0)
        found = await age(node, who)
        assert found.most_s == inf
        assert 2.9 <= found.least_s <= 3.0

    on_node(scenario, partitions=1)
