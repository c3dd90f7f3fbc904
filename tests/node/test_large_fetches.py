"""Fetches of thousands of partitions, and questions for their offsets: others have their turn meanwhile."""

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from fencepost.node.handlers import fetch, list_offsets
from fencepost.node.handlers.fetch import PARTITIONS_A_TURN, _Answer


class Quiet:
    """A partition to which nothing comes; who looks at it is counted."""

    def __init__(self, looks: list[int]) -> None:
        self.looks = looks

    def look(self, *_: object) -> int:
        self.looks.append(1)
        return 0

    readable_bytes = when_readable = look

    def forget(self, _: object) -> None:
        """All at once, when the wait is over: that is cheap."""


def test_a_fetch_of_thousands_of_partitions_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    turns: list[int] = []  # how many looks each had

    async def read(*_: Any, **__: Any) -> _Answer:
        looks.append(1)
        return _Answer({}, partition=Quiet(looks))

    async def others() -> None:
        while True:
            turns.append(len(looks))
            looks.clear()
            await asyncio.sleep(0)

    async def scene() -> None:
        services = SimpleNamespace(
            env=SimpleNamespace(clock=SimpleNamespace(sleep=asyncio.sleep)),
            config=SimpleNamespace(fetch_max_bytes=1 << 20),
        )
        wanted = SimpleNamespace(fetch_offset=0, max_bytes=1)
        request = SimpleNamespace(
            max_bytes=1 << 20, min_bytes=1, isolation_level=0, max_wait=timedelta(milliseconds=1)
        )
        partitions = [(("t", index), wanted) for index in range(5 * PARTITIONS_A_TURN)]
        task = asyncio.ensure_future(others())
        await fetch._read_or_wait(SimpleNamespace(services=services), request, partitions)
        task.cancel()

    monkeypatch.setattr(fetch, "_read", read)
    asyncio.run(scene())
    assert sum(turns) >= 2 * 5 * PARTITIONS_A_TURN
    assert max(turns) <= 2 * PARTITIONS_A_TURN


def test_a_question_for_the_offsets_of_thousands_of_partitions_gives_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[int] = []
    turns: list[int] = []

    async def find(*_: Any, **__: Any) -> dict[str, Any]:
        found.append(1)
        return {}

    async def others() -> None:
        while True:
            turns.append(len(found))
            found.clear()
            await asyncio.sleep(0)

    async def leads(_within_s: float) -> bool:
        return True

    async def scene() -> Any:
        services = SimpleNamespace(
            env=SimpleNamespace(clock=SimpleNamespace(sleep=asyncio.sleep)), confirm_image=leads
        )
        asked = [SimpleNamespace(partition_index=each, timestamp=0) for each in range(1000)]
        topics = [SimpleNamespace(name=name, partitions=asked) for name in ("a", "b")]
        task = asyncio.ensure_future(others())
        request = SimpleNamespace(topics=topics)
        told = await list_offsets.handle(SimpleNamespace(services=services), request)
        task.cancel()
        return told["topics"]

    monkeypatch.setattr(list_offsets, "_find", find)
    told = asyncio.run(scene())
    assert [(each["name"], len(each["partitions"])) for each in told] == [("a", 1000), ("b", 1000)]
    assert max(turns) <= list_offsets.PARTITIONS_A_TURN
    assert sum(turns) + len(found) == 2000


def test_that_thousands_of_beginnings_need_no_confirming_is_found_out_a_little_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """10,000 took 25 ms before the first of them was looked for, and a request may name 90,000."""
    looks: list[int] = []
    turns: list[int] = []

    async def find(*_: Any, **__: Any) -> dict[str, Any]:
        return {}

    async def others() -> None:
        while True:
            turns.append(len(looks))
            looks.clear()
            await asyncio.sleep(0)

    async def scene() -> None:
        services = SimpleNamespace(env=SimpleNamespace(clock=SimpleNamespace(sleep=asyncio.sleep)))
        asked = [SimpleNamespace(partition_index=each) for each in range(2500)]
        topics = [SimpleNamespace(name=name, partitions=asked) for name in ("a", "b")]
        task = asyncio.ensure_future(others())
        request = SimpleNamespace(topics=topics)
        await list_offsets.handle(SimpleNamespace(services=services), request)
        task.cancel()

    monkeypatch.setattr(list_offsets, "_find", find)
    monkeypatch.setattr(list_offsets, "_may_differ_elsewhere", lambda *_: looks.append(1))
    asyncio.run(scene())
    assert sum(turns) + len(looks) == 5000
    assert max(turns) <= 1000
