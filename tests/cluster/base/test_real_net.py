"""What only the real network can show: the end of the descriptors, TLS, sockets that talk in bytes."""

import asyncio
import os
import random
import resource
import socket
from typing import Any

import pytest
import uvloop
from echo_door import SOON_S, Notes, echo
from fencepost.cluster.base.errors import ConnectionLost
from fencepost.cluster.base.log_events import sentence_of
from fencepost.cluster.base.ports import FileSlice
from fencepost.cluster.base.real_env import RealEnv, open_env
from fencepost.cluster.base.real_file import RealFile


async def has_paused(notes: Notes) -> None:
    """The listener has met its bound, and has said so once."""
    async with asyncio.timeout(SOON_S):
        while not notes.events:
            await asyncio.sleep(0.01)
    assert notes.events == ["accepting_paused"]


async def answers(env: RealEnv, address: tuple[str, int]) -> bool:
    connection = await env.net.connect(*address)
    connection.write([b"\0\0\0\2hi"])
    return await connection.read_frame(10) == b"hi"


def test_a_listener_outlives_the_end_of_the_descriptors(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.cluster.base.real_net.ACCEPT_PAUSE_S", 0.02)

    async def main() -> None:
        notes = Notes()
        async with open_env(log=notes) as env:
            listener = await env.net.listen("127.0.0.1", 0, echo)
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            waiting = [socket.socket() for _ in range(30)]
            used = {int(name) for name in os.listdir("/proc/self/fd")}
            free = [fd for fd in range(len(used) + 20) if fd not in used]
            resource.setrlimit(resource.RLIMIT_NOFILE, (free[10], hard))
            try:
                for each in waiting:
                    each.connect(listener.address)
                await has_paused(notes)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                for each in waiting:
                    each.close()
            await asyncio.sleep(0.1)
            assert await answers(env, listener.address)

    run(main())


def test_connections_over_the_limit_wait_until_others_have_gone(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.cluster.base.real_net.ACCEPT_PAUSE_S", 0.02)

    async def main() -> None:
        notes = Notes()
        async with open_env(log=notes) as env:
            env.net.connections_max = 3
            listener = await env.net.listen("127.0.0.1", 0, echo)
            first = [await env.net.connect(*listener.address) for _ in range(3)]
            await asyncio.sleep(0.05)
            late = asyncio.ensure_future(answers(env, listener.address))
            await has_paused(notes)
            assert not late.done()
            first[0].close()
            assert await late

    run(main())


def test_who_is_not_accepted_for_want_of_descriptors_is_told_of_with_the_limit_that_it_is(
    run: Any,
) -> None:
    """Not as of a setting: `max.connections` is another limit, and has other words."""
    told: list[str] = []

    class Told(Notes):
        def warn(self, event: str, **fields: object) -> None:
            super().warn(event, **fields)
            told.append(sentence_of(event, fields))

    async def main() -> None:
        notes = Told()
        async with open_env(log=notes) as env:
            allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            assert env.net.accepted() == (0, allowed * 3 // 4, allowed, 0)
            env.net.connections_max = 1
            listener = await env.net.listen("127.0.0.1", 0, echo)
            assert await answers(env, listener.address)
            await env.net.connect(*listener.address)
            late = await env.net.connect(*listener.address)
            await has_paused(notes)
            accepted = env.net.accepted()
            assert (accepted.open, accepted.open_max) == (1, 1)
            assert accepted.pauses >= 1
            late.close()
        (sentence,) = told
        for word in (f"1 of the {allowed} descriptors", "RLIMIT_NOFILE", "ulimit -n", "restart"):
            assert word in sentence
        assert "connections.max" not in sentence

    run(main())


def test_an_essential_listener_accepts_when_the_others_have_all_they_may(run: Any) -> None:
    """Or clients in their thousands would keep the nodes of a cluster apart."""

    async def main() -> None:
        notes = Notes()
        async with open_env(log=notes) as env:
            env.net.connections_max = 1
            clients = await env.net.listen("127.0.0.1", 0, echo)
            peers = await env.net.listen("127.0.0.1", 0, echo, essential=True)
            await env.net.connect(*clients.address)
            await asyncio.sleep(0.05)
            late = asyncio.ensure_future(answers(env, clients.address))
            await has_paused(notes)
            assert await answers(env, peers.address)
            assert not late.done()
            env.net.connections_max = 10
            assert await late

    run(main())


@pytest.mark.slow
def test_a_thousand_connections_at_once_are_all_served(run: Any) -> None:
    async def main() -> None:
        async with open_env(log=Notes()) as env:
            listener = await env.net.listen("127.0.0.1", 0, echo)
            served = await asyncio.gather(*(answers(env, listener.address) for _ in range(1000)))
            assert all(served)

    run(main())


def test_a_name_is_looked_up_anew_for_each_connection() -> None:
    """A node that was given another address is found there, not at the old one. (uvloop asks its own resolver.)"""

    async def who(env: RealEnv, port: int) -> bytes | None:
        connection = await env.net.connect("node-2.test", port)
        return await connection.read_frame(10)

    def told(name: bytes) -> Any:
        async def tell(connection: Any) -> None:
            connection.write([len(name).to_bytes(4, "big"), name])
            await connection.drain()

        return tell

    async def main() -> None:
        names = {"node-2.test": "127.0.0.1"}
        loop = asyncio.get_running_loop()
        known = loop.getaddrinfo
        loop.getaddrinfo = lambda host, *rest, **more: known(names.get(host, host), *rest, **more)
        async with open_env(log=Notes()) as env:
            first = await env.net.listen("127.0.0.1", 0, told(b"old"))
            port = first.address[1]
            await env.net.listen("127.0.0.2", port, told(b"new"))
            assert await who(env, port) == b"old"
            names["node-2.test"] = "127.0.0.2"
            assert await who(env, port) == b"new"

    asyncio.run(main())


def test_a_peer_that_resets_is_a_lost_connection(run: Any) -> None:
    async def main() -> None:
        lost: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

        async def serve(connection: Any) -> None:
            try:
                await connection.read_frame(100)
            except ConnectionLost as error:
                lost.set_result(error)

        async with open_env(log=Notes()) as env:
            listener = await env.net.listen("127.0.0.1", 0, serve)
            peer = socket.create_connection(listener.address)
            await asyncio.sleep(0.02)
            # Closing with a linger of zero sends a reset instead of an end.
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            peer.close()
            assert isinstance(await lost, ConnectionLost)

    run(main())


def test_a_peer_that_takes_nothing_is_given_up_after_a_while(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.cluster.base.real_connection.LINGER_S", 0.1)

    async def main() -> None:
        async def serve(connection: Any) -> None:
            connection.write([bytes(20_000_000)])
            connection.close()
            await connection.wait_closed()
            done.set()

        done = asyncio.Event()
        async with open_env(log=Notes()) as env:
            listener = await env.net.listen("127.0.0.1", 0, serve)
            peer = socket.create_connection(listener.address)
            async with asyncio.timeout(SOON_S):
                await done.wait()
            peer.close()

    run(main())


class Room:
    """A transport that notes when it is closed, and a file that is always cached."""

    path = "/log"

    def __init__(self) -> None:
        self.written, self.closed = bytearray(), False
        self.write = self.written.extend

    def get_extra_info(self, name: str) -> Any:
        return None

    def set_write_buffer_limits(self, **limits: int) -> None: ...

    def close(self) -> None:
        self.closed = True

    def read_cached(self, position: int, length: int) -> bytes:
        return bytes(length)


def test_a_connection_that_ends_is_not_closed_inside_the_call_that_says_there_is_room(
    run: Any,
) -> None:
    """asyncio ends such a transport twice; the second time raised in a callback, which ends the node."""

    async def main() -> None:
        async with open_env(log=Notes()) as env:
            room, connection = Room(), env.net.new_connection()
            connection.connection_made(room)  # type: ignore[arg-type]
            connection.pause_writing()
            connection.write([FileSlice(room, 0, 10)])  # type: ignore[arg-type]
            connection.close()
            assert not room.written
            connection.resume_writing()
            assert len(room.written) == 10 and not room.closed
            await asyncio.sleep(0)
            assert room.closed
            connection.connection_lost(None)

    run(main())


@pytest.mark.slow
def test_ranges_and_bytes_keep_their_order_whatever_way_they_take(
    run: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past the transport, through memory, through a thread: chosen anew for each piece by chance here."""
    rng = random.Random(5)
    content = rng.randbytes(3_000_000)
    is_cached, ways = RealFile._is_cached, {True: 0, False: 0}

    def sometimes(file: RealFile, position: int, length: int) -> bool:
        cached = rng.random() < 0.8 and is_cached(file, position, length)
        ways[cached] += 1
        return cached

    monkeypatch.setattr(RealFile, "_is_cached", sometimes)

    async def main() -> None:
        async with open_env(log=Notes()) as env:
            file = env.disk.open(str(tmp_path / "log"), create=True)
            file.append([content])
            parts: list[Any] = []
            for _ in range(150):
                position = rng.randrange(2_000_000)
                length = rng.choice((10, 20_000, 200_000, 1_000_000))
                parts.append(FileSlice(file, position, min(length, len(content) - position)))
                parts += [rng.randbytes(rng.choice((3, 300, 30_000))) for _ in range(2)]

            async def serve(connection: Any) -> None:
                at = 0
                while at < len(parts):
                    count = rng.randint(1, 5)
                    connection.write(parts[at : at + count])
                    at += count
                    if rng.random() < 0.3:
                        await connection.drain()
                    if rng.random() < 0.1:
                        await asyncio.sleep(0.001)
                connection.close()
                await connection.wait_closed()

            listener = await env.net.listen("127.0.0.1", 0, serve)
            reader, writer = await asyncio.open_connection(*listener.address)
            for part in parts:
                if isinstance(part, FileSlice):
                    part = content[part.position : part.position + part.length]
                assert await reader.readexactly(len(part)) == part
                if rng.random() < 0.05:
                    await asyncio.sleep(0.005)
            assert await reader.read(1) == b""
            writer.close()
            await writer.wait_closed()
            assert file.close() is None and file._users == 0, "every hold was released"
            assert ways[True] > 20 and ways[False] > 20

    run(main())


@pytest.mark.parametrize("host", ["node-2..cluster.local", f"{'x' * 64}.local", "a" * 300])
@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
def test_a_name_that_can_not_be_asked_for_is_nobody(host: str, loop: Any) -> None:
    """uvloop raised what nobody expected of a connection: every node that was told such a name of a peer ended, at each start again."""

    async def main() -> None:
        async with open_env(log=Notes()) as env:
            with pytest.raises(ConnectionLost, match="can't connect to"):
                await env.net.connect(host, 9192)

    loop(main())
