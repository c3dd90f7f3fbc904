"""How a question finds its coordinator, with peers that are away, lie, or have lost the partition meanwhile."""

from collections.abc import Callable, Sequence
from typing import Any

import msgpack
import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode, FrameRefused, Trouble
from fencepost.cluster.base.ids import NO_LEADER, BrokerId
from fencepost.node.admin.answers import Answer
from fencepost.node.admin.calls import ASK_S, AdminCalls
from fencepost.txn.transactions.added_service import HalvesHere
from fencepost.txn.transactions.group_commit_commands import Undecided

E = ErrorCode
ME, OTHER = BrokerId(1), BrokerId(2)
ASK = ("group.decision", {"group": "job", "number": 3})
LIST = ("checks.list", {"parked": False, "limit": 5})
PACKED = msgpack.packb(ASK[1])
IDENTITY = {"producer_id": 1, "producer_epoch": 0}
END = {"group": "job", "number": 1, "outcome": "commit", "members": {"m": IDENTITY}}


class Service:
    """`answers` are given one after another, the last one for ever; likewise `coordinators`."""

    def __init__(self, coordinators: list[Any], answers: list[Any] = ()) -> None:
        self.coordinators, self.answers = coordinators, [*answers]
        self.asked = 0
        self.listed: Any = HalvesHere([], [0])

    async def coordinator_of(self, key: str) -> Any:
        assert key == "job"
        return self.coordinators.pop(0) if len(self.coordinators) > 1 else self.coordinators[0]

    async def group_decision(self, group: str, number: int) -> Any:
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    async def halves(self, *, parked_only: bool, halves_max: int) -> Any:
        return self.listed


class Door:
    def __init__(self, answer: Callable[[], Any]) -> None:
        self.answer = answer
        self.sent: list[BrokerId] = []
        self.handler: Any = None

    def on_request(self, kind: str, handler: Any) -> None:
        self.handler = handler

    async def request(self, node: BrokerId, kind: str, header: Any, payload: bytes, *, timeout_s):
        self.sent.append(node)
        said = self.answer()
        if isinstance(said, Trouble):
            raise said
        return {}, memoryview(said if isinstance(said, bytes) else msgpack.packb(said))


def calls_of(
    world: World, service: Service, door: Door | None = None, leaders: Sequence[Any] = ()
) -> AdminCalls:
    """`leaders` are given one after another, the last one for ever."""
    known = [*leaders] or [{}]
    return AdminCalls(
        world.node("n"),
        ME,
        door,
        service,
        alive=lambda: [ME, OTHER],
        leaders=lambda: known.pop(0) if len(known) > 1 else known[0],
    )


def ask(service: Service, door: Door | None = None, what: tuple[str, Any] = ASK, *leaders: Any):
    with World(seed=1) as world:
        calls = calls_of(world, service, door, leaders)
        answer = world.run(world.on(world.node("n"), calls.ask(*what)))
        return answer, world.loop.time()


UNDECIDED = Undecided(forgotten=False)


def test_what_is_ours_is_asked_here() -> None:
    answer, _ = ask(Service([ME], [UNDECIDED]))
    assert (answer.status, answer.fields["outcome"]) == (200, "undecided")


def test_what_is_another_ones_is_sent_on_and_its_answer_handed_back() -> None:
    door = Door(lambda: [409, {"error": "X"}])
    answer, _ = ask(Service([OTHER]), door)
    assert (answer, door.sent) == (Answer(409, {"error": "X"}), [OTHER])


@pytest.mark.parametrize("coordinators", [[E.coordinator_not_available, ME], [OTHER, OTHER, ME]])
def test_a_coordinator_that_moves_is_followed(coordinators) -> None:
    door = Door(lambda: int(E.not_coordinator))
    answer, _ = ask(Service(coordinators, [E.coordinator_load_in_progress, UNDECIDED]), door)
    assert answer.status == 200


def test_a_lost_answer_is_asked_for_again() -> None:
    answers = [Trouble("cut off"), Trouble("no answer in 4 s"), [200, {"outcome": "commit"}]]
    answer, _ = ask(Service([OTHER]), Door(lambda: answers.pop(0)))
    assert answer == Answer(200, {"outcome": "commit"})


def test_nobody_there_is_said_after_a_bounded_time() -> None:
    answer, took_s = ask(Service([E.coordinator_not_available]))
    assert (answer.status, answer.fields["error"]) == (503, "COORDINATOR_NOT_AVAILABLE")
    assert "may have been carried out" in answer.fields["message"]
    assert took_s == pytest.approx(ASK_S, abs=0.2)


def test_an_error_that_asking_again_does_not_mend_is_answered_at_once() -> None:
    answer, took_s = ask(Service([ME], [E.unknown_server_error]))
    assert (answer.status, answer.fields["error"]) == (500, "UNKNOWN_SERVER_ERROR")
    assert took_s < 0.1


@pytest.mark.parametrize("said", [b"\xc1", [200], {"a": 1}, "x", int(E.invalid_request), [1, 2, 3]])
def test_what_a_peer_says_in_other_words_is_no_answer(said) -> None:
    """It is of an older or later build, or damaged: as if it had not been there."""
    answer, _ = ask(Service([OTHER]), Door(lambda: said))
    assert answer.status == 503


