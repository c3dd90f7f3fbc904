"""What the admin door makes of half messages: their numbers between nodes of two builds, and in whose name one is ended."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgpack
import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode, FrameRefused
from fencepost.cluster.base.ids import BrokerId
from fencepost.node.admin import check_operations as checks
from fencepost.node.admin import inputs
from fencepost.node.admin.answers import Answer
from fencepost.node.admin.calls import AdminCalls
from fencepost.node.admin.inputs import BadInput
from fencepost.txn.transactions.check_back_commands import HalfAnswered, Verdict
from fencepost.txn.transactions.check_back_records import HalfMessage, HalfState
from fencepost.txn.transactions.group_commit_commands import Identity

ME, OTHER = BrokerId(1), BrokerId(2)
OLDER = {"transactional_id": "pay::p1", "half_id": "h1", "producer_id": 9, "producer_epoch": 2}
PREPARE = "checks.prepare"


class Service:
    """Coordinates what `coordinator` says, and notes what it is asked."""

    def __init__(self, coordinator: BrokerId) -> None:
        self.coordinator = coordinator
        self.prepared: list[tuple[Any, ...]] = []
        self.by: list[str] = []

    async def coordinator_of(self, key: str) -> BrokerId:
        return self.coordinator

    async def prepare(self, *asked: Any) -> ErrorCode:
        self.prepared.append(asked)
        return ErrorCode.unknown_server_error

    async def answer_check(
        self, transactional_id: str, half_id: str, verdict: Verdict, *, by: str, attempt: int
    ) -> HalfAnswered:
        self.by.append(by)
        half = HalfMessage(
            transactional_id=transactional_id,
            half_id=half_id,
            producer_id=9,
            producer_epoch=2,
            state=HalfState.COMMITTED,
            prepared_ms=5,
            decided_by=by,
        )
        return HalfAnswered(half, is_new=True)


class Wire:
    """The peer door of a node: what it sends is kept, or asked of the node at the other end."""

    def __init__(self, other: "Wire | None" = None) -> None:
        self.other = other
        self.sent: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.handler: Any = None

    def on_request(self, kind: str, handler: Any) -> None:
        self.handler = handler

    async def request(
        self, node: BrokerId, kind: str, header: dict[str, Any], payload: bytes, *, timeout_s: float
    ) -> tuple[dict[str, Any], memoryview]:
        self.sent.append((header, msgpack.unpackb(payload)))
        if self.other is None:
            return {}, memoryview(msgpack.packb([200, {}]))
        answer: tuple[dict[str, Any], memoryview]
        header = msgpack.unpackb(msgpack.packb(header))
        answer = await self.other.handler(ME, header, memoryview(payload))
        return answer


def calls_of(world: World, me: BrokerId, wire: Wire, service: Service) -> AdminCalls:
    return AdminCalls(world.node(f"n{me}"), me, wire, service, alive=list, leaders=dict)


def asked_of_another(args: dict[str, Any], other: Wire | None) -> Wire:
    wire = Wire(other)
    with World(seed=1) as world:
        calls = calls_of(world, ME, wire, Service(OTHER))
        world.run(world.on(world.node("n1"), calls.ask(PREPARE, args)))
    return wire


def read_by_an_older_build(fields: Mapping[str, Any]) -> None:
    inputs.allow(fields, "transactional_id", "producer_id", "producer_epoch", "half_id")


@pytest.mark.parametrize("numbered", [{}, {"half_number": 7}])
def test_a_coordinator_of_an_older_build_is_sent_nothing_that_it_refuses(numbered) -> None:
    """It reads the values, and refuses what is no field; of a header it takes what it knows."""
    args = checks.read_prepare(OLDER | numbered)
    ((header, payload),) = asked_of_another(args, None).sent
    read_by_an_older_build(payload)
    assert header["what"] == PREPARE
    assert payload == OLDER


@pytest.mark.parametrize(("numbered", "known"), [({}, 0), ({"half_number": 7}, 7)])
def test_the_number_of_a_half_message_arrives_at_another_node_that_coordinates_it(
    numbered, known
) -> None:
    with World(seed=2) as world:
        service, there = Service(OTHER), Wire()
        calls_of(world, OTHER, there, service)
        asked_of_another(checks.read_prepare(OLDER | numbered), there)
    assert service.prepared == [("pay::p1", Identity(9, 2), "h1", known)]


@pytest.mark.parametrize("beside", ["x", {"half_number": -1}, {"no field": 1}])
def test_what_a_peer_says_beside_its_question_in_other_words_is_refused(beside) -> None:
    with World(seed=3) as world:
        service, there = Service(OTHER), Wire()
        calls_of(world, OTHER, there, service)
        asked = there.handler(
            ME, {"what": PREPARE, "beside": beside}, memoryview(msgpack.packb(OLDER))
        )
        with pytest.raises(FrameRefused):
            world.run(world.on(world.node("n2"), asked))
    assert service.prepared == []


@pytest.mark.parametrize("number", [-1, 1.5, "x", True, 2**63])
def test_a_half_message_has_a_whole_number_or_none(number) -> None:
    with pytest.raises(BadInput, match="half_number must be a whole number"):
        checks.read_prepare(OLDER | {"half_number": number})


@pytest.mark.parametrize(("attempt", "by"), [({}, "its producer"), ({"attempt": 3}, "checker p1")])
def test_what_a_producer_ends_at_the_door_is_not_said_to_be_a_checkers(attempt, by) -> None:
    """It names no attempt: nobody has asked it."""
    said = {"transactional_id": "pay::p1", "half_id": "h1", "verdict": "commit", "member": "p1"}
    service = Service(ME)
    answer = asyncio.run(checks.answer(service, checks.read_answer(said | attempt)))
    assert isinstance(answer, Answer)
    assert (service.by, answer.fields["decided_by"]) == ([by], by)
