"""Work off the loop, as threads do it (`cluster/base/disk_threads.py`).

INVARIANT  the work is done once, at some time between asking and hearing, and also when nobody waits for it any more.
PREVENTS   a simulation in which nothing can come between the end of the work and who goes on because of it.
PROVED BY  tests/sim/test_sim_disk_work.py::test_work_of_threads_is_done_before_anybody_hears_of_it
"""

import asyncio
from collections.abc import Callable
from typing import Any

from .loop import NodeDown


class Job:
    """`begin` gives the future of one piece of work; callbacks of a node that dies are dropped, and the work with them."""

    def __init__(self, work: Callable[[], tuple[Any, float]]) -> None:
        """`work` gives its result, and how long its syncs take on top."""
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[Any] = self._loop.create_future()
        self._result: Any = None
        self._error: BaseException | None = None

    def begin(self, done_after_s: float, heard_after_s: float) -> "asyncio.Future[Any]":
        rest_s = heard_after_s - done_after_s
        if done_after_s:
            self._loop.call_later(done_after_s, self._do, rest_s)
        else:
            self._do(rest_s)  # a thread does not wait for the loop's turn to end
        return self._answer

    def _do(self, rest_s: float) -> None:
        syncs_s = 0.0
        try:
            self._result, syncs_s = self._work()
        except NodeDown:
            raise
        except BaseException as error:  # noqa: BLE001 - it is raised again where it is waited for
            self._error = error
        self._loop.call_later(rest_s + syncs_s, self._tell)

    def _tell(self) -> None:
        if self._answer.done():
            return  # cancelled: nobody hears of it
        if self._error is None:
            self._answer.set_result(self._result)
        else:
            self._answer.set_exception(self._error)
