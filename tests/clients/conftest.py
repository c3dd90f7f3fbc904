"""The same brokers for all client suites of a session: see `brokers.py` for who they may be."""

import os
import re
import warnings
from collections.abc import Callable, Generator, Iterator
from itertools import count
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from brokers import IN_CHAOS, NOTICED_S, brokers, died
from client_programs import Programs, programs
from confluent_kafka import KafkaError, KafkaException

# Kafka's defaults, but for waits that are long because clusters are large: three seconds for more members
# before a group's first assignment, six at least for a classic session, and five between a KIP-848 member's heartbeats.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}
if IN_CHAOS:
    # A member that left says so once. If its coordinator dies just then it is missed after its session, which begins
    # anew with each coordinator, on Kafka too: 45 seconds are not had while leaders die.
    SETTINGS |= {
        "group.consumer.min.session.timeout.ms": "10000",
        "group.consumer.session.timeout.ms": "10000",
    }
HERE = Path(__file__).parent
_number = count(1)
TRIES = 3
TIMEOUT_S = 400 if IN_CHAOS else 150  # of one test: WAIT_S several times
GAVE_UP = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def foreign(request: pytest.FixtureRequest) -> Iterator[Programs]:
    """The programs in other languages, and the brokers that all suites meet."""
    with brokers(SETTINGS) as address, programs(request.session.items, address) as begun:
        yield begun


@pytest.fixture(scope="session")
def bootstrap(foreign: Programs) -> str:
    return foreign.bootstrap


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
    for item in items:
        is_here = HERE in item.path.parents
        if is_here and item.get_closest_marker("timeout") is None:
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
    if (
        call.excinfo is not None
        and gave_up(call.excinfo)
        and died(None, call.start - NOTICED_S, call.stop)
    ):
        item.stash[GAVE_UP] = True
    return (yield)


def gave_up(raised: pytest.ExceptionInfo[BaseException]) -> bool:
    """Librdkafka sends an admin's request only once.

    kafka-python's admin client (3.0.12) asks each node that it knows of, once (admin/_groups.py,
    _async_list_groups), and takes the controller from an answer whose nodes it does not take: one that
    has come back since is unknown to it (admin/client.py, _refresh_controller_id).
    """
    error = raised.value
    if isinstance(error, KafkaException):
        return bool(error.args[0].code() == KafkaError._TRANSPORT)
    kind = f"{type(error).__module__}.{type(error).__name__}"
    given_up = kind in ("kafka.errors.KafkaConnectionError", "kafka.errors.UnknownBrokerIdError")
    return given_up and any("/kafka/admin/" in str(entry.path) for entry in raised.traceback)


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
