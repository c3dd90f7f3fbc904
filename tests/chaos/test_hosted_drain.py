"""What is not worked off yet, by what readers are told."""

import asyncio
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from fencepost.chaos.workloads import hosted_drain
from fencepost.chaos.workloads.hosted_drain import Drain

PLACE = ("in", 2)


class Reader:
    """Each look is (stable offset, end); nothing that can be read is left."""

    looks: ClassVar[list[tuple[int, int]]] = []

    def __init__(self, _client: Any) -> None:
        self.stable: dict[Any, int] = {}
        self.ends: dict[Any, int] = {}

    async def read_all(self, places: Any, _op: Any) -> None:
        for place in places:
            self.stable[place], self.ends[place] = Reader.looks.pop(0)


class Positions:
    def __init__(self, *_: Any) -> None: ...

    async def find(self, places: Any) -> Any:
        return dict.fromkeys(places, (703, -1))


def test_what_stands_behind_an_open_transaction_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that was killed: its transaction has its time yet, and inputs behind it are worked off by nobody before."""
    monkeypatch.setattr(hosted_drain, "CommittedReader", Reader)
    monkeypatch.setattr(hosted_drain, "GroupPositions", Positions)
    Reader.looks = [(703, 708), (703, 708), (708, 708)]
    said: list[str] = []

    async def pause(_seconds: float) -> None:
        said.append(drain.left)

    client: Any = SimpleNamespace(env=SimpleNamespace(clock=SimpleNamespace(sleep=pause)))
    drain = Drain(client, {"pipeline": [PLACE]})
    asyncio.run(drain.run())
    assert said == ["1 inputs of pipeline: in-2 from 703, which is open, to 708"] * 2
    assert drain.left == "" and not Reader.looks


def test_halves_of_whom_nobody_could_be_asked_are_left() -> None:
    """A partition whose coordinator moves names none of its halves: that is not an answer."""
    nothing: dict[str, list[Any]] = {
        "half_messages": [],
        "nodes_not_reached": [],
        "partitions_without_a_coordinator": [],
    }
    half = {"half_id": "shop/1", "state": "waiting"}
    answers = [
        {**nothing, "half_messages": [half]},
        {**nothing, "partitions_without_a_coordinator": [1]},
        {**nothing, "nodes_not_reached": [2]},
        nothing,
    ]
    said: list[str] = []

    async def pause(_seconds: float) -> None:
        said.append(drain.left)

    async def until(_method: str, _path: str) -> Any:
        return 200, answers.pop(0)

    client: Any = SimpleNamespace(env=SimpleNamespace(clock=SimpleNamespace(sleep=pause)))
    doors: Any = SimpleNamespace(until=until)
    drain = Drain(client, {}, doors)
    asyncio.run(drain.run())
    assert [each.partition(";")[0] for each in said] == [
        "1 half messages: shop/1 (waiting)",
        "0 half messages: ",
        "0 half messages: ",
    ]
    assert "partitions without a coordinator: [1]" in said[1]
    assert drain.left == "" and not answers
