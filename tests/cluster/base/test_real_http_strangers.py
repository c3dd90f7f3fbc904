"""The real HTTP door and strangers: what they may have it hold, and what they may have it say."""

import asyncio
import json
import logging
from typing import Any

import pytest
import uvloop
from fencepost.cluster.base import complaints, real_http
from fencepost.cluster.base.ports import HttpReply, HttpRequest
from fencepost.cluster.base.real_env import RealEnv
from http_door import BODY_MAX, SOON_S, at_a_door, say

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
        monkeypatch.setattr(complaints, "COMPLAINT_EVERY_S", 0.0)
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


async def begun(port: int, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that has sent this, and is left open."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    await writer.drain()
    return reader, writer


async def is_hung_up_on(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(SOON_S):
            while await reader.read(1 << 16):
                pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


def test_all_bodies_together_are_bounded(monkeypatch) -> None:
    """Each of them is within its limit; 4,000 of a megabyte are not within the node's memory."""
    monkeypatch.setattr(real_http, "BODIES_BYTES_MAX", 3 * BODY_MAX)
    monkeypatch.setattr(real_http, "REQUEST_S", 10 * SOON_S)  # that it is not whole is not why
    head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % BODY_MAX
    whole = head + b"x" * BODY_MAX

    async def scenario(env: RealEnv, port: int) -> None:
        # One a turn: what it has not read of a held one when a whole one comes may be what it refuses, not that.
        held = []
        async with asyncio.timeout(SOON_S):
            while not (answer := await say(port, whole)).startswith(b"HTTP/1.1 503 "):
                held.append(await begun(port, whole[:-1]))
        fields = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert "bodies" in fields["message"] and fields["next_step"]
        for _, writer in held:
            writer.close()
        async with asyncio.timeout(SOON_S):
            while b" 200 OK" not in await say(port, whole):
                await asyncio.sleep(0.01)

    at_a_door(scenario)


@pytest.mark.parametrize("run_loop", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_head_without_end_is_hung_up_on(monkeypatch, run_loop) -> None:
    """Aiohttp takes a megabyte of one: 128 lines of 8 KiB."""
    monkeypatch.setattr(real_http, "REQUEST_S", 10 * SOON_S)  # that it is not whole is not why
    line = b"a: " + b"b" * 8_000 + b"\r\n"

    async def scenario(env: RealEnv, port: int) -> None:
        reader, _ = await begun(port, b"GET / HTTP/1.1\r\nHost: h\r\n" + line * 20)
        assert await is_hung_up_on(reader)
        assert b" 200 OK" in await say(port, b"GET / HTTP/1.1\r\nHost: h\r\n" + line * 2 + b"\r\n")

    at_a_door(scenario, run_loop=run_loop)


@pytest.mark.parametrize("run_loop", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_who_sends_much_ahead_of_the_answers_is_hung_up_on(run_loop) -> None:
    """Aiohttp takes 32 requests, each with a megabyte of head and 256 KiB of body."""
    ahead = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 20000\r\n\r\n" + b"x" * 20_000

    async def wait(request: HttpRequest) -> HttpReply:
        await asyncio.Event().wait()
        raise AssertionError

    async def scenario(env: RealEnv, port: int) -> None:
        reader, writer = await begun(port, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        for _ in range(20):
            if not writer.transport.is_closing():
                writer.write(ahead)
            await asyncio.sleep(0.01)
        assert await is_hung_up_on(reader)

    at_a_door(scenario, wait, run_loop)


def test_requests_one_after_the_other_are_never_too_much() -> None:
    """What was answered counts no more."""
    request = b"POST / HTTP/1.1\r\nHost: h\r\na: %s\r\nContent-Length: 900\r\n\r\n%s"

    async def scenario(env: RealEnv, port: int) -> None:
        reader, writer = await begun(port, b"")
        for _ in range(30):
            writer.write(request % (b"b" * 8_000, b"x" * 900))
            assert b" 200 OK" in await reader.readuntil(b"]")
        writer.close()

    at_a_door(scenario)
