"""Every API in every version: the smallest legal request and typical ones, good and bad.

What is expected was seen at Apache Kafka 4.3.0, which was asked the same.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from every_api import CHECKS
from every_api_check import EMPTY, TOPIC, E
from fencepost.cluster.wire.api import SUPPORTED, ApiKey
from fencepost.node.handlers import APIS
from sim_node import SimNode, batch


@pytest.fixture(scope="module")
def node() -> Iterator[SimNode]:
    simulated = SimNode(seed="every version")
    simulated.start()
    for name in (TOPIC, EMPTY):
        simulated.create_topic(name, 2)
    assert simulated.produce(TOPIC, batch(b"a", b"b", b"c")).error_code is E.none
    yield simulated
    simulated.close()


def every_version() -> Iterator[Any]:
    for key in APIS:
        low, high = SUPPORTED[key]
        for version in range(low, high + 1):
            yield pytest.param(key, version, id=f"{key.name}-v{version}")


@pytest.mark.parametrize(("key", "version"), list(every_version()))
def test_each_version_of_each_api_answers_as_kafka_does(
    node: SimNode, key: ApiKey, version: int
) -> None:
    CHECKS[key](node, version)
    assert "client_request_failed" not in node.events


def test_every_api_has_a_check() -> None:
    assert set(CHECKS) == set(APIS)
