"""What a library does at an end, and may wait in for others as long as it likes: waited for so long and no longer.

INVARIANT  neither the loop nor the end of the process waits for it longer than it is given.
PREVENTS   a node that was told to stop and is killed, because a collector of spans never ends its answer.
PROVED BY  tests/node/test_spans_collector.py::test_no_collector_holds_up_a_stop
"""

import asyncio
import threading
from collections.abc import Callable


async def wait_at_most(seconds: float, work: Callable[[], None], *, name: str) -> None:
    """On a thread of its own: the loop's executor is waited for when the loop ends."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    await asyncio.get_running_loop().run_in_executor(None, thread.join, seconds)
