"""HTTP doors in a simulation: the same handlers, requests as frames over the simulated network.

A request is `[method, path, query, body]` in msgpack, its answer `[status, body]`; the connection ends with it.
"""

import contextlib
import json
from typing import Any, Final

import msgpack
from fencepost.cluster.base.errors import ConnectionLost, Trouble
from fencepost.cluster.base.ports import Connection, Env, HttpReply, HttpRequest, OnHttp

FRAME_MAX: Final = 64 << 20


async def serve_http(connection: Connection, serve: OnHttp, *, body_bytes_max: int) -> None:
    """One request of one connection."""
    frame = await connection.read_frame(FRAME_MAX)
    if frame is None:
        return
    method, path, query, body = msgpack.unpackb(frame)
    if len(body) > body_bytes_max:
        reply = HttpReply(413, b'{"error": "INVALID_REQUEST"}')
    else:
        reply = await serve(HttpRequest(method, path, query, body))
    packed = msgpack.packb([reply.status, reply.body])
    connection.write((len(packed).to_bytes(4, "big"), packed))
    with contextlib.suppress(ConnectionLost):
        await connection.drain()


async def ask_http(
    env: Env, host: str, port: int, method: str, path: str, body: Any = None, **query: str
) -> tuple[int, Any]:
    """The status and the JSON of the answer. Trouble when there is none."""
    connection = await env.net.connect(host, port)
    try:
        encoded = b"" if body is None else json.dumps(body).encode()
        packed = msgpack.packb([method, path, query, encoded])
        connection.write((len(packed).to_bytes(4, "big"), packed))
        frame = await connection.read_frame(FRAME_MAX)
    finally:
        connection.close()
    if frame is None:
        raise Trouble(f"{method} {path}: hung up without an answer")
    status, answered = msgpack.unpackb(frame)
    return status, json.loads(answered)
