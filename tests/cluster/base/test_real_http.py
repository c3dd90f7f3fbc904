"""The real HTTP door: what aiohttp reads off our sockets, and what strangers try with it."""

import asyncio
import contextlib
import errno
import gzip
import importlib
import json
import socket
from types import ModuleType

import pytest
import uvloop
from aiohttp.http_parser import DeflateBuffer
from fencepost.cluster.base import real_http
from fencepost.cluster.base.ports import HttpReply, HttpRequest
from fencepost.cluster.base.real_env import RealEnv, open_env
from http_door import BODY_MAX, SOON_S, at_a_door, say


def test_what_a_client_shows_and_which_answers_it_takes_arrive() -> None:
    """Without them a door could ask nobody for his token, nor tell OpenMetrics."""

    async def shown(request: HttpRequest) -> HttpReply:
        said = [request.host, request.origin, request.accept, request.authorization]
        return HttpReply(200, json.dumps(said).encode())

    async def scenario(env: RealEnv, port: int) -> None:
        heard = await say(
            port,
            b"GET / HTTP/1.1\r\nHost: h\r\nOrigin: http://o\r\nAccept: text/plain\r\n"
            b"Authorization: Bearer t\r\n\r\n",
        )
        said = json.loads(heard.split(b"\r\n\r\n")[1])
        assert said == ["h", "http://o", "text/plain", "Bearer t"]

    at_a_door(scenario, shown)


def test_a_node_without_descriptors_outlives_the_first_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That one has the door's code read from the disk."""
    load = importlib.import_module
    left = [OSError(errno.EMFILE, "Too many open files")]

    def loaded(name: str) -> ModuleType:
        if left:
            raise left.pop()
        return load(name)

    monkeypatch.setattr(importlib, "import_module", loaded)

    async def scenario(env: RealEnv, port: int) -> None:
        died: list[BaseException] = []
        monkeypatch.setattr(env.tasks, "_die", died.append)
        assert await say(port, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n") == b""
        assert b" 200 " in await say(port, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        assert not died

    at_a_door(scenario)


def test_a_request_arrives_with_its_path_query_and_body() -> None:
    async def scenario(env: RealEnv, port: int) -> None:
        heard = await say(
            port, b"POST /a%2Fb/c?x=1&y=%20 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}"
        )
        assert heard.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"application/json" in heard
        expected = ["POST", "/a%2Fb/c", {"x": "1", "y": " "}, "{}"]
        assert json.loads(heard.split(b"\r\n\r\n")[1]) == expected

    at_a_door(scenario)


@pytest.mark.parametrize(
    "head",
    [
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9999999\r\n\r\n" + b"x" * 2_000,
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + b"x" * 2_000,
    ],
)
def test_a_body_over_the_limit_is_refused_before_anybody_hears_of_it(head) -> None:
    async def never(request: HttpRequest) -> HttpReply:
        raise AssertionError("it was handed on")

    async def scenario(env: RealEnv, port: int) -> None:
        assert b" 413 " in await say(port, head)

    at_a_door(scenario, never)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\x03" * 100,
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET " + b"/x" * 20_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 50_000 + b"\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Encoding: gzip\r\n\r\nabcde",
    ],
    ids=["binary", "version", "path", "headers", "length", "encoding"],
)
def test_nonsense_is_refused_and_the_door_goes_on(data) -> None:
    async def scenario(env: RealEnv, port: int) -> None:
        heard = await say(port, data)
        assert not heard or heard.startswith(b"HTTP/1.")
        assert b"200 OK" in await say(port, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")

    at_a_door(scenario)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "x"])
def test_a_body_that_is_packed_is_refused_and_nothing_of_it_unpacked(monkeypatch, coding) -> None:
    """1 MB becomes 1 GB: that took the node's loop 2.3 s, in one request of anybody's, and went on after the 413."""
    unpacked: list[bytes] = []
    monkeypatch.setattr(DeflateBuffer, "feed_data", lambda _, data, *__: unpacked.append(data))
    packed = gzip.compress(b"x" * 100 * BODY_MAX)
    head = (
        f"POST / HTTP/1.1\r\nHost: h\r\nContent-Encoding: {coding}\r\nContent-Length: {len(packed)}"
    )

    async def scenario(env: RealEnv, port: int) -> None:
        heard = await say(port, f"{head}\r\n\r\n".encode() + packed)
        assert heard.startswith(b"HTTP/1.1 415 ")
        said = json.loads(heard.split(b"\r\n\r\n")[1])
        assert said["error"] == "INVALID_REQUEST" and said["next_step"]
        assert unpacked == []

    async def nobody(request: HttpRequest) -> HttpReply:
        return HttpReply(200, b"it was handed on")

    at_a_door(scenario, nobody)


