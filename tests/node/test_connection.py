"""The order of a connection's replies, and what ends a connection."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ConnectionLost, FrameRefused
from fencepost.cluster.base.log import StreamLog
from fencepost.cluster.base.ports import Connection, Env
from fencepost.cluster.base.real_env import RealEnv, open_env
from fencepost.cluster.wire.api import ApiKey, encode_request
from fencepost.cluster.wire.render import render_request
from fencepost.node.server import connection as connection_module
from fencepost.node.server.connection import ClientConnection
from fencepost.node.server.dispatch import Api, Context, Dispatcher

HEARTBEAT, PRODUCE = ApiKey.heartbeat, ApiKey.produce


class Pipe:
    """A connection whose frames are given and whose writes are kept."""

    remote = ("127.0.0.1", 4711)
    peer_certificate = None

    def __init__(self, *frames: bytes) -> None:
        self.frames = list(frames)
        self.written: list[bytes] = []
        self.closed = asyncio.Event()
        self.closes = 0

    async def read_frame(self, size_max: int) -> memoryview | None:
        if not self.frames:
            return None
        frame = self.frames.pop(0)
        if len(frame) > size_max:
            raise FrameRefused(f"a frame of {len(frame)} bytes")
        return memoryview(frame)

    def write(self, chunks: list[Any]) -> None:
        self.written.append(b"".join(bytes(chunk) for chunk in chunks))

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        self.closes += 1

    abort = close

    async def wait_closed(self) -> None:
        await self.closed.wait()


def produce_frame(correlation_id: int) -> bytes:
    return frame(PRODUCE, 9, correlation_id, acks=-1, timeout=1000, topic_data=[])


def heartbeat_frame(correlation_id: int) -> bytes:
    return frame(HEARTBEAT, 4, correlation_id, group_id="g", generation_id=1, member_id="m")


def frame(key: ApiKey, version: int, correlation_id: int, **fields: Any) -> bytes:
    body = render_request(key, version, fields)
    chunks = encode_request(key, version, correlation_id, "tests", body)
    return b"".join(bytes(chunk) for chunk in chunks)[4:]


def correlation_ids(pipe: Pipe) -> list[int]:
    return [int.from_bytes(reply[4:8], "big") for reply in pipe.written]


Handle = Callable[[Context[Any], Any], Awaitable[dict[str, Any] | None]]


async def serve(pipe: Pipe, **handlers: Any) -> RealEnv:
    env = RealEnv()
    apis = {}
    if "produce" in handlers:
        apis[PRODUCE] = Api(
            key=PRODUCE, name="produce", min_version=3, max_version=9, advertised_min=0,
            begin=handlers["produce"],
        )  # fmt: skip
    if "heartbeat" in handlers:
        apis[HEARTBEAT] = Api(
            key=HEARTBEAT, name="heartbeat", min_version=0, max_version=4, advertised_min=0,
            handle=handlers["heartbeat"], parks=True,
        )  # fmt: skip
    dispatcher = Dispatcher(env.clock, apis, None, request_bytes_max=1000)
    await ClientConnection(env, pipe, dispatcher, "PLAINTEXT").serve()
    return env


def test_replies_keep_request_order_when_the_second_is_ready_first() -> None:
    async def run() -> tuple[list[int], int]:
        answers: list[Any] = []
        written_before_the_first = -1

        def produce(ctx: Context[Any], request: Any, answer: Any) -> None:
            nonlocal written_before_the_first
            answers.append(answer)
            if len(answers) == 3:
                answers[1]({"responses": []})
                answers[2]({"responses": []})
                written_before_the_first = len(pipe.written)
                answers[0]({"responses": []})

        pipe = Pipe(produce_frame(1), produce_frame(2), produce_frame(3))
        await serve(pipe, produce=produce)
        return correlation_ids(pipe), written_before_the_first

    assert asyncio.run(run()) == ([1, 2, 3], 0)


def test_a_reply_that_is_ready_waits_for_the_produce_before_it() -> None:
    async def run() -> tuple[list[int], list[str]]:
        log: list[str] = []
        answers: list[Any] = []

        def produce(ctx: Context[Any], request: Any, answer: Any) -> None:
            answers.append(answer)

        async def heartbeat(ctx: Context[Any], request: Any) -> dict[str, Any]:
            log.append("heartbeat")
            asyncio.get_running_loop().call_later(0.01, late)
            return {"error_code": 0}

        def late() -> None:
            log.append(f"{len(pipe.written)} written")
            answers[0]({"responses": []})

        pipe = Pipe(produce_frame(1), heartbeat_frame(2))
        await serve(pipe, produce=produce, heartbeat=heartbeat)
        return correlation_ids(pipe), log

    assert asyncio.run(run()) == ([1, 2], ["heartbeat", "0 written"])


def test_a_produce_whose_client_has_gone_is_taken_back() -> None:
    async def run() -> list[str]:
        log: list[str] = []

        def produce(ctx: Context[Any], request: Any, answer: Any) -> Any:
            return lambda: log.append("taken back")

        async def gone(size_max: int) -> memoryview | None:
            if pipe.frames:
                return memoryview(pipe.frames.pop(0))
            raise ConnectionLost("the client went away")

        pipe = Pipe(produce_frame(1), produce_frame(2))
        pipe.read_frame = gone  # type: ignore[method-assign]
        await serve(pipe, produce=produce)
        return log

    assert asyncio.run(run()) == ["taken back", "taken back"]


def test_a_produce_reply_that_can_not_be_said_ends_the_connection_and_what_waits_behind_it() -> (
    None
):
    async def run() -> tuple[list[bytes], list[str]]:
        log: list[str] = []
        answers: list[Any] = []

        def produce(ctx: Context[Any], request: Any, answer: Any) -> Any:
            answers.append(answer)
            if len(answers) == 2:
                answers[0]({"no_such_field": 1})
            return lambda: log.append("taken back")

        pipe = Pipe(produce_frame(1), produce_frame(2))
        await serve(pipe, produce=produce)
        return pipe.written, log

    assert asyncio.run(run()) == ([], ["taken back"])


def test_a_closed_connection_ends_its_long_poll() -> None:
    async def run() -> tuple[list[bytes], int]:
        pipe = Pipe(heartbeat_frame(1))

        async def forever(ctx: Context[Any], request: Any) -> dict[str, Any]:
            pipe.closed.set()
            await asyncio.Event().wait()
            raise AssertionError("a parked request outlived its client")

        async with asyncio.timeout(30):
            await serve(pipe, heartbeat=forever)
        return pipe.written, pipe.closes

    assert asyncio.run(run()) == ([], 1)


# -- a client that leaves without a reset, on both networks ------------------------------------------

SOON_S = 0.05
Scene = Callable[[Env, Env, str], Coroutine[Any, Any, None]]


def on_real_net(scene: Scene) -> None:
    async def run() -> None:
        async with open_env(log=StreamLog(levels="error")) as env:
            await scene(env, env, "127.0.0.1")

    asyncio.run(run())


def on_simulated_net(scene: Scene) -> None:
    with World(1) as world:
        world.run(scene(world.node("server"), world.node("client"), "server"))


@pytest.fixture
def looks_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "LOOK_AHEAD_S", SOON_S)


both_nets = pytest.mark.parametrize("play", [on_real_net, on_simulated_net])


class Door:
    """A client connection served over a network. Heartbeat n is parked until `answer(n)`; `log` is what became of them."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self._answers: list[asyncio.Future[None]] = []

    def answer(self, number: int) -> None:
        self._answers[number - 1].set_result(None)

    async def until(self, *log: str) -> None:
        async with asyncio.timeout(30):
            while self.log != list(log):
                await asyncio.sleep(0.02)

    async def connect(self, server: Env, client: Env, host: str) -> Connection:
        async def serve(connection: Connection) -> None:
            await ClientConnection(server, connection, self._dispatcher(server), "PLAIN").serve()
            self.log.append("closed")

        listener = await server.net.listen(host, 0, serve)
        return await client.net.connect(*listener.address)

    def _dispatcher(self, env: Env) -> Dispatcher:
        api = Api(
            key=HEARTBEAT, name="heartbeat", min_version=0, max_version=4, advertised_min=0,
            handle=self._parked, parks=True,
        )  # fmt: skip
        return Dispatcher(env.clock, {HEARTBEAT: api}, None, request_bytes_max=1000)

    async def _parked(self, ctx: Context[Any], request: Any) -> dict[str, Any]:
        self._answers.append(asyncio.get_running_loop().create_future())
        number = len(self._answers)
        self.log.append(f"{number} parked")
        try:
            await self._answers[-1]
        except asyncio.CancelledError:
            self.log.append(f"{number} cancelled")
            raise
        self.log.append(f"{number} answered")
        return {"error_code": 0}


