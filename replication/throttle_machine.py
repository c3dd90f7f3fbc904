"""Limits on what replicas that are not in sync may cost (KIP-73): so many bytes a second, and for whom.

INVARIANT  over any time, no more than rate x time + one second's worth + one batch a partition goes through.
PREVENTS   a move of partitions taking the disk and the network from clients and from replicas that are in sync.
PROVED BY  tests/replication/test_throttle_machine.py::test_no_more_goes_through_than_the_rate_says
"""

from collections.abc import Sequence
from typing import Final

NO_LIMIT: Final = 2**63 - 1
BURST_S: Final = 1.0
EVERYONE: Final = "*"


def is_throttled(replicas: Sequence[str], partition: int, broker_id: int) -> bool:
    """`replicas` as in leader.replication.throttled.replicas: `partition:broker`, or all of them."""
    if not replicas:
        return False
    return EVERYONE in replicas or f"{partition}:{broker_id}" in replicas


class ByteBucket:
    """Bytes that may go now; one that is over-drawn (batches are whole) waits until it is paid."""

    __slots__ = ("_at_s", "_bytes", "rate")

    def __init__(self, rate: int = NO_LIMIT) -> None:
        self.rate = rate
        self._bytes = 0.0
        self._at_s = 0.0

    def set_rate(self, rate: int) -> None:
        if rate != self.rate:
            self.rate = rate
            self._bytes = min(self._bytes, 0.0)

    @property
    def is_limited(self) -> bool:
        return self.rate != NO_LIMIT

    def available(self, now_s: float) -> int:
        if not self.is_limited:
            return NO_LIMIT
        passed = max(0.0, now_s - self._at_s)
        self._at_s = now_s
        self._bytes = min(self._bytes + passed * self.rate, BURST_S * self.rate)
        return int(self._bytes)

    def take(self, count: int) -> None:
        if self.is_limited:
            self._bytes -= count
