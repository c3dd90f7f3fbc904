"""How many clients there may be: over all listeners, and of one address.

INVARIANT  who is counted is uncounted once, when its connection ends.
PREVENTS   a node with two listeners letting in twice as many clients as somebody has measured that it can bear.
PROVED BY  tests/node/test_connection_limits.py::test_limits_count_the_connections_of_all_listeners_as_in_kafka

Kafka counts both `max.connections` and `max.connections.per.ip` over the whole broker (SocketServer's ConnectionQuotas).
"""

from collections import Counter
from typing import NamedTuple


class Full(NamedTuple):
    limit: str
    allowed: int


class Places:
    """The limits may be set at any time; who is there already stays."""

    def __init__(self, connections_max: int, connections_per_ip_max: int) -> None:
        self.connections_max = connections_max
        self.connections_per_ip_max = connections_per_ip_max
        self.taken = 0
        self._by_ip: Counter[str] = Counter()

    def full(self, host: str) -> Full | None:
        """Why there is none for somebody from there."""
        if self.taken >= self.connections_max:
            return Full("max.connections", self.connections_max)
        if self._by_ip[host] >= self.connections_per_ip_max:
            return Full("max.connections.per.ip", self.connections_per_ip_max)
        return None

    def take(self, host: str) -> None:
        self.taken += 1
        self._by_ip[host] += 1

    def leave(self, host: str) -> None:
        self.taken -= 1
        self._by_ip[host] -= 1
        if not self._by_ip[host]:
            del self._by_ip[host]
