"""A topic is deleted and made again under its name, while a coordinator has not heard of either."""

import asyncio
from typing import Any

import pytest
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.cluster.base.ids import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.records import Record, build_batch
from fencepost.txn.runtime.ownership import partition_for
from group_coordinators import E, Groups, Producer, play

pytestmark = pytest.mark.slow
T = "made-anew"


class Place:
    """Who leads the partition of an internal topic that keeps a name: one that has what a scenario needs."""

    def __init__(self, groups: Groups, topic: str, is_fit: Any) -> None:
        states = groups.nodes.image.topics[topic].partitions
        for number in range(200):
            self.name = f"name-{number}"
            state = states[partition_for(self.name, len(states))]
            self.leader = int(state.leader)
            if is_fit(state):
                return
        raise AssertionError(f"no partition of {topic} is as it is needed here")


async def create(groups: Groups, via: int, replicas: list[int]) -> Any:
    assigned = [{"partition_index": 0, "broker_ids": replicas}]
    wanted = {"name": T, "num_partitions": -1, "replication_factor": -1, "assignments": assigned}
    topics = [{**wanted, "configs": []}]
    reply = await groups.ask(via, ApiKey.create_topics, 7, timeout=5_000, topics=topics)
    assert reply.topics[0].error_code is E.none
    return reply.topics[0].topic_id


async def delete(groups: Groups, via: int) -> None:
    topics = [{"name": T, "topic_id": None}]
    reply = await groups.ask(via, ApiKey.delete_topics, 6, timeout=5_000, topics=topics)
    assert reply.responses[0].error_code is E.none


async def make_anew(groups: Groups, via: int, replicas: list[int]) -> None:
    """Until the one who will lead it knows."""
    await delete(groups, via)
    topic_id = await create(groups, via, replicas)
    image = groups.nodes.broker(replicas[0]).image
    while (known := image.topics.get(T)) is None or known.topic_id != topic_id:
        await asyncio.sleep(0.01)


async def internal_topics(groups: Groups) -> int:
    """The controller, once there is a transaction coordinator, too."""
    await Producer(groups, "any").found()
    await groups.nodes.until_whole()
    controller = groups.nodes.controller()
    assert controller is not None
    return int(controller)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_position_in_the_new_topic_is_kept_by_a_coordinator_that_slept_meanwhile(
    seed: int, in_transaction: bool
) -> None:
    async def scenario(groups: Groups, _: int) -> None:
        nodes, controller = groups.nodes, await internal_topics(groups)
        group = Place(groups, GROUP_OFFSETS_TOPIC, lambda state: state.leader != controller)
        other = next(int(each) for each in nodes.ids if each not in (controller, group.leader))
        payer = Place(groups, TRANSACTION_STATE_TOPIC, lambda state: state.leader != group.leader)
        producer = Producer(groups, payer.name)
        if in_transaction:
            await groups.until(payer.leader, E.none, lambda: producer.init(payer.leader))
        await create(groups, controller, [other, group.leader, controller])
        await nodes.until_whole()
        groups.world.pause(node_name(group.leader))
        await make_anew(groups, controller, [other, controller])
        row = {"partition_index": 0, "committed_offset": 42, "committed_metadata": ""}
        topics = [{"name": T, "partitions": [{**row, "committed_leader_epoch": -1}]}]
        api, version = (
            (ApiKey.txn_offset_commit, 5) if in_transaction else (ApiKey.offset_commit, 8)
        )
        asked = {"group_id": group.name, "member_id": "", "topics": topics}
        asked |= producer.me if in_transaction else {}

        async def committed() -> Any:
            reply = await groups.ask(group.leader, api, version, **asked)
            return reply.topics[0].partitions[0].error_code

        waiting = asyncio.ensure_future(groups.until(group.leader, E.none, committed))
        await asyncio.sleep(0.5)
        groups.world.resume(node_name(group.leader))
        await waiting
        if in_transaction:
            assert await producer.commit(payer.leader) is E.none
        await asyncio.sleep(5)
        wanted = [{"name": T, "partition_indexes": [0]}]
        reply = await groups.ask(
            group.leader, ApiKey.offset_fetch, 7, group_id=group.name, topics=wanted
        )
        assert reply.topics[0].partitions[0].committed_offset == 42

    play(seed, scenario)


async def coordinated_elsewhere(groups: Groups, controller: int) -> tuple[Place, Producer]:
    """A producer of whose coordinator's partition the controller has no copy, with its id."""
    payer = Place(groups, TRANSACTION_STATE_TOPIC, lambda state: controller not in state.replicas)
    producer = Producer(groups, payer.name)
    await groups.until(payer.leader, E.none, lambda: producer.init(payer.leader))
    return payer, producer


async def write(groups: Groups, leader: int, producer: Producer) -> None:
    record = Record(0, groups.env.clock.now_ms(), b"k", b"v", ())
    batch = build_batch([record], **producer.identity, base_sequence=0, transactional=True)
    part = {"index": 0, "records": bytes(batch)}
    reply = await groups.ask(
        leader,
        ApiKey.produce,
        12,
        transactional_id=producer.transactional_id,
        acks=-1,
        timeout_ms=5_000,
        topic_data=[{"name": T, "partition_data": [part]}],
    )
    assert reply.responses[0].partition_responses[0].error_code is E.none


@pytest.mark.parametrize("old_is", ["elsewhere", "at the coordinator"])
def test_a_transaction_in_the_new_topic_is_ended_there_by_a_coordinator_that_was_cut_off(
    old_is: str,
) -> None:
    """Its own partition is committed by others meanwhile; the metadata is not heard. The old topic's leader may be as deaf."""

    async def scenario(groups: Groups, _: int) -> None:
        nodes, controller = groups.nodes, await internal_topics(groups)
        payer, producer = await coordinated_elsewhere(groups, controller)
        old, new, third = (int(i) for i in nodes.ids if i not in (controller, payer.leader))
        replicas = [old, third] if old_is == "elsewhere" else [payer.leader]
        await create(groups, controller, replicas)
        await nodes.until_whole()
        ends = node_name(payer.leader), node_name(controller)
        groups.world.net.cut(*ends)
        await make_anew(groups, controller, [new, third])
        await write(groups, new, producer)
        assert await producer.commit(payer.leader) is E.none
        await asyncio.sleep(0.3)
        groups.world.net.heal(*ends)
        await asyncio.sleep(10)
        partition = nodes.broker(new).replicas.partitions[TopicPartition(T, 0)]
        found = partition.log_end_offset, partition.last_stable_offset
        assert found == (2, 2)  # the record and its marker

    play(0, scenario, nodes=5)


def test_a_marker_in_the_log_of_a_topic_that_was_deleted_is_not_judged() -> None:
    """Its leader has not heard of that, and goes on: whatever stands there, nobody reads it."""

    async def scenario(groups: Groups, _: int) -> None:
        nodes, controller = groups.nodes, await internal_topics(groups)
        payer, producer = await coordinated_elsewhere(groups, controller)
        await create(groups, controller, [payer.leader])
        await nodes.until_whole()
        await write(groups, payer.leader, producer)
        groups.world.net.cut(node_name(payer.leader), node_name(controller))
        await delete(groups, controller)
        assert await producer.commit(payer.leader) is E.none
        await asyncio.sleep(0.3)
        log = nodes.broker(payer.leader).replicas.partitions[TopicPartition(T, 0)]
        assert log.log_end_offset == 2  # the record and its marker
        assert groups.watch.seen["marked"] == 0

    play(0, scenario, nodes=5)
