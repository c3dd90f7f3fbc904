"""The owner of a node's long-lived tasks.

INVARIANT  an exception that nobody caught ends the node; it never becomes a line in a log.
PREVENTS   a node that goes on serving with its flusher, its replicator or its quorum silently gone.
PROVED BY  tests/cluster/base/test_tasks.py::test_a_task_that_raises_ends_the_node
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any, Final

from .request_scope import enter_scope

# Tasks that are cancelled may start others while they end; more rounds than this is a loop.
CANCEL_ROUNDS_MAX: Final = 100


class TaskOwner:
    """Spawns, supervises and, at the end, cancels. `context` is what every task runs in."""

    def __init__(
        self, die: Callable[[BaseException], None], context: Callable[[], Context] | None = None
    ) -> None:
        self._die = die
        self._context = context
        self._tasks: dict[asyncio.Task[None], None] = {}  # a dict, for its order

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        loop = asyncio.get_running_loop()
        context = copy_context() if self._context is None else self._context()
        context.run(enter_scope, None)  # it outlives the request, if any, that had it started
        task = loop.create_task(work, name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        reason = task.exception()
        if reason is not None:
            self._die(reason)

    async def cancel_all(self) -> None:
        """Cancel every task but the caller and wait until they have ended."""
        for _ in range(CANCEL_ROUNDS_MAX):
            tasks = [task for task in self._tasks if task is not asyncio.current_task()]
            if not tasks:
                return
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await asyncio.sleep(0)  # their done callbacks run
        raise AssertionError(f"tasks go on starting tasks while they end: {self.names()}")

    def names(self) -> list[str]:
        return [task.get_name() for task in self._tasks]
