"""Batches in flight while their partition comes to this node: a later one must not overtake one that was sent away."""

import errno
from typing import Any

import pytest
from fencepost.chaos.sim.cluster_nodes import CLIENT_PORT, node_name
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient
from fencepost.cluster.wire.records import Record, build_batch
from fencepost.node.server.overtaking import REFUSED_MAX, RefusedBatches
from sim_cluster import CLIENT, Cluster
from sim_node import NODE, PORT, SimNode

E = ErrorCode
BY_NAME = 12  # the last version of Produce that names topics
PLACE = ("t", 0)


def batch(sequence: int, *, producer_id: int = 7, epoch: int = 0) -> bytes:
    rows = [Record(place, 1_000, None, b"%d" % (sequence + place), ()) for place in range(4)]
    return build_batch(rows, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def to_topic(data: bytes) -> dict[str, Any]:
    parts = [{"index": 0, "records": data}]
    return {
        "acks": -1, "timeout": 5_000, "transactional_id": None,
        "topic_data": [{"name": "t", "partition_data": parts}],
    }  # fmt: skip


def code_of(reply: Any) -> ErrorCode:
    return ErrorCode(reply.responses[0].partition_responses[0].error_code)


def test_a_batch_does_not_overtake_one_that_came_before_its_topic() -> None:
    """A partition takes any sequence of a producer that is new to it; the first batch would be out of order for ever."""
    node = SimNode(seed="overtaking")
    node.start()

    def send(sequence: int, **who: int) -> ErrorCode:
        data = batch(sequence, **who)
        return code_of(node.ask(ApiKey.produce, BY_NAME, **to_topic(data)))

    try:
        assert send(4) is E.unknown_topic_or_partition
        assert send(0) is E.unknown_topic_or_partition
        node.create_topic("t")
        assert send(4) is E.not_leader_or_follower
        assert send(4, producer_id=8) is E.none  # of another, nothing was sent away
        assert send(0) is E.none
        assert send(4) is E.none
        assert send(4) is E.none  # a retry
    finally:
        node.close()


def test_one_that_came_by_another_connection_is_waited_for_no_longer() -> None:
    """What follows on a full disk was counted from it: the third round was out of order, and its producer ended."""
    node = SimNode(seed="overtaking")
    node.start()

    def send(sequence: int, wire: WireClient) -> ErrorCode:
        async def produce() -> ErrorCode:
            fields = to_topic(batch(sequence))
            return code_of(await wire.request(ApiKey.produce, BY_NAME, **fields))

        return node.run(produce)

    other = WireClient(node.env, NODE, PORT, timeout_s=60.0)
    try:
        assert send(0, node.wire) is E.unknown_topic_or_partition
        node.create_topic("t")
        assert send(0, other) is E.none
        assert send(4, node.wire) is E.none
        for _ in range(3):
            disk = node.world.disk(NODE).faults
            disk.fail("append", path="*/t-0/*.log", number=errno.ENOSPC)
            for sequence in range(8, 24, 4):
                assert send(sequence, node.wire) is not E.out_of_order_sequence_number
    finally:
        node.run(other.close)
        node.close()


@pytest.mark.slow
@pytest.mark.parametrize("is_known", [False, True])
def test_a_batch_does_not_overtake_one_that_came_before_the_lead(is_known: bool) -> None:
    """Nor is it called out of order: on that librdkafka begins a new epoch, and sends again what is written already."""
    cluster = Cluster(seed="overtaking the lead")

    async def scenario() -> None:
        await cluster.create("t")
        await cluster.until(lambda: len(cluster.partition().isr) == 3)
        leader = cluster.leaders()[0]
        follower = next(each for each in cluster.nodes.ids if each != leader)
        client = cluster.world.node(CLIENT)

        async def follower_leads() -> None:
            cluster.kill(leader)
            await cluster.until(lambda: cluster.leaders() not in ([], [leader]))
            if cluster.leaders()[0] != follower:
                pytest.fail("another node leads: choose another seed")

        async def work() -> None:
            before = WireClient(client, node_name(leader), CLIENT_PORT, timeout_s=60.0)
            if is_known:
                fields = to_topic(batch(0))
                assert code_of(await before.request(ApiKey.produce, BY_NAME, **fields)) is E.none
            await before.close()
            wire = WireClient(client, node_name(follower), CLIENT_PORT, timeout_s=60.0)

            async def send(sequence: int) -> ErrorCode:
                fields = to_topic(batch(sequence))
                return code_of(await wire.request(ApiKey.produce, BY_NAME, **fields))

            first = 4 if is_known else 0
            assert await send(first) is E.not_leader_or_follower
            await follower_leads()
            assert await send(first + 4) is E.not_leader_or_follower
            assert await send(first) is E.none
            assert await send(first + 4) is E.none
            await wire.close()

        await cluster.world.on(client, work())

    cluster.play(scenario)


def test_a_batch_that_is_garbage_or_has_no_sequence_is_not_remembered() -> None:
    refused = RefusedBatches()
    refused.note(PLACE, memoryview(b"garbage"))
    refused.note(PLACE, memoryview(build_batch([Record(0, 1_000, None, b"x", ())])))
    assert not refused


def test_a_new_epoch_begins_anew() -> None:
    refused = RefusedBatches()
    refused.note(PLACE, memoryview(batch(0)))
    assert refused.before(PLACE, memoryview(batch(4, epoch=1))) is None
    waited_for = refused.before(PLACE, memoryview(batch(4)))
    assert waited_for is not None
    assert waited_for.base_sequence == 0


def test_what_a_connection_has_remembered_is_bounded() -> None:
    refused = RefusedBatches()
    for producer_id in range(REFUSED_MAX + 1):
        refused.note(PLACE, memoryview(batch(0, producer_id=producer_id)))
    assert refused.before(PLACE, memoryview(batch(4, producer_id=0))) is None
    assert refused.before(PLACE, memoryview(batch(4, producer_id=1))) is not None
