"""Who may do something at the admin door: the token, where other machines reach it."""

import asyncio
import json
from typing import Any

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.host_names import is_loopback
from fencepost.cluster.base.ports import HttpReply, HttpRequest
from fencepost.node.admin.answers import Answer
from fencepost.node.admin.door import AdminDoor
from fencepost.node.config import NodeConfig

TOKEN = "of-the-night-shift"
PATHS = [("GET", "/v1/checks"), ("POST", "/v1/checks/release"), ("GET", "/v1/nowhere")]
ASK = {"transactional_id": "t", "half_id": "h"}


class Calls:
    def __init__(self) -> None:
        self.asked: list[str] = []

    async def ask(self, name: str, _args: dict[str, Any]) -> Answer:
        self.asked.append(name)
        return Answer(200, {"done": name})


async def told(_request: HttpRequest) -> HttpReply:
    return HttpReply(200, b"1\n", "text/plain")


class Door:
    """One at `host`, with what was asked behind it."""

    def __init__(self, host: str, token: str) -> None:
        self.calls = Calls()
        world = World(seed=1)
        env = world.node("n")
        self.door = AdminDoor(
            env, self.calls, is_ready=lambda: True, token=token, told={"/metrics": told}
        )
        with world:
            world.run(world.on(env, self.door.open(host, 9644)))

        self.events = world.machine("n").events

    def ask(
        self, method: str, path: str, shown: str = "", body: Any = None, **said: str
    ) -> tuple[int, dict[str, Any]]:
        encoded = b"" if body is None else json.dumps(body).encode()
        request = HttpRequest(method, path, {}, encoded, authorization=shown, **said)
        reply = asyncio.run(self.door.handle(request))
        return reply.status, json.loads(reply.body)


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize(
    "shown",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        f"Basic {TOKEN}",
        TOKEN,
        f"Bearer {TOKEN}x",
        "Bearer é",
    ],
)
def test_without_the_token_nothing_is_asked_or_done(method: str, path: str, shown: str) -> None:
    door = Door("0.0.0.0", TOKEN)
    status, fields = door.ask(method, path, shown, ASK if method == "POST" else None)
    assert status == 401
    assert fields["error"] == "SASL_AUTHENTICATION_FAILED"
    assert "admin.token" in fields["next_step"]
    assert TOKEN not in json.dumps(fields)
    assert door.calls.asked == []
    assert door.door.access.refused == 1


@pytest.mark.parametrize("shown", [f"Bearer {TOKEN}", f"bearer  {TOKEN} "])
def test_with_the_token_it_is_asked(shown: str) -> None:
    door = Door("0.0.0.0", TOKEN)
    assert door.ask("GET", "/v1/checks", shown)[0] == 200
    assert door.ask("POST", "/v1/checks/release", shown, ASK)[0] == 200
    assert door.calls.asked == ["checks.list", "checks.release"]
    assert door.door.access.refused == 0


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_a_door_to_the_world_that_has_no_token_says_which_setting_it_lacks(
    method: str, path: str
) -> None:
    door = Door("0.0.0.0", "")
    for shown in ("", "Bearer ", "Bearer x"):
        status, fields = door.ask(method, path, shown, ASK if method == "POST" else None)
        assert status == 403
        assert "admin.token" in fields["message"]
        assert "FENCEPOST_ADMIN_TOKEN" in fields["next_step"]
    assert door.calls.asked == []


@pytest.mark.parametrize("token", ["", TOKEN])
def test_numbers_are_told_to_everybody(token: str) -> None:
    door = Door("0.0.0.0", token)
    request = HttpRequest("GET", "/metrics", {}, b"")
    assert asyncio.run(door.door.handle(request)) == HttpReply(200, b"1\n", "text/plain")
    status, fields = door.ask("POST", "/metrics")
    assert (status, "knows GET, not POST" in fields["message"]) == (405, True)


def test_who_tries_tokens_is_seen_in_the_log_and_can_not_fill_it() -> None:
    door = Door("0.0.0.0", TOKEN)
    for guess in range(50):
        door.ask("POST", "/v1/checks/release", f"Bearer {guess}", ASK, remote="10.0.0.9")
    said = [fields for _, event, fields in door.events if event == "admin_request_refused"]
    assert said == [
        {
            "remote": "10.0.0.9",
            "asked": "POST /v1/checks/release",
            "cause": "the request shows a token that is not this node's",
        }
    ]


def test_this_machines_own_users_need_no_token() -> None:
    assert Door("127.0.0.1", TOKEN).ask("GET", "/v1/checks")[0] == 200


@pytest.mark.parametrize("token", ["", TOKEN])
@pytest.mark.parametrize("host", ["page.example:9644", "127.0.0.1.example", "10.0.0.1", "[::2]:1"])
def test_a_page_whose_name_comes_to_mean_this_machine_is_refused(host: str, token: str) -> None:
    """DNS rebinding: the page's origin is the door's, and so is the address that its name resolves to."""
    door = Door("127.0.0.1", token)
    for method, path in PATHS:
        body = ASK if method == "POST" else None
        status, fields = door.ask(method, path, "", body, host=host, origin=f"http://{host}")
        assert status == (401 if token else 403)
        assert token or host in fields["message"]
        assert "admin.token" in fields["next_step"]
    assert door.calls.asked == []
    assert door.door.access.refused == len(PATHS)
    metrics = HttpRequest("GET", "/metrics", {}, b"", host=host)
    assert asyncio.run(door.door.handle(metrics)).status == 200


@pytest.mark.parametrize(
    "host",
    ["", "localhost", "LocalHost:9644", "127.0.0.1:9644", "127.9.9.9", "[::1]:9644", "[::1]"],
)
def test_this_machine_may_be_called_by_any_of_its_own_names(host: str) -> None:
    door = Door("127.0.0.1", TOKEN)
    assert door.ask("GET", "/v1/checks", host=host)[0] == 200
    assert door.ask("GET", "/v1/checks", host=host, origin=f"http://{host}")[0] == 200


def test_who_shows_the_token_may_call_a_loopback_door_by_any_name() -> None:
    """A proxy on this machine hands on the name that it was asked by."""
    door = Door("127.0.0.1", TOKEN)
    assert door.ask("GET", "/v1/checks", f"Bearer {TOKEN}", host="admin.example")[0] == 200
    assert door.ask("GET", "/v1/checks", "Bearer wrong", host="admin.example")[0] == 401


@pytest.mark.parametrize(
    ("host", "is_one"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("127.example.org", False),
        ("localhost.example.org", False),
    ],
)
def test_a_name_that_only_begins_like_the_loopback_is_none(host: str, is_one: bool) -> None:
    assert is_loopback(host) is is_one


def test_the_token_is_hidden_from_who_asks_for_settings() -> None:
    config = NodeConfig.load(flags=[], environment={"FENCEPOST_ADMIN_TOKEN": TOKEN}, file=None)
    assert config.string("admin.token") == TOKEN
