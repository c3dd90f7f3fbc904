"""The same brokers for all client suites of a session: see `brokers.py` for who they may be."""

import os
import re
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from brokers import brokers

# Kafka's defaults, but for two waits that are long because clusters are large: three seconds for more
# members before a group's first assignment, and five between a KIP-848 member's heartbeats.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}
_number = count(1)


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    with brokers(SETTINGS) as address:
        yield address


@pytest.fixture
def fresh(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """`fresh("orders")`: a name that no other test uses, and that tells in a log whose it is."""
    test = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[:40]

    def name(of: str) -> str:
        return f"{of}.{test.strip('-')}.{os.getpid()}.{next(_number)}"

    return name


@pytest.fixture
def topic(fresh: Callable[[str], str]) -> str:
    return fresh("topic")


@pytest.fixture
def group(fresh: Callable[[str], str]) -> str:
    return fresh("group")
