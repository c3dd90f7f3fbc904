"""A real HTTP door by itself, and a client that says what it likes."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from fencepost.cluster.base.ports import HttpReply, HttpRequest, Log
from fencepost.cluster.base.real_env import RealEnv, open_env

BODY_MAX = 1_000
SOON_S = 30.0  # a busy machine lets a process wait for seconds
Serve = Callable[[HttpRequest], Awaitable[HttpReply]]


async def echo(request: HttpRequest) -> HttpReply:
    said = [request.method, request.path, dict(request.query), request.body.decode()]
    return HttpReply(200, json.dumps(said).encode())


def at_a_door(
    scenario: Callable[[RealEnv, int], Awaitable[None]],
    serve: Serve = echo,
    run_loop: Callable[[Any], None] = asyncio.run,
    log: Log | None = None,
) -> None:
    async def run() -> None:
        async with open_env(log=log) as env:
            door = await env.net.listen_http("127.0.0.1", 0, serve, body_bytes_max=BODY_MAX)
            async with asyncio.timeout(45):
                await scenario(env, door.address[1])
            await door.close()

    run_loop(run())


async def say(port: int, data: bytes, *, source: str = "127.0.0.1") -> bytes:
    """All that comes back until the door hangs up or says nothing for a moment."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    writer.write(data)
    heard = b""
    try:
        async with asyncio.timeout(20):
            while more := await reader.read(1 << 16):
                heard += more
                if heard.rstrip().endswith((b"]", b"}")):
                    break
    except (TimeoutError, ConnectionError):
        pass
    writer.close()
    return heard
