"""The last pass of real runs with tables, topics that come and go, and settings that change."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from fencepost.chaos.workloads.cluster_client import Leader
from fencepost.chaos.workloads.hosted_final import FinalPass
from fencepost.cluster.base.errors import ErrorCode


class Ends:
    """Of one node: what ListOffsets says there, or that it does not lead."""

    def __init__(self, error: ErrorCode) -> None:
        self.answer = SimpleNamespace(error_code=error, offset=405)

    async def request(self, *_: object, **_more: object) -> Any:
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[self.answer])])


def test_the_last_pass_looks_for_who_leads_now_when_the_one_it_knows_does_not() -> None:
    """The lead moved while a transaction was open: the former leader was asked again and again, until the time was over."""
    old, new = (
        Leader(node, epoch, UUID(int=1), cast("Any", Ends(error)))
        for node, epoch, error in (
            (4, 4, ErrorCode.not_leader_or_follower),
            (1, 5, ErrorCode.none),
        )
    )
    known = [new, old]

    async def leader_now(*_: object) -> Leader:
        return known[-1]

    def forget(_topic: str, _partition: int, leader: Leader) -> None:
        assert leader is known.pop()

    client: Any = SimpleNamespace(leader_now=leader_now, forget=forget)
    last = object.__new__(FinalPass)
    last.client = client

    async def looks() -> list[bool]:
        return [await last._is_stable(("table", 7)) for _ in range(2)]

    assert asyncio.run(looks()) == [False, True]
