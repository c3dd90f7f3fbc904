"""One node and one Spark for all of these suites: a JVM takes longer to start than most tests take."""

import re
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from spark_topics import Served, served
from support.kafka_peer import KafkaPeer, NotFetched
from support.needs import give_up, missing

NEEDS = ("jvm", "python:pyspark", "python:pyarrow")
_number = count(1)


@pytest.fixture(scope="session")
def node() -> Iterator[Served]:
    with served() as found:
        yield found


@pytest.fixture(scope="session")
def kafka() -> Iterator[Served]:
    if reason := missing("kafka"):
        give_up(reason)
    try:
        peer = KafkaPeer()
    except NotFetched as error:
        give_up(str(error))
    with peer:
        yield Served(peer.bootstrap, "")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """`local[2,4]`: two tasks at a time, and three retries."""
    for need in NEEDS:
        if reason := missing(need):
            give_up(reason)
    from fencepost.chaos.harness.spark_job import session
    from fencepost.chaos.harness.spark_strikes import StruckDataSource
    from fencepost.clients.spark import register

    made = session("local[2,4]")
    made.sparkContext.setLogLevel("OFF")
    register(made)
    made.dataSource.register(StruckDataSource)
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def no_producer_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tests leave attempts behind, as tasks that die do; each would cost its share of a core until the last test ends."""
    if missing("python:pyarrow"):
        yield
        return
    from fencepost.clients.spark.c_producer import ColumnProducer

    made = []
    begin = ColumnProducer.__init__

    def noted(producer: Any, settings: Any) -> None:
        begin(producer, settings)
        made.append(producer)

    monkeypatch.setattr(ColumnProducer, "__init__", noted)
    yield
    for each in made:
        each.close()


@pytest.fixture
def fresh(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """`fresh("orders")`: a name that no other test uses."""
    test = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[:40]
    return lambda of: f"{of}.{test.strip('-')}.{next(_number)}"


@pytest.fixture
def topic(fresh: Callable[[str], str], node: Served) -> str:
    name = fresh("topic")
    node.create(name, partitions=2)
    return name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whichever test is the last one ends Spark, Kafka and the node, too: on a machine that has other things to do a JVM takes
    longer for that than a test's usual limit."""
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(300))
