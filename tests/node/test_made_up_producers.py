"""Producers that somebody has made up: what a partition would remember of each, for a day, must not be kept."""

from collections.abc import Iterator
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.wire.api import ApiKey
from fencepost.replication.log.verifications_machine import Verifications
from sim_node import SimNode
from txn_answers import SETTINGS, prepare
from txn_talk import TOPIC, Producer, Talk, records

E = ErrorCode
FIRST = TopicPartition(TOPIC, 0)
OLD, NEW = 11, 12  # versions of Produce: the client adds partitions itself, or the broker does
MADE_UP = [5_000 + number for number in range(10)]


@pytest.fixture
def node() -> Iterator[SimNode]:
    node = SimNode(seed="made up producers", **SETTINGS)
    node.start()
    yield node
    node.close()


def produce(node: SimNode, version: int, *producer_ids: int, epoch: int = 0) -> list[ErrorCode]:
    rows = [
        {"index": 0, "records": records(b"x", Producer("nobody", each, epoch))}
        for each in producer_ids
    ]
    reply = node.ask(
        ApiKey.produce,
        version,
        transactional_id="nobody",
        acks=-1,
        timeout=5_000,
        topic_data=[{"name": TOPIC, "partition_data": rows}],
    )
    answers: list[Any] = reply.responses[0].partition_responses
    return [each.error_code for each in answers]


def remembered(node: SimNode) -> list[int]:
    waiting: Verifications = node.broker.replicas.partitions[FIRST].producers.verifications
    return [each for each in MADE_UP if waiting.of(each) is not None]


@pytest.mark.parametrize("version", [OLD, NEW])
def test_of_several_in_one_request_nothing_is_kept(node: SimNode, version: int) -> None:
    """They are refused all together and nobody is asked about them: a request of 5 MB left 20,000."""
    prepare(node)
    assert set(produce(node, version, *MADE_UP)) == {E.invalid_producer_id_mapping}
    assert remembered(node) == []


def test_nor_do_they_keep_out_a_producer_whose_id_one_of_them_has(node: SimNode) -> None:
    """A later epoch of it was waited for, for a day: no word on its own counted."""
    prepare(node)
    talk = Talk(node)
    who = talk.begun("begin", "somebody")
    refused = produce(node, NEW, who.producer_id, *MADE_UP, epoch=who.producer_epoch + 1)
    assert set(refused) == {E.invalid_producer_id_mapping}
    reply = talk.produce("produce", who, NEW)
    assert reply.responses[0].partition_responses[0].error_code is E.none


@pytest.mark.parametrize("version", [OLD, NEW])
def test_nor_of_one_where_nobody_has_ever_begun_a_transaction(node: SimNode, version: int) -> None:
    """There is no coordinator to say that nobody knows it, and there won't be before somebody asks for one."""
    node.create_topic(TOPIC)
    for each in MADE_UP:
        assert produce(node, version, each) == [E.not_enough_replicas]
    assert remembered(node) == []
