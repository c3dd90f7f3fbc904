"""Asks a node's admin door over HTTP, as `../sim/http.py` does in a simulation: one request a connection, which ends with it.

Who gives a question up hangs up: what was asked may be under way all the same.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

from fencepost.cluster.base.errors import Trouble
from fencepost.cluster.base.ports import Env

ANSWER_BYTES_MAX: Final = 64 << 20
ANSWER_S: Final = 4.0  # a paused node takes what is asked and says nothing; as long as all clients of real runs wait
TOKEN: Final = "of-this-run"  # noqa: S105 - there is nothing to steal
AGAIN: Final = frozenset({429, 503})  # too many ask, or the coordinator is away


async def ask_http(
    _env: Env, host: str, _port: int, method: str, path: str, body: Any = None, **query: str
) -> tuple[int, Any]:
    """The status and the JSON of the answer; 503 for all that is to be asked again. Trouble when there is none.

    `host` is HOST:PORT: real doors have ports of their own.
    """
    path += "?" + "&".join(f"{key}={value}" for key, value in query.items()) if query else ""
    try:
        async with asyncio.timeout(ANSWER_S):
            return _answer(await _ask(host, _request(host, method, path, body)))
    except (OSError, ValueError) as broken:  # TimeoutError is an OSError
        raise Trouble(f"{method} {path}: {broken!r}") from broken


async def _ask(host: str, request: bytes) -> bytes:
    name, _, port = host.rpartition(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    try:
        writer.write(request)
        await writer.drain()
        answer = await reader.read(ANSWER_BYTES_MAX)
        while not reader.at_eof():
            answer += await reader.read(ANSWER_BYTES_MAX)
    finally:
        writer.transport.abort()
    return answer


def _request(host: str, method: str, path: str, body: Any) -> bytes:
    encoded = b"" if body is None else json.dumps(body).encode()
    headers: Mapping[str, Any] = {
        "Host": host,
        "Authorization": f"Bearer {TOKEN}",
        "Content-Type": "application/json",
        "Content-Length": len(encoded),
        "Connection": "close",
    }
    lines = [f"{method} {path} HTTP/1.1", *(f"{key}: {value}" for key, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + encoded


def _answer(data: bytes) -> tuple[int, Any]:
    """ValueError for one that was cut short."""
    head, found, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    if not found:
        raise ValueError(f"hung up after {len(data)} bytes")
    status = int(lines[0].split(" ")[1])
    headers = {
        key.lower(): value.strip() for key, _, value in (x.partition(":") for x in lines[1:])
    }
    if int(headers.get("content-length", len(body))) != len(body):
        raise ValueError(f"{len(body)} bytes of {headers['content-length']}")
    return 503 if status in AGAIN else status, json.loads(body)
