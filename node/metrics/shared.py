"""Work that a crowd asks for: done once for all who come while it is under way, and not again and again.

INVARIANT  work that is asked for without a break takes a share of the loop's time at most: one part in RESTS + 1.
PREVENTS   scrapers or probes that come one after the other, or a thousand at a time, taking all of it.
PROVED BY  tests/node/test_metrics_shared.py::test_work_that_is_asked_for_without_a_break_rests_in_between

Who comes while it rests waits for the next: it is told nothing that is older than its question.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from fencepost.cluster.base.ports import Env

T = TypeVar("T")
RESTS: Final = 4  # times as long as it took, other work's turns in between included
REST_S_MAX: Final = 1.0


class Shared(Generic[T]):
    def __init__(self, env: Env, name: str, work: Callable[[], Awaitable[T]]) -> None:
        self._env = env
        self._name = name
        self._work = work
        self._rests_until_s = 0.0
        self._under_way: asyncio.Future[T] | None = None

    async def result(self) -> T:
        under_way = self._under_way
        if under_way is None:
            under_way = self._under_way = asyncio.get_running_loop().create_future()
            self._env.tasks.spawn(self._run(under_way), name=self._name)
        # Who hangs up does not end it for the others.
        return await asyncio.shield(under_way)

    async def _run(self, told: asyncio.Future[T]) -> None:
        clock = self._env.clock
        try:
            rest_s = self._rests_until_s - clock.steady()
            if rest_s > 0:
                await clock.sleep(rest_s)
            began_s = clock.steady()
            result = await self._work()
            now_s = clock.steady()
            self._rests_until_s = now_s + min(REST_S_MAX, RESTS * (now_s - began_s))
            if not told.done():
                told.set_result(result)
        finally:
            self._under_way = None
            told.cancel()
