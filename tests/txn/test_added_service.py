"""What a node answers about transaction groups that may not be its own any more."""

import asyncio
from types import SimpleNamespace
from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.transactions.added_service import AddedService
from fencepost.txn.transactions.group_commit_commands import Undecided


def test_what_was_decided_is_not_told_from_memory_that_may_be_of_long_ago() -> None:
    """1. A coordinator sleeps. 2. Another commits number 7. 3. The first wakes, and remembers that 7 is undecided."""
    asked: list[Any] = []

    async def execute(_name: str, command: Any) -> Undecided:
        asked.append(command)
        return Undecided(forgotten=False)

    async def scenario() -> None:
        names = ("next_ticket", "shards", "coordinator_of")
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