def test_a_question_is_sent_on_once_at_most() -> None:
    """Who was asked by another node asks nobody else, even when it thinks that one the coordinator."""
    door = Door(lambda: [200, {}])
    service = Service([OTHER], [E.not_coordinator])
    with World(seed=1) as world:
        calls_of(world, service, door)
        work = door.handler(OTHER, {"what": ASK[0]}, memoryview(PACKED))
        _, packed = world.run(world.on(world.node("n"), work))
    assert (msgpack.unpackb(packed), door.sent, service.asked) == (E.not_coordinator, [], 1)


@pytest.mark.parametrize(
    ("header", "payload", "trouble"),
    [
        ({"what": "group.decision"}, b"\xc1", FrameRefused),
        ({"what": "group.decision"}, msgpack.packb([1]), FrameRefused),
        ({"what": "group.decision"}, msgpack.packb({"group": "a", "number": -1}), FrameRefused),
        ({"what": "group.decision"}, msgpack.packb({"group": b"a", "number": 1}), FrameRefused),
        ({"what": "group.decision"}, msgpack.packb({b"group": "a", "number": 1}), FrameRefused),
        (
            {"what": "group.decision", "beside": {"number": msgpack.Timestamp(1)}},
            PACKED,
            FrameRefused,
        ),
        ({"what": "group.decision", "beside": {1: 2}}, PACKED, FrameRefused),
        ({"what": "group.end"}, msgpack.packb({**END, "members": {b"m": IDENTITY}}), FrameRefused),
        ({"what": "group.end"}, msgpack.packb({**END, "members": {"m": {b"x": 1}}}), FrameRefused),
        ({"what": "group.end"}, msgpack.packb({**END, "members": [{1: b""}]}), FrameRefused),
        ({"what": "group.end"}, msgpack.packb({**END, "outcome": b"commit"}), FrameRefused),
        ({"what": "checks.list"}, msgpack.packb({"parked": [], "limit": 1}), FrameRefused),
        ({"what": "of a later build"}, PACKED, Trouble),
        ({}, PACKED, Trouble),
    ],
)
def test_what_a_peer_asks_in_other_words_is_refused(header, payload, trouble) -> None:
    door = Door(lambda: [200, {}])
    with World(seed=1) as world:
        calls_of(world, Service([ME], [UNDECIDED]), door)
        with pytest.raises(trouble):
            world.run(world.on(world.node("n"), door.handler(OTHER, header, memoryview(payload))))


def test_a_list_without_a_node_says_so() -> None:
    answer, _ = ask(Service([ME]), Door(lambda: Trouble("cut off")), LIST)
    assert (answer.fields["half_messages"], answer.fields["nodes_not_reached"]) == ([], [2])
    answer, _ = ask(Service([ME]), Door(lambda: [200, {"half_messages": [{"x": 1}]}]), LIST)
    assert answer.fields == {
        "half_messages": [{"x": 1}],
        "nodes_not_reached": [],
        "partitions_without_a_coordinator": [],
    }


@pytest.mark.parametrize(
    "said",
    [[500, {"error": "X", "message": "it is broken"}], [200, {}], [200, {"half_messages": 7}]],
)
def test_a_list_that_nobody_answers_is_one_of_nothing(said) -> None:
    """Nor is what a node says of its trouble taken apart into letters, as a list of it would be."""
    service = Service([ME])
    service.listed = E.coordinator_load_in_progress
    answer, _ = ask(service, Door(lambda: said), LIST)
    assert answer.fields == {
        "half_messages": [],
        "nodes_not_reached": [1, 2],
        "partitions_without_a_coordinator": [],
    }


@pytest.mark.parametrize(
    ("leaders", "missing"),
    [
        ([{0: ME, 1: OTHER, 2: NO_LEADER}], [2]),
        ([{0: ME, 1: BrokerId(3), 2: OTHER}], [1]),  # who is thought dead is not asked
        ([{0: ME, 1: OTHER}, {0: ME, 1: ME}], [1]),  # neither may have had it when it was asked
        ([{0: ME, 1: NO_LEADER}, {0: ME, 1: ME}], [1]),
        ([{0: ME}, {0: ME, 1: ME}], [1]),
        ([{}], []),
    ],
)
def test_a_list_names_the_partitions_that_nobody_answered_for(leaders, missing) -> None:
    """That nothing is parked was said where the partition of what is had no leader."""
    door = Door(lambda: [200, {"half_messages": []}])
    answer, _ = ask(Service([ME]), door, LIST, *leaders)
    assert answer.fields == {
        "half_messages": [],
        "nodes_not_reached": [],
        "partitions_without_a_coordinator": missing,
    }


@pytest.mark.parametrize(
    ("here", "there", "missing"),
    [
        ([0], [1], []),
        ([0], [], [1]),
        ([], [1], [0]),
        ([0], [0, 2, "1", {}], [1]),
        ([0, 1], [], [1]),  # its old leader may know less than its new one does
    ],
)
def test_a_leader_that_has_not_heard_that_it_is_one_answers_for_nothing(
    here, there, missing
) -> None:
    """Its old leader had, and gave it away: nothing was listed, and nothing said to be missing."""
    service = Service([ME])
    service.listed = HalvesHere([], here)
    door = Door(lambda: [200, {"half_messages": [], "partitions": there}])
    answer, _ = ask(service, door, LIST, {0: ME, 1: OTHER})
    assert answer.fields["partitions_without_a_coordinator"] == missing
