"""Real HTTP, asked as the simulated one is: a status and an object, or nobody's answer."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from fencepost.chaos.workloads import admin_doors
from fencepost.chaos.workloads.admin_doors import TOKEN, ask_http
from fencepost.cluster.base.errors import Trouble

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def asked(serve: Serve, *words, **query) -> tuple[int, object]:
    async def run() -> tuple[int, object]:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await ask_http(None, f"127.0.0.1:{port}", 9644, *words, **query)

    return asyncio.run(run())


def saying(data: bytes, heard: list[bytes] | None = None) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = next(int(x[15:]) for x in head.split(b"\r\n") if x.startswith(b"Content-Length:"))
        body = await reader.readexactly(size)
        if heard is not None:
            heard.extend([head, body])
        writer.write(data)
        writer.close()

    return serve


def answer(status: int, body: bytes, *, says: int | None = None) -> bytes:
    size = len(body) if says is None else says
    return f"HTTP/1.1 {status} x\r\nContent-Length: {size}\r\n\r\n".encode() + body


def test_the_status_and_the_object_of_an_answer_come_back_and_who_asks_shows_the_token() -> None:
    heard: list[bytes] = []
    serve = saying(answer(409, b'{"error": "PRODUCER_FENCED"}'), heard)
    found = asked(serve, "POST", "/v1/checks/poll", {"group": "shop"}, limit="7")
    assert found == (409, {"error": "PRODUCER_FENCED"})
    head, body = heard
    assert head.startswith(b"POST /v1/checks/poll?limit=7 HTTP/1.1\r\n")
    assert f"Authorization: Bearer {TOKEN}".encode() in head
    assert json.loads(body) == {"group": "shop"}


@pytest.mark.parametrize("status", [429, 503])
def test_what_is_to_be_asked_again_has_one_status(status) -> None:
    assert asked(saying(answer(status, b"{}")), "GET", "/v1/checks") == (503, {})


@pytest.mark.parametrize(
    "data",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Le", answer(200, b'{"a":', says=50), answer(200, b"<html>")],
)
def test_an_answer_that_was_cut_short_is_none(data) -> None:
    with pytest.raises(Trouble):
        asked(saying(data), "GET", "/v1/checks")


def test_where_nobody_listens_there_is_no_answer() -> None:
    async def run() -> None:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        await ask_http(None, f"127.0.0.1:{port}", 0, "GET", "/")

    with pytest.raises(Trouble, match="GET /"):
        asyncio.run(run())


def test_a_node_that_takes_a_question_and_says_nothing_has_not_answered(monkeypatch) -> None:
    monkeypatch.setattr(admin_doors, "ANSWER_S", 0.1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read()
        except ConnectionResetError:
            pass
        finally:
            writer.transport.abort()

    with pytest.raises(Trouble, match="TimeoutError"):
        asked(serve, "GET", "/v1/checks")


def test_who_gives_up_hangs_up() -> None:
    """A driver that dies with its end on the way: the node hears that nobody waits any more."""
    gone: list[bytes] = []
    heard = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        heard.set()
        try:
            gone.append(await reader.read(1))  # empty: its end has come
        except ConnectionResetError:
            gone.append(b"")
        writer.close()

    async def run() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            asking = asyncio.create_task(
                ask_http(None, f"127.0.0.1:{port}", 0, "GET", "/v1/checks")
            )
            await heard.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            async with asyncio.timeout(30.0):
                while not gone:
                    await asyncio.sleep(0.01)

    asyncio.run(run())
    assert gone == [b""]
