"""Who may decide while others' decisions are not in the log yet.

INVARIANT  what changes brokers or settings is decided on an image that all earlier decisions are part of, and no other
           decision is made until it is applied.
PREVENTS   a leader that is elected because it lives, by one decision, while another one fences it: each is right by the
           image that it saw, the log takes both, and the partition is led by nobody for ever.
PROVED BY  tests/cluster/controller/test_turns.py::test_a_broker_that_is_fenced_meanwhile_is_not_made_leader

Changes of partitions name the partition's epoch, so the log itself refuses the second of two; but what they read of
brokers and settings (who lives, how many must be in sync) they name nowhere.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

from ..metadata.codec import Command
from ..metadata.records import (
    PartitionsChanged,
    PartitionsCreated,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
)

# These may be on their way to the log together: what they change they name.
TOGETHER: Final = (
    PartitionsChanged,
    PartitionsCreated,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
)


def go_together(records: Sequence[Command]) -> bool:
    return all(isinstance(record, TOGETHER) for record in records)


class Turns:
    """Many at a time that go together, or one alone. One alone that waits lets nobody in before it."""

    def __init__(self) -> None:
        self._together = 0
        self._is_alone = False
        self._want_alone = 0
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def is_idle(self) -> bool:
        return not (self._together or self._is_alone or self._want_alone)

    async def free(self) -> None:
        """Until nobody is alone, or waits to be. What follows without an await is in time."""
        while self._is_alone or self._want_alone:
            await self._change()

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """At once after `free`."""
        assert not self._is_alone
        self._together += 1
        try:
            yield
        finally:
            self._together -= 1
            self._tell()

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        self._want_alone += 1
        try:
            while self._is_alone or self._together:
                await self._change()
        finally:
            self._want_alone -= 1
            self._tell()
        self._is_alone = True
        try:
            yield
        finally:
            self._is_alone = False
            self._tell()

    async def _change(self) -> None:
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(changed)
        await changed

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for changed in waiting:
            if not changed.done():
                changed.set_result(None)
