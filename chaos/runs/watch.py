"""Who leads what, who is in sync and how much was acknowledged, about each second, for the report.

INVARIANT  there is a line for each look, with what the machine had to do then; of a look that failed it says why (`not_seen`).
PREVENTS   a thread that ends when a container is gone for a moment: from then on nothing is known of the cluster, and its last line's
           load excuses all that is late.
PROVED BY  tests/chaos/test_watch.py::test_a_look_that_fails_is_told_and_the_next_one_comes
"""

import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from .folder import SEEN, RunFolder

EVERY_S: Final = 1.0


class Watch:
    """A thread of its own, since nodes that are paused answer late. `ask` gives what can be asked now."""

    def __init__(
        self,
        folder: RunFolder,
        ask: Callable[[], dict[str, Any]],
        counts: Callable[[], dict[str, int]],
        now_s: Callable[[], float],
    ) -> None:
        self._folder = folder
        self._ask = ask
        self._counts = counts
        self._now_s = now_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            at_s = round(self._now_s(), 3)
            try:
                seen = self._ask()
            except Exception as failed:  # noqa: BLE001 - it is told, and the next look comes
                seen = {"not_seen": f"{type(failed).__name__}: {failed}"}
            load = round(os.getloadavg()[0] / (os.cpu_count() or 1), 2)  # of each core
            self._folder.append(SEEN, [{"at_s": at_s, **seen, **self._counts(), "load": load}])
            self._stopping.wait(max(0.0, EVERY_S - (time.monotonic() - began)))

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(10.0)
