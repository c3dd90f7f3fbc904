"""The same brokers for all client suites of a session: see `brokers.py` for who they may be."""

import os
import re
import warnings
from collections.abc import Callable, Generator, Iterator
from itertools import count

import pytest
from _pytest.runner import runtestprotocol
from brokers import IN_CHAOS, brokers
from confluent_kafka import KafkaError, KafkaException

# Kafka's defaults, but for two waits that are long because clusters are large: three seconds for more
# members before a group's first assignment, and five between a KIP-848 member's heartbeats.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}
_number = count(1)
TRIES = 3
TIMEOUT_S = 400  # of one test while leaders die
GAVE_UP = pytest.StashKey[bool]()


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


def pytest_configure(config: pytest.Config) -> None:
    """kafka-python leaves the sockets of refused connections to the collector, which may come much later."""
    if IN_CHAOS:
        ignored = "ignore::pytest.PytestUnraisableExceptionWarning"
        config.addinivalue_line("filterwarnings", ignored)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if IN_CHAOS:
        for item in items:
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    """The filters above hold for tests; the last look for such sockets comes after them."""
    if IN_CHAOS:
        warnings.simplefilter("ignore", pytest.PytestUnraisableExceptionWarning)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Whether the client gave up a request whose broker died: librdkafka sends an admin's only once."""
    error = call.excinfo.value if call.excinfo is not None else None
    if isinstance(error, KafkaException) and error.args[0].code() == KafkaError._TRANSPORT:
        item.stash[GAVE_UP] = True
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """While leaders die, a test whose client gave up so is asked again. What it found is never asked again."""
    if not IN_CHAOS:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for left in reversed(range(TRIES)):
        item.stash[GAVE_UP] = False
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if not (item.stash[GAVE_UP] and left):
            break
        item._initrequest()  # type: ignore[attr-defined]
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
