"""Fetches of thousands of partitions, and questions for their offsets: others have their turn meanwhile."""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from fencepost.node.handlers import fetch, list_offsets
from fencepost.node.handlers.fetch import PARTITIONS_A_TURN, _Answer

T = TypeVar("T")


class Turns:
    """How much is done before others have their turn, as they see it."""

    def __init__(self) -> None:
        self._done = 0
        self.counts: list[int] = []

    def look(self) -> None:
        self._done += 1

    @property
    def total(self) -> int:
        return sum(self.counts) + self._done

    async def beside(self, work: Coroutine[Any, Any, T]) -> T:
        others = asyncio.ensure_future(self._take())
        try:
            return await work
        finally:
            others.cancel()

    async def _take(self) -> None:
        while True:
            self.counts.append(self._done)
            self._done = 0
            await asyncio.sleep(0)


def services(**more: Any) -> SimpleNamespace:
    clock = SimpleNamespace(sleep=asyncio.sleep)
    return SimpleNamespace(services=SimpleNamespace(env=SimpleNamespace(clock=clock), **more))


class Quiet:
    """A partition to which nothing comes; who looks at it is counted."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns

    def look(self, *_: object) -> int:
        self.turns.look()
        return 0

    readable_bytes = when_readable = look

    def forget(self, _: object) -> None:
        """All at once, when the wait is over: that is cheap."""


def test_a_fetch_of_thousands_of_partitions_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()

    async def read(*_: Any, **__: Any) -> _Answer:
        turns.look()
        return _Answer({}, partition=Quiet(turns))

    monkeypatch.setattr(fetch, "_read", read)
    connection = services(config=SimpleNamespace(fetch_max_bytes=1 << 20))
    wanted = SimpleNamespace(fetch_offset=0, max_bytes=1)
    request = SimpleNamespace(
        max_bytes=1 << 20, min_bytes=1, isolation_level=0, max_wait=timedelta(milliseconds=1)
    )
    partitions = [(("t", index), wanted) for index in range(5 * PARTITIONS_A_TURN)]
    asyncio.run(turns.beside(fetch._read_or_wait(connection, request, partitions)))
    assert turns.total >= 2 * 5 * PARTITIONS_A_TURN
    assert max(turns.counts) <= 2 * PARTITIONS_A_TURN


def question(partitions: int, **more: int) -> SimpleNamespace:
    asked = [SimpleNamespace(partition_index=each, **more) for each in range(partitions)]
    return SimpleNamespace(
        topics=[SimpleNamespace(name=name, partitions=asked) for name in ("a", "b")]
    )


def test_a_question_for_the_offsets_of_thousands_of_partitions_gives_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = Turns()

    async def find(*_: Any, **__: Any) -> dict[str, Any]:
        turns.look()
        return {}

    async def leads(_within_s: float) -> bool:
        return True

    monkeypatch.setattr(list_offsets, "_find", find)
    work = list_offsets.handle(services(confirm_image=leads), question(1000, timestamp=0))
    told = asyncio.run(turns.beside(work))["topics"]
    assert [(each["name"], len(each["partitions"])) for each in told] == [("a", 1000), ("b", 1000)]
    assert max(turns.counts) <= list_offsets.PARTITIONS_A_TURN
    assert turns.total == 2000


def test_that_thousands_of_beginnings_need_no_confirming_is_found_out_a_little_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """10,000 took 25 ms before the first of them was looked for, and a request may name 90,000."""
    turns = Turns()

    async def find(*_: Any, **__: Any) -> dict[str, Any]:
        return {}

    monkeypatch.setattr(list_offsets, "_find", find)
    monkeypatch.setattr(list_offsets, "_may_differ_elsewhere", lambda *_: turns.look())
    asyncio.run(turns.beside(list_offsets.handle(services(), question(2500))))
    assert turns.total == 5000
    assert max(turns.counts) <= 1000
