"""One broker for all client suites of a session: Fencepost, or a real Kafka to see that the suites are right."""

import os
import re
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from support.fencepost_process import fencepost
from support.kafka_peer import KafkaPeer, NotFetched
from support.needs import give_up, missing

# Kafka's defaults, but for two waits that are long because clusters are large: three seconds for more
# members before a group's first assignment, and five between a KIP-848 member's heartbeats.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}
_number = count(1)


def as_variables(settings: dict[str, str]) -> dict[str, str]:
    """How `fencepost dev` is told the same: FENCEPOST_GROUP_INITIAL_REBALANCE_DELAY_MS=0."""
    return {f"FENCEPOST_{name.upper().replace('.', '_')}": v for name, v in settings.items()}


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    """FENCEPOST_TEST_BOOTSTRAP=host:port, FENCEPOST_TEST_AGAINST=kafka, or by default a new node."""
    address = os.environ.get("FENCEPOST_TEST_BOOTSTRAP")
    against = os.environ.get("FENCEPOST_TEST_AGAINST", "fencepost")
    if address is not None:
        yield address
    elif against == "kafka":
        if reason := missing("kafka"):
            give_up(reason)
        try:
            peer = KafkaPeer(settings=SETTINGS)
        except NotFetched as error:
            give_up(str(error))
        with peer:
            yield peer.bootstrap
    else:
        assert against == "fencepost", f"FENCEPOST_TEST_AGAINST={against}: kafka or fencepost"
        with fencepost(environment=as_variables(SETTINGS)) as node:
            yield node.bootstrap


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
