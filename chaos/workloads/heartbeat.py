"""Ends a process whose client library does not come back, whatever it is that it hangs in.

INVARIANT  once `watch` was called, a process that does not `beat` for `SILENT_S` ends with HUNG and says where all of its threads
           stand; if Python's lock is held, so that no thread of it runs, the kernel ends it after `LOCKED_S`.
PREVENTS   a client that stands still in a call which nobody thought of, and takes the cluster's good name with it.
PROVED BY  tests/chaos/test_heartbeat.py::test_a_process_that_stands_still_with_pythons_lock_held_is_ended_by_the_kernel

A library hangs in calls (commit, close), and outside of them: what was a producer is destroyed when its name is given to the
next one. So nothing has to be said before a call; it is enough to have beaten lately.
"""

import faulthandler
import os
import signal
import threading
import time
from typing import Final

SILENT_S: Final = 30.0  # each call that these clients make has a shorter timeout of its own
LOCKED_S: Final = 45.0
LOOK_S: Final = 1.0
LATE_S: Final = 3.0  # a look that late: the process itself was stopped meanwhile
HUNG: Final = 75
HANGS: Final = frozenset(
    {HUNG, -signal.SIGALRM}
)  # exit codes of a process whose library did not come back


class Heartbeat:
    """`beat` wherever there is progress, in any thread."""

    def __init__(self, silent_s: float = SILENT_S, locked_s: float = LOCKED_S) -> None:
        self._silent_s = silent_s
        self._locked_s = locked_s
        self._at = time.monotonic()

    def beat(self) -> None:
        self._at = time.monotonic()

    def watch(self) -> None:
        """For as long as this process lasts."""
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        self.beat()
        threading.Thread(target=self._watch, name="heartbeat", daemon=True).start()

    def _watch(self) -> None:
        looked = time.monotonic()
        while True:
            # Both of them work while this thread does not.
            faulthandler.dump_traceback_later(self._locked_s * 0.9)
            signal.setitimer(signal.ITIMER_REAL, self._locked_s)
            time.sleep(LOOK_S)
            now = time.monotonic()
            slept, looked = now - looked, now
            if slept > LOOK_S + LATE_S:
                self._at += slept
            if now - self._at > self._silent_s:
                faulthandler.dump_traceback()
                os._exit(HUNG)
