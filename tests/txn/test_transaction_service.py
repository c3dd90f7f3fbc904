"""Transactions as a handler asks for them: which node answers for one, what it may not say when deposed, and what it shows."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TRANSACTION_STATE_TOPIC
from fencepost.txn.transactions.commands import FindOpened
from fencepost.txn.transactions.ids import transactional_partition_key
from transaction_node import ID, TransactionNode, on_node, ready

E = ErrorCode

# -- where a transactional id is ---------------------------------------------------------------------


def test_the_first_who_asks_for_a_coordinator_has_the_topic_made_once() -> None:
    async def scenario(node: TransactionNode) -> None:
        found = await asyncio.gather(*(node.service.coordinator_of(f"t{i}") for i in range(5)))
        assert found == [1] * 5
        assert node.created == 1
        assert (await node.init()).error_code is E.none

    on_node(scenario)


def test_only_the_leader_of_its_partition_answers_for_a_transactional_id() -> None:
    async def scenario(node: TransactionNode) -> None:
        assert (await node.init()).error_code is E.not_coordinator
        await ready(node)
        assert (await node.init()).error_code is E.none
        for partition in range(3):
            node.lead(TRANSACTION_STATE_TOPIC, partition, 2)
        assert (await node.init()).error_code is E.not_coordinator
        assert await node.service.coordinator_of(ID) == 2

    on_node(scenario)


def test_while_the_topic_can_not_be_made_there_is_no_coordinator() -> None:
    async def scenario(node: TransactionNode) -> None:
        node.create_fails = True
        assert await node.service.coordinator_of(ID) is E.coordinator_not_available
        node.create_fails = False
        assert await node.service.coordinator_of(ID) == 1

    on_node(scenario)


@pytest.mark.parametrize(
    ("transactional_id", "key"),
    [
        ("pay", "pay"),
        ("job::w1", "job"),
        ("job::w1::x", "job"),
        ("::w1", "::w1"),
        ("job::", "job::"),
        ("::a::b", "::a::b"),
        ("a:b", "a:b"),
        ("", ""),
    ],
)
def test_the_members_of_a_transaction_group_live_together(transactional_id: str, key: str) -> None:
    assert transactional_partition_key(transactional_id) == key


def _deposed(node: TransactionNode, *, back: bool) -> None:
    """Another leads all ids: what it was told since is not here. `back`: this node does again, with what is in the log."""
    for partition in range(3):
        node.lead(TRANSACTION_STATE_TOPIC, partition, 2, epoch=1)
        if back:
            node.lead(TRANSACTION_STATE_TOPIC, partition, 1, epoch=2)


@pytest.mark.parametrize("becomes", ["deposed", "deposed and back", "not known"])
def test_a_coordinator_that_was_deposed_ends_no_producer(becomes: str) -> None:
    """It refuses by what it has in memory, and learns only then that another took over: a partition may have been added there."""

    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()

        async def confirm() -> bool:
            if becomes != "not known":
                _deposed(node, back=becomes == "deposed and back")
            return becomes != "not known"

        node.service._confirm_image = confirm
        assert (await node.end(who, version=5)).error_code is E.not_coordinator

    on_node(scenario)


def test_a_coordinator_that_was_deposed_says_of_no_transaction_that_it_is_not_open() -> None:
    """aiokafka ends on it. The next one may have been opened at its successor."""

    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()
        told = {}
        for is_of_now in (True, False):

            async def confirm(answer: bool = is_of_now) -> bool:
                return answer

            node.service._confirm_image = confirm
            identity = who.producer_id, who.producer_epoch
            told[is_of_now] = await node.service.age(FindOpened(ID, *identity))
        assert told == {True: E.invalid_producer_epoch, False: E.not_coordinator}

    on_node(scenario)


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_coordinator_that_was_deposed_takes_no_commit_for_the_last_one_s(commit: bool) -> None:
    """Up to EndTxn 4 both have the same epoch: the next transaction was opened where another coordinates by now, and its
    end, which comes here, looks like the last one's, sent again."""

    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()
        assert await node.add(who) is E.none
        assert (await node.end(who, commit=commit, version=4)).error_code is E.none

        async def confirm() -> bool:
            _deposed(node, back=False)
            return True

        node.service._confirm_image = confirm
        assert (await node.end(who, commit=commit, version=4)).error_code is E.not_coordinator

    on_node(scenario)