def sent(correlation_id: int) -> list[Any]:
    data = heartbeat_frame(correlation_id)
    return [len(data).to_bytes(4, "big"), data]


def at_a_door(scene: Callable[[Door, Connection], Coroutine[Any, Any, None]]) -> Scene:
    async def connected(server: Env, client: Env, host: str) -> None:
        door = Door()
        await scene(door, await door.connect(server, client, host))

    return connected


@both_nets
@pytest.mark.usefixtures("looks_soon")
def test_a_client_that_ends_its_stream_does_not_hold_a_parked_request(
    play: Callable[[Scene], None],
) -> None:
    """A plain connection whose peer has ended is half open: no reset says that nobody listens."""

    async def scene(door: Door, connection: Connection) -> None:
        connection.write(sent(1))
        await door.until("1 parked")
        connection.close()
        await door.until("1 parked", "1 cancelled", "closed")

    play(at_a_door(scene))


@both_nets
@pytest.mark.usefixtures("looks_soon")
def test_what_was_sent_behind_a_parked_request_is_served_although_the_client_has_gone(
    play: Callable[[Scene], None],
) -> None:
    async def scene(door: Door, connection: Connection) -> None:
        connection.write([*sent(1), *sent(2)])
        connection.close()
        await door.until("1 parked")
        await asyncio.sleep(2 * SOON_S)
        door.answer(1)
        await door.until("1 parked", "1 answered", "2 parked", "2 cancelled", "closed")

    play(at_a_door(scene))


