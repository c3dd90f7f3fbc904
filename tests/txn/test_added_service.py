"""What a node answers about transaction groups that may not be its own any more."""

import asyncio
from types import SimpleNamespace
from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TRANSACTION_STATE_TOPIC
from fencepost.txn.transactions.added_config import AddedConfig
from fencepost.txn.transactions.added_service import AddedService
from fencepost.txn.transactions.check_back_commands import HalfAnswered, Verdict
from fencepost.txn.transactions.check_back_machine import CheckBackMachine
from fencepost.txn.transactions.group_commit_commands import (
    GroupEnded,
    Identity,
    Refusal,
    Undecided,
)
from fencepost.txn.transactions.group_commit_machine import GroupCommitMachine
from fencepost.txn.transactions.ids import transactional_partition_key
from transaction_node import ID, TransactionNode, on_node, ready

E = ErrorCode


def test_what_was_decided_is_not_told_from_memory_that_may_be_of_long_ago() -> None:
    """1. A coordinator sleeps. 2. Another commits number 7. 3. The first wakes, and remembers that 7 is undecided."""
    asked: list[Any] = []

    async def execute(_name: str, command: Any) -> Undecided:
        asked.append(command)
        return Undecided(forgotten=False)

    async def scenario() -> None:
        names = ("next_ticket", "ask_all", "coordinator_of")
        transactions: Any = SimpleNamespace(execute=execute, **dict.fromkeys(names))
        env: Any = None
        for is_of_now, told in (
            (False, ErrorCode.not_coordinator),
            (True, Undecided(forgotten=False)),
        ):

            async def confirm(answer: bool = is_of_now) -> bool:
                return answer

            service = AddedService(env, transactions, confirm)
            assert await service.group_decision("g", 7) == told
        assert len(asked) == 1

    asyncio.run(scenario())


class Asked:
    """The added questions of a node that coordinates all ids, and is told that another does when it asks the cluster."""

    def __init__(self, node: TransactionNode) -> None:
        self._node = node
        config = AddedConfig()
        node.service._additions = (
            lambda machine: GroupCommitMachine(config, machine),
            lambda machine: CheckBackMachine(config, machine, transactional_partition_key),
        )
        self.is_deposed = False
        self.confirmed = 0
        self.service = AddedService(node.env, node.service, self._confirm)

    async def _confirm(self) -> bool:
        self.confirmed += 1
        if self.is_deposed:
            for partition in range(3):
                self._node.lead(TRANSACTION_STATE_TOPIC, partition, 2, epoch=1)
        return True


def test_a_coordinator_that_was_deposed_refuses_no_end_that_its_successor_has_decided() -> None:
    """1. A coordinator sleeps. 2. The members begin elsewhere, and another coordinator commits number 7; its answer is lost.
    3. The driver asks again, the one that slept: it has never heard of these transactions."""

    async def scenario(node: TransactionNode) -> None:
        asked = Asked(node)
        await ready(node)
        wrote = {"w1": Identity(900, 0)}
        refusal = await asked.service.end_group("job", 7, commit=True, members=wrote)
        assert isinstance(refusal, Refusal)  # of one that coordinates still
        asked.is_deposed = True
        said = await asked.service.end_group("job", 7, commit=True, members=wrote)
        assert said is E.not_coordinator

    on_node(scenario)


def test_what_was_decided_is_told_without_asking_anybody() -> None:
    async def scenario(node: TransactionNode) -> None:
        asked = Asked(node)
        await ready(node)
        for is_new in (True, False):
            ended = await asked.service.end_group("job", 7, commit=True, members={})
            assert isinstance(ended, GroupEnded)
            assert ended.is_new is is_new
        assert asked.confirmed == 0

    on_node(scenario)


def test_a_coordinator_that_was_deposed_lists_no_members() -> None:
    """One of them may have begun elsewhere since: an end of all that are listed would be one of a part."""

    async def scenario(node: TransactionNode) -> None:
        asked = Asked(node)
        await ready(node)
        asked.is_deposed = True
        view = await asked.service.describe_group("job", decisions_max=0, members_max=10)
        assert view is E.not_coordinator

    on_node(scenario)


def test_a_coordinator_that_was_deposed_does_not_say_that_a_half_message_waits_still() -> None:
    """Its successor may have rolled it back, and the producer would run its local transaction all the same."""

    async def scenario(node: TransactionNode) -> None:
        asked = Asked(node)
        await ready(node)
        who = await node.init()
        assert await node.add(who) is E.none
        its = Identity(who.producer_id, who.producer_epoch)
        for is_new in (True, False):
            half = await asked.service.prepare(ID, its, "h1")
            assert isinstance(half, HalfAnswered)
            assert half.is_new is is_new
        asked.is_deposed = True
        assert await asked.service.prepare(ID, its, "h1") is E.not_coordinator

    on_node(scenario)


def test_a_coordinator_that_was_deposed_knows_of_no_half_message_that_it_is_not_there() -> None:
    async def scenario(node: TransactionNode) -> None:
        asked = Asked(node)
        await ready(node)
        asked.is_deposed = True
        said = await asked.service.answer_check(ID, "h1", Verdict.COMMIT, by="a checker")
        assert said is E.not_coordinator

    on_node(scenario)
