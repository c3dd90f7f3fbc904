"""The real HTTP door and strangers: what they may have it hold, and what they may have it say."""

import json
import logging
from typing import Any

import pytest
from fencepost.cluster.base import real_http
from fencepost.cluster.base.real_env import RealEnv
from http_door import at_a_door, say

# With each aiohttp logged a traceback, and answered in words of its own.
NOT_UNDERSTOOD = [
    b"GARBAGE\r\n\r\n",
    b"GET http://h:99999/ HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET http://[::1/v1 HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: h\r\na: " + b"b" * 10_000 + b"\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nab\r\n",
    b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\nx\r\n",
]
NAMES = ["line", "port", "target", "hosts", "header", "chunk", "chunks"]


class Said:
    """A log that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def warn(self, event: str, **fields: object) -> None:
        self.events.append((event, fields))

    debug = info = error = warn


@pytest.mark.parametrize("data", NOT_UNDERSTOOD, ids=NAMES)
def test_what_is_not_http_is_answered_in_json_and_costs_a_line_now_and_then(
    capfd, caplog, monkeypatch, data
) -> None:
    said = Said()

    async def scenario(env: RealEnv, port: int) -> None:
        for _ in range(5):
            head, _, body = (await say(port, data)).partition(b"\r\n\r\n")
            assert head.split(b" ")[1] == b"400"
            assert b"application/json" in head
            fields = json.loads(body)
            assert fields["error"] == "INVALID_REQUEST" and fields["next_step"]
            assert len(body) < 500
        monkeypatch.setattr(real_http, "COMPLAINT_EVERY_S", 0.0)
        await say(port, data)

    with caplog.at_level(logging.DEBUG, "aiohttp"):
        at_a_door(scenario, log=said)
    assert not caplog.records
    assert capfd.readouterr().err == ""
    assert [event for event, _ in said.events] == ["http_request_refused"] * 2
    (_, first), (_, second) = said.events
    assert first["cause"] and "more_like_it" not in first
    assert "127.0.0.1" in first["remote"]
    assert second["more_like_it"] == 4
    assert all(len(json.dumps(fields)) < 500 for _, fields in said.events)
