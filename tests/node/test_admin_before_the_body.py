"""The admin door on a real socket: what it decides of a request before it reads its body."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fencepost.cluster.base import real_http
from fencepost.cluster.base.ports import HttpReply, HttpRequest
from fencepost.cluster.base.real_env import open_env
from fencepost.node.admin.answers import Answer
from fencepost.node.admin.door import AdminDoor

TOKEN = "of-the-night-shift"
POLL = "POST /v1/checks/poll"


@pytest.fixture(autouse=True)
def bodies_have_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is answered then is not answered because a body did not come."""
    monkeypatch.setattr(real_http, "REQUEST_S", 300.0)


class Calls:
    async def ask(self, name: str, _args: dict[str, Any]) -> Answer:
        return Answer(200, {"done": name})


async def told(_request: HttpRequest) -> HttpReply:
    return HttpReply(200, b'{"told": 1}')


def at_an_admin_door(
    scenario: Callable[[int], Awaitable[None]], *, host: str = "127.0.0.1", ready: bool = True
) -> None:
    async def run() -> None:
        async with open_env() as env:
            door = AdminDoor(
                env, Calls(), is_ready=lambda: ready, token=TOKEN, told={"/metrics": told}
            )
            _, port = await door.open(host, 0)
            async with asyncio.timeout(45):
                await scenario(port)
            await door.close()

    asyncio.run(run())


async def answer_to_a_head(port: int, line: str, *headers: str) -> tuple[int, dict[str, Any]]:
    """To a request that says it has a body, none of which is sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = [f"{line} HTTP/1.1", *headers, "Content-Length: 1000000", "", ""]
    writer.write("\r\n".join(lines).encode())
    async with asyncio.timeout(30):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split()[0])
        body = await reader.readexactly(length)
    writer.close()
    return int(head.split()[1]), json.loads(body)


@pytest.mark.parametrize(
    ("line", "headers", "status"),
    [
        (POLL, ["Host: evil.example"], 401),
        (POLL, ["Host: evil.example", "Authorization: Bearer wrong"], 401),
        (POLL, ["Host: localhost", "Origin: http://evil.example"], 403),
        ("POST /v1/nowhere", ["Host: localhost"], 404),
        ("DELETE /v1/checks", ["Host: localhost"], 405),
        ("POST /metrics", ["Host: localhost"], 405),
        ("GET /metrics", ["Host: localhost"], 200),
        (POLL, ["Host: localhost", "Content-Encoding: gzip"], 415),
        (POLL, ["Host: localhost", "Content-Length: 9000000"], 400),  # two lengths
    ],
)
def test_what_no_body_would_change_is_answered_before_it_is_read(line, headers, status) -> None:
    """1,000 connections of nobody in particular took 1.2 GB with bodies whose last byte they kept to themselves."""

    async def scenario(port: int) -> None:
        answered, fields = await answer_to_a_head(port, line, *headers)
        assert answered == status
        assert status == 200 or fields["next_step"]

    at_an_admin_door(scenario)


def test_a_node_that_has_not_come_up_reads_no_bodies() -> None:
    async def scenario(port: int) -> None:
        assert (await answer_to_a_head(port, POLL, "Host: localhost"))[0] == 503

    at_an_admin_door(scenario, ready=False)


def test_who_shows_the_token_is_read_and_answered() -> None:
    async def scenario(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = b'{"group": "g", "member": "m"}'
        for host in (b"evil.example", b"localhost"):
            head = (
                b"%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n"
            )
            writer.write(head % (POLL.encode(), host, TOKEN.encode(), len(body)))
            await asyncio.sleep(0.01)
            writer.write(body)
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
            assert b"checks.poll" in await reader.readuntil(b"}")
            await reader.readline()
        writer.close()

    at_an_admin_door(scenario)
