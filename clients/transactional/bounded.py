"""A call into librdkafka that gets no more time than it was given, because librdkafka may forget how much that was.

INVARIANT  `bounded` comes back with what the call gave or raised, or with CallHangs when its time is over.
PREVENTS   a loop that stands still for as long as the node is away that coordinated its group.
PROVED BY  tests/clients/test_transactional_bounded.py::test_a_call_that_never_comes_back_is_given_up

librdkafka 2.10 to 2.16: a node that the metadata no longer names is taken off its list and its thread ended
(`rd_kafka_broker_decommission`), but it stays in the cache of group coordinators. `send_offsets_to_transaction` then waits
for that connection (`rd_kafka_coord_req_fsm`), until any other connection comes or goes; the timeout of the
call is kept (`creq_ts_timeout`) and never looked at. Its issues 5511 and 5456.

And 2.16, seen once in about 600 tries at it: `close` answers partitions that come in that very moment (`rd_kafka_assign`), and
waits for an answer of a group that is no more. Its issue 4884. No signal is heard in there, so the process could not be ended either.
"""

import threading
from collections.abc import Callable
from typing import Any

__all__ = ["CallHangs", "bounded"]


class CallHangs(Exception):
    """The call is still under way, in a thread of its own. Give up what it belongs to; a producer must be fenced."""


def bounded(call: Callable[[], Any], timeout_s: float, what: str) -> Any:
    """`call`, for so long at most. The thread of one that hangs ends with the call, or with the process."""
    results: list[Any] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            results.append(call())
        except BaseException as trouble:  # noqa: BLE001 - raised again below, where somebody waits for it
            raised.append(trouble)

    thread = threading.Thread(target=work, name=what, daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        raise CallHangs(f"{what} has not come back in {timeout_s:g} s")
    if raised:
        raise raised[0]
    return results[0]
