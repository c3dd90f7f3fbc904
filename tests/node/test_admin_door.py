"""The admin door by itself: whatever strangers send, and what becomes of what people send."""

import asyncio
import json
import sys
from typing import Any

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.ports import HttpRequest
from fencepost.node.admin.answers import Answer
from fencepost.node.admin.door import POLLS_MAX, REQUESTS_MAX, AdminDoor
from fencepost.node.admin.inputs import NAME_BYTES_MAX
from fencepost.node.admin.operations import OPERATIONS, ROUTES
from hypothesis import given, settings
from hypothesis import strategies as st


class Calls:
    """Stands where the coordinators are."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.waits: asyncio.Event | None = None

    async def ask(self, name: str, args: dict[str, Any]) -> Answer:
        self.asked.append((name, args))
        if self.waits is not None:
            await self.waits.wait()
        return Answer(200, {"done": name})


def door_of(calls: Calls, *, ready: bool = True) -> AdminDoor:
    with World(seed=1) as world:
        return AdminDoor(world.node("n"), calls, is_ready=lambda: ready)


def ask(
    method: str, path: str, body: Any = b"", *, ready: bool = True, **query: str
) -> tuple[int, dict[str, Any], list[tuple[str, dict[str, Any]]]]:
    calls = Calls()
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = HttpRequest(method, path, query, encoded)
    reply = asyncio.run(door_of(calls, ready=ready).handle(request))
    return reply.status, json.loads(reply.body), calls.asked


MEMBER = {"producer_id": 1, "producer_epoch": 0}
END = "/v1/transaction-groups/job/end"
GOOD: list[tuple[str, str, Any, str, dict[str, Any]]] = [
    (
        "POST",
        END,
        {"number": 7, "outcome": "commit", "members": {"a": MEMBER}},
        "group.end",
        {"group": "job", "number": 7, "outcome": "commit", "members": {"a": MEMBER}},
    ),
    (
        "POST",
        END,
        {"number": 7, "outcome": "commit", "members": {}, "note": "of seven"},
        "group.end",
        {"group": "job", "number": 7, "outcome": "commit", "members": {}, "note": "of seven"},
    ),
    (
        "GET",
        "/v1/transaction-groups/a%2Fb%20c/decisions/12",
        b"",
        "group.decision",
        {"group": "a/b c", "number": 12},
    ),
    (
        "GET",
        "/v1/transaction-groups/job",
        b"",
        "group.describe",
        {"group": "job", "limit": 20, "members": 1_000},
    ),
    (
        "POST",
        "/v1/checks/prepare",
        {"transactional_id": "g::m", "half_id": "o-1", **MEMBER},
        "checks.prepare",
        {"transactional_id": "g::m", "half_id": "o-1", **MEMBER},
    ),
    (
        "POST",
        "/v1/checks/poll",
        {"group": "g", "member": "m", "wait_ms_max": 0, "checks_max": 0},
        "checks.poll",
        {"group": "g", "member": "m", "wait_ms_max": 0, "checks_max": 0, "delivered": []},
    ),
    (
        "POST",
        "/v1/checks/answer",
        {"transactional_id": "t", "half_id": "h", "verdict": "unknown", "member": "m"},
        "checks.answer",
        {
            "transactional_id": "t",
            "half_id": "h",
            "verdict": "unknown",
            "member": "m",
            "attempt": 0,
        },
    ),
    (
        "POST",
        "/v1/checks/decide",
        {"transactional_id": "t", "half_id": "h", "outcome": "rollback"},
        "checks.decide",
        {"transactional_id": "t", "half_id": "h", "outcome": "rollback", "by": "a person"},
    ),
    (
        "POST",
        "/v1/checks/release",
        {"transactional_id": "t", "half_id": "h"},
        "checks.release",
        {"transactional_id": "t", "half_id": "h"},
    ),
    ("GET", "/v1/checks", b"", "checks.list", {"parked": False, "limit": 1_000}),
]


@pytest.mark.parametrize(("method", "path", "body", "operation", "args"), GOOD)
def test_a_request_becomes_the_operation_that_it_asks_for(
    method, path, body, operation, args
) -> None:
    status, fields, asked = ask(method, path, body)
    assert (status, fields) == (200, {"done": operation})
    assert asked == [(operation, args)]


def test_what_a_query_says_is_read_like_a_body() -> None:
    assert ask("GET", "/v1/checks", parked="true")[2] == [
        ("checks.list", {"parked": True, "limit": 1_000})
    ]
    asked = ask("GET", "/v1/checks/half-message", transactional_id="g::m")[2]
    assert asked == [("checks.describe", {"transactional_id": "g::m"})]


BAD: list[tuple[str, str, Any, int, str]] = [
    ("GET", "/", b"", 404, "there is no / here"),
    ("GET", "/v1/checks/", b"", 404, "no /v1/checks/ here"),
    ("DELETE", "/v1/checks", b"", 405, "knows GET, not DELETE"),
    ("POST", END, b"{", 400, "the body is not JSON"),
    ("POST", END, b"\xff\xfe", 400, "the body is not JSON"),
    ("POST", END, b"[" * 100_000, 400, "the body is not JSON"),
    ("POST", END, [1], 400, "must be a JSON object, not a list"),
    ("POST", END, {}, 400, "members must be an object of objects"),
    ("POST", END, {"members": {}, "outcome": "commit"}, 400, "number must be a whole number"),
    ("POST", END, {"members": {}, "number": -1, "outcome": "commit"}, 400, "not -1"),
    ("POST", END, {"members": {}, "number": True, "outcome": "commit"}, 400, "not true"),
    ("POST", END, {"members": {}, "number": 2**63, "outcome": "commit"}, 400, "number must be"),
    ("POST", END, {"members": {}, "number": 1.5, "outcome": "commit"}, 400, "not 1.5"),
    ("POST", END, {"members": {}, "number": 1, "outcome": "perhaps"}, 400, "commit, abort"),
    ("POST", END, {"members": {}, "number": 1, "outcome": ["commit"]}, 400, "commit, abort"),
    ("POST", END, {"members": {}, "nummber": 1, "outcome": "abort"}, 400, "'nummber' is no field"),
    ("POST", END, {"group": "other", "number": 1}, 400, "group stands in the path"),
    (
        "POST",
        END,
        {"number": 1, "outcome": "commit", "members": {"m": {"producer_id": 1}}},
        400,
        "member m: producer_epoch must be",
    ),
    (
        "POST",
        END,
        {"number": 1, "outcome": "commit", "members": {"": MEMBER}},
        400,
        "a member's name must be a string that is not empty",
    ),
    ("GET", "/v1/transaction-groups/a%3A%3Ab", b"", 400, "must not contain '::'"),
    ("GET", "/v1/transaction-groups/a%3A", b"", 400, "nor end in ':'"),
    ("POST", "/v1/checks/poll", {"group": "a::b", "member": "m"}, 400, "must not contain '::'"),
    ("GET", "/v1/transaction-groups/", b"", 400, "group must be a string that is not empty"),
    ("GET", f"/v1/transaction-groups/{'x' * 2_000}", b"", 400, f"{NAME_BYTES_MAX} bytes at most"),
    ("POST", "/v1/checks/poll", {"group": "g"}, 400, "member must be"),
    ("POST", "/v1/checks/prepare", {"transactional_id": "t", **MEMBER}, 400, "half_id must be"),
    ("POST", "/v1/checks/poll", {"group": "g", "member": "m", "wait_ms_max": 10**9}, 400, "60000"),
    ("POST", "/v1/checks/poll", {"group": "g", "member": "m", "delivered": [1]}, 400, "delivered"),
    ("POST", "/v1/checks/answer", {"transactional_id": "\ud800"}, 400, "valid Unicode"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "said"), BAD)
def test_what_can_not_be_meant_is_refused_with_what_is_wrong(
    method, path, body, status, said
) -> None:
    answered, fields, asked = ask(method, path, body)
    assert (answered, fields["error"], asked) == (status, "INVALID_REQUEST", [])
    assert said in fields["message"]
    assert fields["next_step"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/checks/poll", {"k" * 1_000_000: 1}),
        (END, {"number": 1, "outcome": "commit", "members": {"m": {**MEMBER, "k" * 900_000: 1}}}),
        (END, {"number": 1, "outcome": "commit", "members": {"m" * 900_000: MEMBER}}),
        ("/v1/checks/poll", {"group": "g" * 900_000}),
        (f"/v1/{'x' * 900_000}", b""),
        ("/v1/checks/poll", {"group": ["g"] * 100_000}),
        ("/v1/checks/poll", b'{"a": ' + b"9" * 900_000 + b"}"),
    ],
)
def test_an_error_is_a_sentence_not_what_came_in(path, body) -> None:
    status, fields, _ = ask("POST", path, body)
    assert status in (400, 404)
    assert len(json.dumps(fields)) < 1_000


def test_what_is_just_shallow_enough_to_be_read_ends_nobody() -> None:
    """To show it in the answer takes a few frames more than to read it took."""
    limit = sys.getrecursionlimit()
    for depth in range(limit - 200, limit + 1):
        body = b'{"transactional_id": %s%s}' % (b"[" * depth, b"]" * depth)
        status, fields, _ = ask("POST", "/v1/checks/prepare", body)
        assert (status, fields["error"]) == (400, "INVALID_REQUEST"), depth


def test_an_answer_is_laid_out_for_people_unless_it_is_long() -> None:
    class Many(Calls):
        async def ask(self, operation, args):
            return Answer(200, {"members": {str(i): i for i in range(count)}})

    def lines() -> int:
        request = HttpRequest("GET", "/v1/checks", {}, b"")
        return asyncio.run(door_of(Many()).handle(request)).body.count(b"\n")

    count = 10
    assert lines() == 14
    count = 1_000
    assert lines() == 1


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=20,
)
NAMES = ("group", "number", "outcome", "members", "member", "half_id", "transactional_id")
BODIES = st.one_of(
    st.binary(max_size=100),
    JSON.map(lambda each: json.dumps(each).encode()),
    st.dictionaries(st.sampled_from(NAMES), JSON).map(lambda each: json.dumps(each).encode()),
)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(st.sampled_from(sorted(ROUTES)), st.text(max_size=20), BODIES)
def test_whatever_comes_in_is_answered_with_a_sentence(route, name, body) -> None:
    method, pattern = route
    path = pattern.replace("{group}", name).replace("{number}", name)
    status, fields, asked = ask(method, path, body)
    assert status == 200 or {"error", "message", "next_step"} <= set(fields)
    assert bool(asked) == (status == 200)


def test_every_operation_has_a_path() -> None:
    assert sorted(ROUTES.values()) == sorted(OPERATIONS)


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("", 200),
        ("http://localhost:1", 200),
        ("https://evil.example", 403),
        ("null", 403),
        ("localhost:1", 403),
    ],
)
def test_a_page_of_somebody_else_cannot_ask_through_its_readers_browser(origin, status) -> None:
    request = HttpRequest("GET", "/v1/checks", {}, b"", host="localhost:1", origin=origin)
    calls = Calls()
    assert asyncio.run(door_of(calls).handle(request)).status == status
    assert len(calls.asked) == (status == 200)


def test_a_node_that_has_not_come_up_says_so() -> None:
    status, fields, asked = ask("GET", "/v1/checks", ready=False)
    assert (status, fields["error"], asked) == (503, "COORDINATOR_NOT_AVAILABLE", [])


def test_more_requests_than_may_wait_are_told_to_come_again() -> None:
    """Checkers, which wait by design, leave room for people."""
    body = json.dumps({"group": "g", "member": "m"}).encode()
    poll = HttpRequest("POST", "/v1/checks/poll", {}, body)
    look = HttpRequest("GET", "/v1/checks", {}, b"")

    async def scenario() -> None:
        calls = Calls()
        calls.waits = asyncio.Event()
        door = door_of(calls)
        async with asyncio.TaskGroup() as group:
            for _ in range(POLLS_MAX):
                group.create_task(door.handle(poll))
            await asyncio.sleep(0)
            assert (await door.handle(poll)).status == 429
            for _ in range(REQUESTS_MAX - POLLS_MAX):
                group.create_task(door.handle(look))
            await asyncio.sleep(0)
            assert (await door.handle(look)).status == 429
            calls.waits.set()
        assert (await door.handle(poll)).status == 200

    asyncio.run(scenario())