def test_a_coordinator_that_was_deposed_says_of_nothing_that_it_was_added_before() -> None:
    """It may have been part of the last transaction, which its successor has ended."""

    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()
        assert await node.add(who) is E.none

        async def confirm() -> bool:
            _deposed(node, back=False)
            return True

        node.service._confirm_image = confirm
        assert await node.add(who) is E.not_coordinator

    on_node(scenario)


def test_what_was_done_before_is_confirmed_and_said_again() -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()
        for _ in range(2):
            assert await node.add(who) is E.none
        assert node.confirmed == 1
        for _ in range(2):
            assert (await node.end(who, version=4)).error_code is E.none
        assert node.confirmed == 2

    on_node(scenario)


def test_only_what_ends_a_producer_is_confirmed_first() -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()
        assert await node.add(who) is E.none
        assert (await node.end(who)).error_code is E.none
        assert node.confirmed == 0
        old = SimpleNamespace(producer_id=who.producer_id, producer_epoch=who.producer_epoch - 1)
        assert await node.add(old) is E.producer_fenced
        assert (await node.end(old)).error_code is E.producer_fenced
        stranger = SimpleNamespace(producer_id=who.producer_id + 1, producer_epoch=0)
        assert await node.add(stranger) is E.invalid_producer_id_mapping
        assert node.confirmed == 3

    on_node(scenario)


# -- looking at transactions -------------------------------------------------------------------------


def test_transactions_are_described_and_what_is_not_known_is_said() -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        who = await node.init()
        await node.add(who)
        reply = await node.ask("describe_transactions", 0, transactional_ids=[ID, "nobody", ""])
        known, nobody, empty = reply.transaction_states
        assert (known.transaction_state, known.producer_id, known.producer_epoch) == (
            "Ongoing",
            101,
            0,
        )
        assert known.topics[0].topic == "t"
        assert nobody.error_code is E.transactional_id_not_found
        assert empty.error_code is E.invalid_request

    on_node(scenario)


def test_a_transaction_that_is_asked_for_again_is_described_once() -> None:
    """It may have 10,000 partitions. What is refused is told as often as it is asked for, as by Kafka 4.3."""

    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        await node.add(await node.init())
        asked = ["nobody", ID, "", ID] * 2
        reply = await node.ask("describe_transactions", 0, transactional_ids=asked)
        told = [each.transactional_id for each in reply.transaction_states]
        assert told == ["nobody", ID, "", "nobody", ""]

    on_node(scenario)


def test_transactions_are_listed_by_state_producer_duration_and_pattern() -> None:
    async def scenario(node: TransactionNode) -> None:
        await ready(node)
        ids = ["a1", "a2", "größe"]
        for each in ids:
            await node.init(each)
        await node.init()
        who = SimpleNamespace(producer_id=104, producer_epoch=0)
        await node.add(who)

        async def listed(version: int = 2, **filters: Any) -> list[str]:
            reply = await node.ask("list_transactions", version, **filters)
            assert reply.error_code is E.none
            return sorted(row.transactional_id for row in reply.transaction_states)

        assert await listed(0) == sorted([*ids, ID])
        assert await listed(state_filters=["Ongoing"]) == [ID]
        assert await listed(producer_id_filters=[101, 102]) == ["a1", "a2"]
        assert await listed(transactional_id_pattern="a.*") == ["a1", "a2"]
        assert await listed(transactional_id_pattern="gr..e") == ["größe"]
        assert ID not in await listed(duration_filter=5_000)
        await asyncio.sleep(6)
        assert ID in await listed(duration_filter=5_000)
        reply = await node.ask("list_transactions", 2, state_filters=["Sleeping"])
        assert (reply.unknown_state_filters, reply.transaction_states) == (("Sleeping",), ())
        reply = await node.ask("list_transactions", 2, transactional_id_pattern="(")
        assert reply.error_code is E.invalid_regular_expression

    on_node(scenario)
