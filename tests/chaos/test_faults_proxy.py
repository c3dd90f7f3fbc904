"""The doors before the nodes: what a cut keeps back, and what whoever dials learns."""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable

import pytest
from fencepost.chaos.faults.proxy import CLIENTS, HOST, Door, Proxies
from fencepost.node.cli.children import free_port, held

PATIENCE_S = 30.0
NEVER_S = 0.1  # for what must not come


class Behind:
    """A node's door that echoes, and remembers what came in and who went."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.heard = b""
        self.dialed = 0
        self.left = 0
        self.server: asyncio.Server | None = None

    async def open(self) -> None:
        self.server = await asyncio.start_server(self._serve, HOST, self.port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.dialed += 1
        with contextlib.suppress(ConnectionError):  # it echoes to who is gone
            while data := await reader.read(1 << 16):
                self.heard += data
                writer.write(data)
        self.left += 1
        writer.close()

    async def close(self) -> None:
        if self.server is not None:
            self.server.close()
            self.server = None


async def until(what: str, holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.005)
    assert holds(), what


def scene(play: Callable[[Proxies, Behind, int], Awaitable[None]]) -> None:
    """One door of node 2; who dials from this process is node 1 once it is said so."""

    async def run() -> None:
        port = free_port()
        behind_port = free_port({port})
        behind = Behind(behind_port)
        proxies = Proxies([Door(2, port, behind_port)])
        with held(
            [port, behind_port]
        ):  # else a node that another test starts is given one while it is shut
            try:
                await behind.open()
                proxies.tell({})
                await play(proxies, behind, port)
            finally:
                proxies.close()
                await behind.close()

    asyncio.run(run())


def is_me(number: int) -> dict[str, dict[int, int]]:
    return {"pids": {number: os.getpid()}}


def test_bytes_pass_both_ways_and_so_does_the_end() -> None:
    async def play(_: Proxies, behind: Behind, port: int) -> None:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"x" * 3_000_000)
        assert await reader.readexactly(3_000_000) == b"x" * 3_000_000
        writer.close()
        await until("the node hears that its client went", lambda: behind.left == 1)

    scene(play)


def test_a_cut_holds_bytes_back_and_the_news_of_the_end_too() -> None:
    async def play(proxies: Proxies, behind: Behind, port: int) -> None:
        proxies.tell(is_me(1))
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"before")
        assert await reader.readexactly(6) == b"before"
        proxies.tell({"cut": [[1, 2], [2, 1]]})
        writer.write(b"meanwhile")
        writer.close()
        await asyncio.sleep(NEVER_S)
        assert behind.heard == b"before" and behind.left == 0
        proxies.tell({"cut": []})
        await until("it comes later, and then the end", lambda: behind.left == 1)
        assert behind.heard == b"beforemeanwhile"

    scene(play)


def test_a_cut_of_one_way_leaves_the_other() -> None:
    async def play(proxies: Proxies, behind: Behind, port: int) -> None:
        proxies.tell(is_me(1))
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"first")
        assert await reader.readexactly(5) == b"first"
        proxies.tell({"cut": [[2, 1]]})
        writer.write(b"second")
        await until("node 2 hears node 1", lambda: behind.heard == b"firstsecond")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), NEVER_S)
        proxies.tell({"cut": []})
        assert await asyncio.wait_for(reader.readexactly(6), PATIENCE_S) == b"second"
        writer.close()

    scene(play)


def test_clients_go_on_while_nodes_are_cut_off_from_one_another() -> None:
    async def play(proxies: Proxies, _: Behind, port: int) -> None:
        proxies.tell({"cut": [[1, 2], [2, 1]]})
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"hello")
        assert await asyncio.wait_for(reader.readexactly(5), PATIENCE_S) == b"hello"
        writer.close()

    scene(play)


def test_who_dials_over_a_cut_is_not_seen_by_the_node_and_dials_again_when_it_is_healed() -> None:
    async def play(proxies: Proxies, behind: Behind, port: int) -> None:
        proxies.tell({"cut": [[CLIENTS, 2]]})
        reader, _ = await asyncio.open_connection(HOST, port)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), NEVER_S)
        assert behind.dialed == 0
        proxies.tell({"cut": []})
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(1), PATIENCE_S)
        assert behind.dialed == 0

    scene(play)


def test_the_door_of_a_node_that_is_down_refuses_and_opens_when_it_is_back() -> None:
    async def play(proxies: Proxies, behind: Behind, port: int) -> None:
        await behind.close()
        proxies.tell({})
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(HOST, port)
        await behind.open()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    _, writer = await asyncio.open_connection(HOST, port)
                    break
                except ConnectionRefusedError:
                    await asyncio.sleep(0.01)
        writer.close()

    scene(play)


def test_who_is_cut_off_does_not_learn_that_the_node_died() -> None:
    async def play(proxies: Proxies, behind: Behind, port: int) -> None:
        proxies.tell({"cut": [[CLIENTS, 2], [2, CLIENTS]]})
        await behind.close()
        proxies.tell({})
        reader, writer = await asyncio.open_connection(HOST, port)  # it is not refused
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), NEVER_S)
        writer.close()

    scene(play)


def test_a_slow_way_delays_what_goes_there_and_loses_none_of_it() -> None:
    async def play(proxies: Proxies, _: Behind, port: int) -> None:
        proxies.tell({"slow": [[CLIENTS, 2, 0.05], [2, CLIENTS, 0.05]]})
        reader, writer = await asyncio.open_connection(HOST, port)
        began = asyncio.get_running_loop().time()
        writer.write(b"there and back")
        assert await reader.readexactly(14) == b"there and back"
        assert asyncio.get_running_loop().time() - began >= 0.099
        writer.close()

    scene(play)
