"""Runs sources, each in a process of its own, which is killed by SIGKILL where it is told to.

Reads lines of JSON, `{"settings": {…}, "step": "committing", "nth": 1, "delay_ms": 0}`, and answers with the exit code of each: -9
for a blow that fell. It forks before it has anything of Kafka's, so that a run takes no time to begin.
"""

import json
import os
import signal
import sys
import threading
import traceback
from typing import Any

from fencepost.clients.binlog import BinlogSource, Settings


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run(told: dict[str, Any]) -> None:
    seen = 0

    def on_step(step: str) -> None:
        nonlocal seen
        seen += step == told["step"]
        if step == told["step"] and seen == told["nth"]:
            if told["delay_ms"]:
                threading.Timer(told["delay_ms"] / 1_000, kill).start()
            else:
                kill()

    settings = {**told["settings"], "tables": tuple(told["settings"]["tables"])}
    BinlogSource(Settings(**settings), on_step).run()


def main() -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                run(json.loads(line))
            except BaseException:  # noqa: BLE001 - a child must not go on as its parent
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
