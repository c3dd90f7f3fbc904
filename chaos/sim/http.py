"""HTTP doors in a simulation: the same handlers, requests as frames over the simulated network.

A request is `[method, path, query, body, authorization]` in msgpack, its answer `[status, body]`; the connection ends with
it. Who asks shows `TOKEN`; nodes whose admin door is to be used must have it for their `admin.token`.
"""

import asyncio
import contextlib
import json
from collections.abc import Coroutine
from typing import Any, Final

import msgpack
from fencepost.cluster.base.errors import ConnectionLost, Trouble
from fencepost.cluster.base.ports import (
    Connection,
    Env,
    HttpReply,
    HttpRequest,
    OnHttp,
    OnHttpHead,
)

FRAME_MAX: Final = 64 << 20
TOKEN: Final = "of-this-world"  # noqa: S105 - there is nothing to steal


async def serve_http(
    connection: Connection, serve: OnHttp, judge: OnHttpHead | None, *, body_bytes_max: int
) -> None:
    """One request of one connection; it ends when its client hangs up."""
    frame = await connection.read_frame(FRAME_MAX)
    if frame is None:
        return
    method, path, query, body, shown = msgpack.unpackb(frame)
    if len(body) > body_bytes_max:
        reply: HttpReply | None = HttpReply(413, b'{"error": "INVALID_REQUEST"}')
    else:
        request = HttpRequest(method, path, query, body, authorization=shown)
        reply = await _until_hung_up(connection, _served(request, serve, judge))
    if reply is None:
        return
    packed = msgpack.packb([reply.status, reply.body])
    connection.write((len(packed).to_bytes(4, "big"), packed))
    with contextlib.suppress(ConnectionLost):
        await connection.drain()


async def _served(request: HttpRequest, serve: OnHttp, judge: OnHttpHead | None) -> HttpReply:
    reply = None if judge is None else await judge(request._replace(body=b""))
    return await serve(request) if reply is None else reply


async def _until_hung_up(
    connection: Connection, serving: Coroutine[Any, Any, HttpReply]
) -> HttpReply | None:
    answering = asyncio.create_task(serving)
    hung_up = asyncio.create_task(connection.read_frame(FRAME_MAX))
    try:
        await asyncio.wait([answering, hung_up], return_when=asyncio.FIRST_COMPLETED)
        return answering.result() if answering.done() else None
    finally:
        for task in (answering, hung_up):
            task.cancel()
        await asyncio.gather(answering, hung_up, return_exceptions=True)


async def ask_http(
    env: Env, host: str, port: int, method: str, path: str, body: Any = None, **query: str
) -> tuple[int, Any]:
    """The status and the JSON of the answer. Trouble when there is none."""
    connection = await env.net.connect(host, port)
    try:
        encoded = b"" if body is None else json.dumps(body).encode()
        packed = msgpack.packb([method, path, query, encoded, f"Bearer {TOKEN}"])
        connection.write((len(packed).to_bytes(4, "big"), packed))
        frame = await connection.read_frame(FRAME_MAX)
    finally:
        connection.close()
    if frame is None:
        raise Trouble(f"{method} {path}: hung up without an answer")
    status, answered = msgpack.unpackb(frame)
    return status, json.loads(answered)
