"""What peers answer to "who votes" is where to dial; an answer that is none is forgotten, and costs nobody a start."""

import asyncio
from typing import Any

import pytest
from fencepost.cluster.base.errors import Outcome, Trouble
from fencepost.cluster.base.ids import BrokerId
from fencepost.node.who_votes import WhoVotes


class Door:
    """Peers that answer as they were told to."""

    def __init__(self, answers: dict[int, Any]) -> None:
        self.answers = {BrokerId(peer): answer for peer, answer in answers.items()}

    def connected(self) -> list[BrokerId]:
        return sorted(self.answers)

    def on_request(self, kind: str, handler: Any) -> None:
        pass

    async def request(self, peer: BrokerId, *_: Any, **__: Any) -> tuple[Any, memoryview]:
        answer = self.answers[peer]
        if isinstance(answer, Trouble):
            raise answer
        return answer, memoryview(b"")


class Told:
    """A quorum that keeps what it is told."""

    def __init__(self) -> None:
        self.named: list[tuple[int, list[int]]] = []

    def on_voters_named(self, peer: BrokerId, voters: Any) -> None:
        self.named.append((peer, sorted(voters)))


def asked(door: Door, times: int, quorum: Told | None = None) -> WhoVotes:
    who_votes = WhoVotes(door, quorum or Told(), lambda _: None)  # type: ignore[arg-type]

    async def ask() -> None:
        for _ in range(times):
            await who_votes.ask()

    asyncio.run(ask())
    return who_votes


def test_one_peer_after_another_is_asked_and_all_that_they_say_counts() -> None:
    old = Trouble("node 2 does not know that request", Outcome.REFUSED)
    door = Door({1: {"voters": [[4, "four", 9192]]}, 2: old, 3: {"voters": [[5, "five", 9192]]}})
    assert asked(door, 1).heard == {4: ("four", 9192)}
    quorum = Told()
    assert asked(door, 3, quorum).heard == {4: ("four", 9192), 5: ("five", 9192)}
    assert quorum.named == [(1, [4]), (3, [5])]


def test_as_many_voters_as_were_added_are_named() -> None:
    many = [[voter, f"host-{voter}", 9192] for voter in range(17)]
    assert len(asked(Door({1: {"voters": many}}), 1).heard) == 17


def test_who_answers_otherwise_later_has_said_only_that() -> None:
    door = Door({1: {"voters": [[4, "four", 9192]]}})
    who_votes = asked(door, 1)
    door.answers[BrokerId(1)] = {"voters": [[5, "five", 9192]]}
    asyncio.run(who_votes.ask())
    assert who_votes.heard == {5: ("five", 9192)}


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"voters": 7},
        {"voters": [[4, "four"]]},
        {"voters": [[-1, "four", 9192]]},
        {"voters": [[4, "", 9192]]},
        {"voters": [[4, "f" * 256, 9192]]},
        {"voters": [[4, "four", 0]]},
        {"voters": [[4, "four", 65536]]},
        {"voters": [[place, "many", 9192] for place in range(1_001)]},
    ],
)
def test_an_answer_that_is_none_is_forgotten(answer: Any) -> None:
    assert asked(Door({1: answer}), 2).heard == {}
