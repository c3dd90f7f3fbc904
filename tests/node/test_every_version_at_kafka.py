"""The checks of `test_every_version.py` put to a real Kafka: what we expect of ourselves is what it does."""

from collections.abc import Iterator

import pytest
from every_api import CHECKS
from every_api_check import EMPTY, TOPIC, E
from every_group_api import find
from fencepost.cluster.wire.api import SUPPORTED, ApiKey
from fencepost.node.handlers import APIS
from kafka_node import KafkaNode, fresh_kafka
from lying_batches import LIES, UNKNOWN_TO_KAFKA
from sim_node import batch

SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaNode]:
    with fresh_kafka(SETTINGS) as node:
        for name in (TOPIC, EMPTY):
            node.create_topic(name, 2)
        assert node.produce(TOPIC, batch(b"a", b"b", b"c")).error_code == 0
        wait_for_coordinator(node)
        yield node


def wait_for_coordinator(node: KafkaNode) -> None:
    """Kafka names a coordinator before that has loaded what it coordinates."""
    find(node, "any")
    fields = {"generation_id": 1, "member_id": "nobody", "group_instance_id": None}
    for _ in range(200):
        group = node.ask(ApiKey.heartbeat, group_id="any", **fields)
        ids = node.ask(ApiKey.init_producer_id, transactional_id=None, transaction_timeout=1_000)
        if group.error_code is E.unknown_member_id and ids.error_code is E.none:
            return
        node.sleep(0.05)
    raise AssertionError("Kafka's coordinators did not load")


# This Kafka's voters are in its settings: it changes none, whatever is asked. What its tool says to our nodes is in
# tests/clients/test_kafka_voters.py.
OF_VOTERS = {ApiKey.add_raft_voter, ApiKey.remove_raft_voter}


@pytest.mark.slow
@pytest.mark.of_kafka
@pytest.mark.needs("kafka")
@pytest.mark.parametrize(
    "key", [key for key in APIS if key not in OF_VOTERS], ids=lambda key: key.name
)
def test_kafka_passes_the_check_in_every_version(kafka: KafkaNode, key: int) -> None:
    low, high = SUPPORTED[key]
    if key is ApiKey.init_producer_id:
        high = 5  # it advertises 6 (KIP-939) only where unstable versions are allowed
    for version in range(low, high + 1):
        try:
            CHECKS[key](kafka, version)
        except AssertionError as different:
            different.add_note(f"version {version}")
            raise


@pytest.mark.slow
@pytest.mark.of_kafka
@pytest.mark.needs("kafka")
@pytest.mark.parametrize("lie", LIES)
def test_kafka_refuses_a_lying_batch_with_this_error(kafka: KafkaNode, lie: str) -> None:
    sent, error = LIES[lie]
    expected = E.unknown_server_error if lie in UNKNOWN_TO_KAFKA else error
    assert kafka.produce(EMPTY, sent).error_code is expected