@both_nets
@pytest.mark.usefixtures("looks_soon")
def test_what_comes_during_a_long_park_is_served_next_and_answered_in_order(
    play: Callable[[Scene], None],
) -> None:
    async def scene(door: Door, connection: Connection) -> None:
        connection.write(sent(1))
        await door.until("1 parked")
        await asyncio.sleep(2 * SOON_S)  # the next frame is waited for already
        connection.write(sent(2))
        await asyncio.sleep(2 * SOON_S)
        assert door.log == ["1 parked"]
        door.answer(1)
        await door.until("1 parked", "1 answered", "2 parked")
        door.answer(2)
        for number in (1, 2):
            reply = await connection.read_frame(1000)
            assert reply is not None and int.from_bytes(reply[:4]) == number
        connection.close()
        await door.until("1 parked", "1 answered", "2 parked", "2 answered", "closed")

    play(at_a_door(scene))


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="http"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01", id="tls"),
        pytest.param(b"\x7f\xff" * 8, id="unknown api"),
        pytest.param(b"\x00\x0c\x00\x63" + b"\x00" * 8, id="unknown version"),
        pytest.param(b"\x00\x0c\x00\x04" + b"\xff" * 30, id="lengths that lie"),
        pytest.param(b"x" * 1001, id="oversized"),
    ],
)
def test_a_frame_that_is_not_the_protocol_closes_the_connection(frame: bytes) -> None:
    async def run() -> tuple[list[bytes], int]:
        async def heartbeat(ctx: Context[Any], request: Any) -> dict[str, Any]:
            raise AssertionError("a refused request reached its handler")

        pipe = Pipe(frame)
        await serve(pipe, heartbeat=heartbeat)
        return pipe.written, pipe.closes

    assert asyncio.run(run()) == ([], 1)


def test_a_handler_that_fails_closes_the_connection_and_nothing_else() -> None:
    async def run() -> tuple[list[bytes], int]:
        async def heartbeat(ctx: Context[Any], request: Any) -> dict[str, Any]:
            raise KeyError("a fault of ours")

        pipe = Pipe(heartbeat_frame(1), heartbeat_frame(2))
        await serve(pipe, heartbeat=heartbeat)
        return pipe.written, pipe.closes

    assert asyncio.run(run()) == ([], 1)


def test_a_reply_that_its_version_cannot_say_closes_one_connection_and_ends_no_node() -> None:
    async def run() -> tuple[list[bytes], int]:
        async def heartbeat(ctx: Context[Any], request: Any) -> dict[str, Any]:
            return {"no_such_field": 1}

        pipe = Pipe(heartbeat_frame(1))
        await serve(pipe, heartbeat=heartbeat)
        return pipe.written, pipe.closes

    assert asyncio.run(run()) == ([], 1)
