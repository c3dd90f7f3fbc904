"""One suite for both worlds: a contract test takes `host` and runs on the real Env and on the simulated one."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
import uvloop
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.log import StreamLog
from fencepost.cluster.base.ports import Env
from fencepost.cluster.base.real_env import open_env

Scenario = Callable[["Place"], Coroutine[Any, Any, Any]]


class Place:
    """Where a scenario runs: a server's Env, a client's (the same one in reality) and a folder."""

    def __init__(self, server: Env, client: Env, host: str, folder: str) -> None:
        self.server = self.env = server
        self.client = client
        self.host = host
        self.folder = folder
        self.disk = server.disk

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    async def connected(self, serve: Callable[[Any], Awaitable[None]]) -> Any:
        """A client's connection to a server that runs `serve`."""
        listener = await self.server.net.listen(self.host, 0, serve)
        return await self.client.net.connect(*listener.address)

    async def pair(self) -> tuple[Any, Any]:
        """Both ends of one connection, the client's first."""
        accepted: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def serve(connection: Any) -> None:
            accepted.set_result(connection)
            await connection.wait_closed()

        client = await self.connected(serve)
        return client, await accepted


class RealHost:
    simulated = False

    def __init__(self, folder: str, runner: Callable[[Any], Any]) -> None:
        self._folder = folder
        self._runner = runner
        self._numbers = itertools.count()

    def run(self, scenario: Scenario) -> Any:
        async def main() -> Any:
            async with open_env(log=StreamLog(levels="error")) as env:
                folder = f"{self._folder}/{next(self._numbers)}"
                env.disk.make_folders(folder)
                return await scenario(Place(env, env, "127.0.0.1", folder))

        return self._runner(main())


class SimHost:
    simulated = True

    def __init__(self, seed: int = 1) -> None:
        self._seed = seed

    def run(self, scenario: Scenario) -> Any:
        with World(self._seed) as world:
            server, client = world.node("server"), world.node("client")
            for env in (server, client):
                env.disk.make_folders("/data/test")
            return world.run(scenario(Place(server, client, "server", "/data/test")))


@pytest.fixture(params=["asyncio", "uvloop", "sim"])
def host(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    if request.param == "sim":
        return SimHost()
    return RealHost(str(tmp_path), asyncio.run if request.param == "asyncio" else uvloop.run)


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Any:
    return request.param
