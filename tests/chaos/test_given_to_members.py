"""What members of groups write down of what they were given, and that they look: without it nobody can say that they are stuck."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any

from fencepost.chaos.checkers.txn_history import NO_NUMBER, Polled
from fencepost.chaos.workloads import txn_append, txn_pipeline
from fencepost.chaos.workloads.txn_append import AppendProcess
from fencepost.chaos.workloads.txn_book import Book
from fencepost.chaos.workloads.txn_pipeline import Worker

PLACE = ("in", 0)


class Positions:
    """Nothing was committed yet."""

    def __init__(self, *_: object) -> None: ...

    async def observe(self, places: Any, _op: object) -> dict[Any, int]:
        return dict.fromkeys(places, 0)


class Empty:
    """A reader that is shown nothing; with `polls`, those."""

    def __init__(self, *polls: Polled) -> None:
        self.positions = {PLACE: 7}
        self.polls = list(polls)

    async def poll(self, *_place: object) -> list[Polled] | None:
        return self.polls


class World:
    """Time goes on by what is slept."""

    def __init__(self, name: str) -> None:
        self.now_s = 100.0
        clock = SimpleNamespace(steady=lambda: self.now_s, sleep=self.sleep)
        self.client: Any = SimpleNamespace(
            name=name, env=SimpleNamespace(clock=clock, rng=random.Random(1))
        )

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def member(group: str, generation: int) -> Any:
    return SimpleNamespace(group=group, generation=generation, mine=[PLACE])


def test_a_worker_says_what_it_works_on_whether_by_its_group_or_by_its_id(monkeypatch) -> None:
    monkeypatch.setattr(txn_pipeline, "GroupPositions", Positions)
    for by, group, generation in ((member("pipeline", 3), "pipeline", 3), (None, "ids", NO_NUMBER)):
        world, book = World("worker-1.2"), Book()
        worker = Worker(world.client, book, [PLACE], [], "w", None, member=by, group=group)
        asyncio.run(worker._reposition(Empty()))
        (said,) = [op for op in book.history if op.f == "join"]
        assert (said.process, said.rebalanced) == ("worker-1.2", ["in-0"])
        assert said.positions == {group: generation}


def test_a_member_that_sends_and_polls_says_it_with_the_name_of_its_life(monkeypatch) -> None:
    monkeypatch.setattr(txn_append, "GroupPositions", Positions)
    world, book, by = World("subscriber-0.1"), Book(), member("lists", 4)
    process = AppendProcess(world.client, book, [PLACE], None, lambda _: None, member=by)
    process.life = 3
    asyncio.run(process._given(by, Empty(), Positions()))
    (said,) = [op for op in book.history if op.f == "join"]
    assert (said.process, said.rebalanced) == ("subscriber-0.1.3", ["in-0"])
    assert said.positions == {"lists": 4}


def test_a_worker_that_looks_and_is_shown_nothing_says_so_once_a_second() -> None:
    world, book = World("worker-1.2"), Book()
    worker = Worker(world.client, book, [PLACE], [], "w", None)
    for _ in range(100):  # of 0.1 s at most each
        assert asyncio.run(worker._step(None, Empty()))
    looks = [(op.f, op.type, op.process, op.positions, op.polls) for op in book.history]
    assert looks == [("read", "ok", "worker-1.2", {"in-0": 7}, [])] * len(looks)
    assert 4 <= len(looks) <= world.now_s - 99.0
    gaps = [b.ended_s - a.ended_s for a, b in zip(book.history, book.history[1:], strict=False)]
    assert min(gaps) >= 1.0
