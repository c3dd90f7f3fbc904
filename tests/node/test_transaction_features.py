"""What depends on `transaction.version` and on whether two-phase commit is allowed, at the door of a node."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from every_api_check import E
from every_txn_api import added, begun, described, find
from fencepost.cluster.wire.api import ApiKey
from scraping import samples, value_of
from sim_node import SimNode, batch
from txn_talk import Producer, records

UP, DOWN = 1, 2
NO_TIMEOUT_MS = 2**31 - 1


@contextmanager
def started(**settings: str) -> Iterator[SimNode]:
    few = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
    node = SimNode(seed="features", **few | settings)
    node.start()
    node.create_topic("topic", 2)
    try:
        yield node
    finally:
        node.close()


def level_of(node: SimNode) -> int:
    reply = node.ask(ApiKey.api_versions, client_software_name="tests", client_software_version="1")
    found = {each.name: each.max_version_level for each in reply.finalized_features}
    return int(found.get("transaction.version", 0))


def set_level(node: SimNode, level: int, kind: int) -> E:
    update = {"feature": "transaction.version", "max_version_level": level, "upgrade_type": kind}
    reply = node.ask(ApiKey.update_features, timeout=5_000, feature_updates=[update])
    error: E = reply.error_code
    return error


def ended(node: SimNode, who: Producer, version: int = 5) -> Any:
    return node.ask(ApiKey.end_txn, version, **who.fields, committed=True)


def test_a_new_cluster_begins_at_the_level_of_epochs_by_transaction() -> None:
    with started() as node:
        assert level_of(node) == 2
        assert set_level(node, 3, UP) is E.invalid_update_version
        assert set_level(node, 0, UP) is E.invalid_update_version
        assert set_level(node, 0, DOWN) is E.none
        assert level_of(node) == 0
        assert set_level(node, 2, UP) is E.none
        assert level_of(node) == 2


def test_the_level_may_change_between_two_transactions_of_one_producer() -> None:
    with started() as node:
        who = begun(node, "pay")
        for level, kind in ((0, DOWN), (2, UP), (0, DOWN)):
            assert set_level(node, level, kind) is E.none
            for version in (4, 5):
                assert added(node, who) == [E.none]
                answer = ended(node, who, version)
                assert answer.error_code is E.none, (level, version)
                if version >= 5:
                    who.became(answer)
            assert described(node, "pay").producer_epoch == who.producer_epoch


def written(node: SimNode, who: Producer, version: int) -> E:
    data = records(b"x", who)
    reply = node.ask(
        ApiKey.produce,
        version,
        transactional_id=who.transactional_id,
        acks=-1,
        timeout=5_000,
        topic_data=[{"name": "topic", "partition_data": [{"index": 1, "records": data}]}],
    )
    error: E = reply.responses[0].partition_responses[0].error_code
    return error


def test_a_write_adds_its_partition_only_at_the_level_that_has_it() -> None:
    """At level 0 Kafka 4.3 answers UNSUPPORTED_VERSION here, and goes on with CONCURRENT_TRANSACTIONS for ever."""
    with started() as node:
        who = begun(node, "pay", 5)
        assert written(node, who, 12) is E.none
        who.became(ended(node, who))
        assert set_level(node, 0, DOWN) is E.none
        assert written(node, who, 12) is E.transaction_abortable
        assert added(node, who, 3, ("topic", 1)) == [E.none]
        assert written(node, who, 12) is E.none
        assert ended(node, who, 4).error_code is E.none


def test_the_coordinators_topic_is_made_when_somebody_looks_for_one_as_kafka_makes_it() -> None:
    name = "__transaction_state"
    with started(**{"transaction.state.log.num.partitions": "50"}) as node:
        assert name not in {each.name for each in node.ask(ApiKey.metadata, topics=None).topics}
        find(node, "pay", 1)
        (topic,) = (
            each for each in node.ask(ApiKey.metadata, topics=None).topics if each.name == name
        )
        assert (topic.is_internal, len(topic.partitions)) == (True, 50)
        asked = [{"resource_type": 2, "resource_name": name, "configuration_keys": None}]
        (described,) = node.ask(ApiKey.describe_configs, resources=asked).results
        found = {each.name: each.value for each in described.configs if each.config_source == 1}
        assert found == {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "1",
            "segment.bytes": "104857600",
            "unclean.leader.election.enable": "false",
        }
        node.topic_ids[name] = topic.topic_id
        assert node.produce(name, batch(b"x")).error_code is E.invalid_topic_exception


def begin(node: SimNode, name: str, **more: Any) -> Any:
    find(node, name, 1)
    fields = {"transactional_id": name, "transaction_timeout": 60_000, **more}
    return node.ask(ApiKey.init_producer_id, 6, **fields)


def test_nobody_prepares_transactions_where_that_is_not_allowed() -> None:
    """KIP-939: `transaction.two.phase.commit.enable` is off unless somebody says otherwise."""
    with started() as node:
        begun(node, "warm")
        for more in ({"enable2_pc": True}, {"keep_prepared_txn": True}):
            refused = begin(node, "pay", **more)
            assert refused.error_code is E.transactional_id_authorization_failed
        assert begin(node, "pay").error_code is E.none


def test_a_prepared_transaction_outlives_its_producer_and_is_ended_by_the_next() -> None:
    with started(**{"transaction.two.phase.commit.enable": "true"}) as node:
        begun(node, "warm")
        first = begin(node, "pay", enable2_pc=True, transaction_timeout=NO_TIMEOUT_MS)
        assert (first.error_code, first.ongoing_txn_producer_id) == (E.none, -1)
        who = Producer("pay")
        who.became(first)
        assert added(node, who) == [E.none]
        node.sleep(1_000)  # no timeout ends it
        kept = begin(node, "pay", enable2_pc=True, keep_prepared_txn=True)
        assert kept.error_code is E.none
        ongoing = (kept.ongoing_txn_producer_id, kept.ongoing_txn_producer_epoch)
        assert ongoing == (who.producer_id, who.producer_epoch)
        heir = Producer("pay")
        heir.became(kept)
        assert ended(node, who).error_code in (E.producer_fenced, E.invalid_producer_epoch)
        assert ended(node, heir).error_code is E.none
        node.sleep(1)
        assert described(node, "pay").transaction_state == "CompleteCommit"


def test_one_that_waits_for_its_owner_counts_as_late_though_its_coordinator_knows_it() -> None:
    """A partition can't tell it from one that hangs, so FencepostHangingTransaction says how to."""
    with started(**{"transaction.two.phase.commit.enable": "true"}) as node:
        begun(node, "warm")
        who = Producer("pay")
        who.became(begin(node, "pay", enable2_pc=True, transaction_timeout=NO_TIMEOUT_MS))
        assert added(node, who) == [E.none]
        data = [{"index": 0, "records": records(b"x", who)}]
        topic = {"topic_id": node.topic_ids["topic"], "partition_data": data}
        sent = {"transactional_id": "pay", "acks": -1, "timeout": 5_000, "topic_data": [topic]}
        reply = node.ask(ApiKey.produce, **sent)
        assert reply.responses[0].partition_responses[0].error_code is E.none
        node.sleep(1_500)
        assert described(node, "pay").transaction_state == "Ongoing"
        found = samples(node.run(node.broker.metrics.scrape.text).decode())
        assert value_of(found, "fencepost_hanging_transaction_partitions") == 1
