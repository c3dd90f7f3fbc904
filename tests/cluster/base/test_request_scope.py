"""Whose request code runs for."""

import asyncio

import pytest
from fencepost.cluster.base.request_scope import (
    RequestScope,
    as_header,
    current_request_id,
    enter_scope,
    from_header,
    joined,
    scope_of,
)
from fencepost.cluster.base.tasks import TaskOwner


def _die(reason: BaseException) -> None:
    raise reason


def test_a_long_lived_task_does_not_inherit_the_request_that_started_it() -> None:
    seen: list[str | None] = []

    async def look() -> None:
        seen.append(current_request_id())

    async def scenario() -> None:
        enter_scope(scope_of("1-2-3"))
        await look()
        await TaskOwner(_die).spawn(look(), name="flusher")
        async with asyncio.TaskGroup() as group:
            group.create_task(look())

    asyncio.run(scenario())
    assert seen == ["1-2-3", None, "1-2-3"]


def test_a_connections_scope_names_the_request_that_it_is_at() -> None:
    scope = RequestScope("2-17")
    scope.correlation_id = 5
    first = scope.copy()
    scope.correlation_id = 6
    assert (first.request_id, scope.request_id) == ("2-17-5", "2-17-6")


def test_time_spent_waiting_for_peers_is_the_requests_own() -> None:
    scope = RequestScope("2-17")
    scope.correlation_id = 5
    scope.waited_for_peer(0.2)
    scope.waited_for_peer(0.3)
    assert scope.peers_s == pytest.approx(0.5)
    scope.correlation_id = 6
    assert scope.peers_s == 0.0


def test_requests_that_travel_together_are_all_named_each_once() -> None:
    scopes = [scope_of("1-1-1"), scope_of("1-2-9", is_told=True), scope_of("1-1-1")]
    both = joined(scopes)
    assert both is not None
    assert (both.request_id, both.is_told) == ("1-1-1,1-2-9", True)
    assert joined([]) is None


def test_a_scope_goes_to_another_node_and_back() -> None:
    there = from_header(as_header(scope_of("1-2-3", is_told=True, trace="00-ab-cd-01")))
    assert there is not None
    assert (there.request_id, there.is_told, there.trace) == ("1-2-3", True, "00-ab-cd-01")


@pytest.mark.parametrize("value", [None, "1-2-3", [], [1, True, ""], ["1", "yes", ""], {"a": 1}])
def test_what_is_no_scope_is_none(value: object) -> None:
    assert from_header(value) is None


def test_a_peers_id_can_not_break_a_line_nor_fill_it() -> None:
    scope = from_header(["x\n\x1b" + "y" * 10_000, False, ""])
    assert scope is not None and scope.request_id == "x" + "y" * 197