def test_a_client_that_goes_on_sending_after_its_refusal_is_hung_up_on(monkeypatch) -> None:
    monkeypatch.setattr(real_http, "LINGER_S", 0.1)

    async def scenario(env: RealEnv, port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 999999999\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(SOON_S):
                while True:
                    writer.write(b"x" * BODY_MAX)
                    await writer.drain()
                    await asyncio.sleep(0.01)
        writer.close()

    at_a_door(scenario)


def test_a_body_that_does_not_come_is_hung_up_on(monkeypatch) -> None:
    monkeypatch.setattr(real_http, "REQUEST_S", 0.05)

    async def scenario(env: RealEnv, port: int) -> None:
        for begun in (
            b"",
            b"GET / HT",
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nab",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(begun)
            while await reader.read(1 << 16):
                pass
            writer.close()

    at_a_door(scenario)


def deaf(port: int) -> socket.socket:
    """A client that reads nothing, and whose kernel takes next to nothing for it."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    return client


def kernels_room() -> int:
    """How many bytes it takes for a client that is deaf."""
    with socket.create_server(("127.0.0.1", 0)) as door, deaf(door.getsockname()[1]):
        accepted, _ = door.accept()
        accepted.setblocking(False)
        taken = 0
        with accepted, contextlib.suppress(BlockingIOError):
            while True:
                taken += accepted.send(b"x" * 1_000_000)
    return taken


async def all_hung_up_on(env: RealEnv) -> None:
    while env.net.connections:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("run_loop", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_client_that_reads_no_answer_is_hung_up_on(monkeypatch, run_loop) -> None:
    """4,000 that sent 200 times GET /metrics and read nothing kept everybody else out, for ever."""
    monkeypatch.setattr(real_http, "REPLY_S", 0.1)

    async def large(request: HttpRequest) -> HttpReply:
        return HttpReply(200, b"x" * 1_000_000)

    async def scenario(env: RealEnv, port: int) -> None:
        client = deaf(port)
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n" * 200)
        try:
            while not env.net.connections:
                await asyncio.sleep(0.01)
            async with asyncio.timeout(SOON_S):
                await all_hung_up_on(env)
        finally:
            client.close()

    at_a_door(scenario, large, run_loop)


@pytest.mark.parametrize("run_loop", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_what_is_left_of_a_last_answer_holds_no_connection(monkeypatch, run_loop) -> None:
    """Less than 64 KiB: aiohttp is done with it, and its transport waits until it has been read."""
    monkeypatch.setattr(real_http, "REPLY_S", 0.1)

    async def sized(request: HttpRequest) -> HttpReply:
        return HttpReply(200, b"x" * int(request.query["size"]))

    async def scenario(env: RealEnv, port: int) -> None:
        room = kernels_room()
        sizes = range(room - 100_000, room + 200_000, 40_000)  # one is a little too large for it
        clients = [deaf(port) for _ in sizes]
        try:
            for size, client in zip(sizes, clients, strict=True):
                asked = b"GET /?size=%d HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
                client.sendall(asked % size)
            while not env.net.connections:
                await asyncio.sleep(0.01)
            async with asyncio.timeout(SOON_S):
                await all_hung_up_on(env)
        finally:
            for client in clients:
                client.close()

    at_a_door(scenario, sized, run_loop)


@pytest.mark.slow
def test_a_client_that_reads_slowly_and_asks_again_is_served(monkeypatch) -> None:
    """The deadline is each answer's, not the connection's."""
    monkeypatch.setattr(real_http, "REPLY_S", 0.5)

    async def scenario(env: RealEnv, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(4):
            writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            assert b"200 OK" in await reader.readuntil(b"]")
            await asyncio.sleep(0.2)
        writer.close()

    at_a_door(scenario)


async def served(port: int, data: bytes, *, source: str = "127.0.0.1") -> None:
    """At once, or when a place has come back."""
    async with asyncio.timeout(SOON_S):
        while b"200 OK" not in await say(port, data, source=source):
            await asyncio.sleep(0.01)


def test_one_address_can_not_have_every_place(monkeypatch) -> None:
    """Who asks whether the node lives, from another, finds one; the places come back."""
    monkeypatch.setattr(real_http, "PER_ADDRESS_MAX", 2)

    async def scenario(env: RealEnv, port: int) -> None:
        get = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for reader, writer in held:  # whoever was answered has a place
            writer.write(get)
            assert b"200 OK" in await reader.readuntil(b"]")
        assert await say(port, get) == b""
        await served(port, get, source="127.0.0.2")
        for _, writer in held:
            writer.close()
        await served(port, get)

    at_a_door(scenario)


def test_a_client_that_hangs_up_ends_its_request() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def wait(request: HttpRequest) -> HttpReply:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return HttpReply(200, b"")

    async def scenario(env: RealEnv, port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        await began.wait()
        writer.close()
        await ended.wait()

    at_a_door(scenario, wait)


def test_a_handler_that_raises_ends_the_node(monkeypatch) -> None:
    reasons: list[BaseException] = []

    async def broken(request: HttpRequest) -> HttpReply:
        raise AssertionError("broken")

    async def run() -> None:
        async with open_env() as env:
            died = asyncio.Event()

            def die(reason: BaseException) -> None:
                reasons.append(reason)
                died.set()

            monkeypatch.setattr(env.tasks, "_die", die)
            door = await env.net.listen_http("127.0.0.1", 0, broken, body_bytes_max=BODY_MAX)
            _, writer = await asyncio.open_connection("127.0.0.1", door.address[1])
            writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            async with asyncio.timeout(SOON_S):
                await died.wait()
            writer.close()
            await door.close()

    asyncio.run(run())
    assert [str(each) for each in reasons] == ["broken"]
