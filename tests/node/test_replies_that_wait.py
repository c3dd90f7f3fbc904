"""How many replies wait in a node's memory behind a write that is not committed yet."""

import asyncio
from typing import Any

import pytest
from fencepost.node.server import connection as connection_module
from fencepost.node.server.connection import PENDING_REPLIES_MAX
from fencepost.node.server.dispatch import Context
from test_connection import Pipe, correlation_ids, heartbeat_frame, produce_frame, serve

ASKED = 300


async def asked_behind_a_write() -> tuple[int, list[int]]:
    """How many requests were handled before the write was answered, and the order of all replies."""
    answers: list[Any] = []
    handled = 0

    def produce(ctx: Context[Any], request: Any, answer: Any) -> None:
        answers.append(answer)

    async def heartbeat(ctx: Context[Any], request: Any) -> dict[str, Any]:
        nonlocal handled
        handled += 1
        return {"error_code": 0}

    pipe = Pipe(produce_frame(0), *map(heartbeat_frame, range(1, ASKED)))
    serving = asyncio.ensure_future(serve(pipe, produce=produce, heartbeat=heartbeat))
    await asyncio.sleep(0.1)
    at_first = handled
    answers[0]({"responses": []})
    await serving
    return at_first, correlation_ids(pipe)


def test_no_more_replies_wait_behind_a_write_than_a_connection_may_keep() -> None:
    """While a follower is away a write waits for as long as its client says: gigabytes of settings were kept behind it."""
    at_first, told = asyncio.run(asked_behind_a_write())
    assert at_first < PENDING_REPLIES_MAX
    assert told == list(range(ASKED))


def test_large_replies_that_wait_behind_a_write_hold_the_next_request_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "HELD_BYTES_MAX", 100)  # some six of them
    at_first, told = asyncio.run(asked_behind_a_write())
    assert 5 <= at_first <= 10
    assert told == list(range(ASKED))
