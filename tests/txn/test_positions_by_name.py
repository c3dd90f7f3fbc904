"""A position by name, while the quorum is asked whom the name means now: what waits for that answer, how long, and what does not."""

import asyncio
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from support.group_node import GroupNode, on_node, ready
from test_group_service_offsets import committed_in_a_transaction

E = ErrorCode
APIS = pytest.mark.parametrize("api", ["offset_commit", "txn_offset_commit"])
COMMIT_TIMEOUT_S = 5.0  # offsets.commit.timeout.ms


class Quorum:
    """Which says nothing until it `says`."""

    def __init__(self, node: GroupNode) -> None:
        self.asked = 0
        self.given_up = 0
        self.says = asyncio.Event()
        node.service._confirm_image = self.confirm

    async def confirm(self) -> bool:
        self.asked += 1
        try:
            await self.says.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        return True


async def commit(node: GroupNode, api: str, **more: Any) -> ErrorCode:
    if api == "offset_commit":
        reply = await node.commit(7, **more)
    else:
        reply = await node.ask(api, 3, **committed_in_a_transaction(7, **more))
    code: ErrorCode = reply.topics[0].partitions[0].error_code
    return code


@APIS
def test_is_answered_in_the_time_of_a_commit_though_nobody_can_say(api: str) -> None:
    """The member's heartbeats wait behind it on its connection: held for longer, the member would be given up for dead."""

    async def scenario(node: GroupNode) -> None:
        await ready(node)
        quorum = Quorum(node)
        async with asyncio.timeout(COMMIT_TIMEOUT_S + 0.1):
            assert await commit(node, api) is E.coordinator_load_in_progress
        await asyncio.sleep(0)
        assert (quorum.asked, quorum.given_up) == (1, 1)

    on_node(scenario)


@APIS
def test_is_asked_about_while_it_is_written(api: str) -> None:
    """What its client knew it knew before its request came: two waits that need not follow each other."""

    async def scenario(node: GroupNode) -> None:
        await ready(node)
        quorum = Quorum(node)
        for log in node.logs.values():
            log.commits_at_once = False
        waiting = asyncio.ensure_future(commit(node, api))
        await asyncio.sleep(0.1)
        assert quorum.asked == 1
        quorum.says.set()
        await asyncio.sleep(0.1)
        assert not waiting.done()
        for log in node.logs.values():
            log.commit()
        assert await waiting is E.none

    on_node(scenario)


@APIS
def test_that_is_refused_waits_for_nobody(api: str) -> None:
    """Nor would its member hear that it is none any more, were it told to come again instead."""

    async def scenario(node: GroupNode) -> None:
        await ready(node)
        quorum = Quorum(node)
        more: dict[str, Any] = {"generation_id": 3, "member_id": "stranger"}
        if api == "offset_commit":
            more = {"generation_id_or_member_epoch": 3, "member_id": "stranger", "version": 8}
        async with asyncio.timeout(0.1):
            assert await commit(node, api, **more) is E.illegal_generation
        await asyncio.sleep(0)
        assert quorum.given_up == quorum.asked

    on_node(scenario)


@APIS
def test_whose_client_goes_away_has_nobody_asked_any_more(api: str) -> None:
    async def scenario(node: GroupNode) -> None:
        await ready(node)
        quorum = Quorum(node)
        waiting = asyncio.ensure_future(commit(node, api))
        await asyncio.sleep(0.1)
        waiting.cancel()
        await asyncio.sleep(0.1)
        assert waiting.cancelled()
        assert (quorum.asked, quorum.given_up) == (1, 1)

    on_node(scenario)
