"""Runs the order services, each in a process of its own, which is killed by SIGKILL where it is told to.

Reads lines of JSON, `{"service": "half"|"outbox"|"relay"|"checks", …}`, and answers with the exit code of each: -9 for a blow that
fell. It forks before it has anything of Kafka's, so that a run takes no time to begin.
"""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/order_service"
sys.path.insert(0, str(EXAMPLE))

from fencepost.clients.transactional import AdminApi  # noqa: E402 - the example is no package
from half_message_service import OrderService  # noqa: E402
from outbox_service import OutboxService, Relay  # noqa: E402
from shop import Order, Shop  # noqa: E402

CHECKS_S = 40.0


def striking(at: str) -> Callable[[str], None]:
    def on_step(step: str) -> None:
        if step == at:
            os.kill(os.getpid(), signal.SIGKILL)

    return on_step


def run(told: dict[str, Any]) -> None:
    shop, on_step = Shop(Path(told["shop"])), striking(told["strike"])
    topic, name = told["topic"], told["name"]
    order = Order(told["order"], "book", told["cents"])
    if told["service"] == "outbox":
        OutboxService(shop, on_step).place(order)
        return
    if told["service"] == "relay":
        relay = Relay(told["bootstrap"], shop, topic=topic, name=name, on_step=on_step)
        while relay.step():
            pass
        return
    admin = AdminApi(told["admin"])
    service = OrderService(told["bootstrap"], admin, shop, topic=topic, group=name, on_step=on_step)
    if told["service"] == "half":
        service.place(order)
        return
    with service:  # it answers checks until none waits
        deadline = time.monotonic() + CHECKS_S
        while any(
            each["group"] == service.group
            for each in admin.call("GET", "/v1/checks")["half_messages"]
        ):
            assert time.monotonic() < deadline, "a half message waits for its check"
            time.sleep(0.02)


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
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
