"""The time by which producers age: it starts as the wall clock's, and goes on steadily.

INVARIANT  nobody grows old because the wall clock was set; nobody is forgotten in the first minutes after a start.
PREVENTS   a clock that was set a day ahead making a broker forget every producer, and write the next retry twice.
PROVED BY  tests/regressions/test_seeds.py::test_a_clock_that_was_set_ahead_makes_no_producer_forgotten

A clock may also have been set while the node was down, or before. So a start gives everyone the time in which a client
still retries (delivery.timeout.ms is two minutes in Java, five in librdkafka).
"""

from typing import Final

from fencepost.cluster.base.ports import Env

GRACE_MS: Final = 600_000


class ProducersClock:
    __slots__ = ("_env", "_since", "_start_ms")

    def __init__(self, env: Env) -> None:
        self._env = env
        self._start_ms = env.clock.now_ms()
        self._since = env.clock.steady()

    def now_ms(self) -> int:
        return self._start_ms + int((self._env.clock.steady() - self._since) * 1000)

    def may_expire(self, expiration_ms: int) -> bool:
        return self.now_ms() - self._start_ms >= min(GRACE_MS, expiration_ms)
