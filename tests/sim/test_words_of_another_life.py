"""A coordinator's word on a transaction is on its way while the topic is deleted, the transaction ended, and the topic made anew."""

import asyncio
from typing import Any

import pytest
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.cluster.base.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.records import Record, build_batch
from fencepost.txn.runtime.ownership import partition_for
from group_coordinators import E, Groups, Producer, play
from test_topic_made_anew import T, coordinated_elsewhere, create, delete, internal_topics

pytestmark = pytest.mark.slow
OTHER = "other"


async def add(groups: Groups, coordinator: int, who: Producer, *topics: str) -> None:
    """As clients of the old protocol do, before they write."""
    rows = [{"name": each, "partitions": [0]} for each in topics]
    asked = {f"v3_and_below_{name}": value for name, value in who.me.items()}
    reply = await groups.ask(
        coordinator, ApiKey.add_partitions_to_txn, 3, v3_and_below_topics=rows, **asked
    )
    codes = [
        each.partition_error_code
        for topic in reply.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    ]
    assert codes == [E.none] * len(topics)


async def write(groups: Groups, leader: int, who: Producer, topic: str) -> Any:
    """By the topic's name, as before version 13."""
    record = Record(0, groups.env.clock.now_ms(), b"k", b"v", ())
    batch = build_batch([record], **who.identity, base_sequence=0, transactional=True)
    data = [{"name": topic, "partition_data": [{"index": 0, "records": bytes(batch)}]}]
    said = {"transactional_id": who.transactional_id, "acks": -1, "timeout_ms": 5_000}
    reply = await groups.ask(leader, ApiKey.produce, 9, topic_data=data, **said)
    return reply.responses[0].partition_responses[0].error_code


async def end(groups: Groups, coordinator: int, who: Producer, *, commit: bool) -> None:
    reply = await groups.ask(coordinator, ApiKey.end_txn, 3, committed=commit, **who.me)
    assert reply.error_code is E.none


async def until_state(groups: Groups, payer: Any, wanted: str) -> None:
    asked = {"transactional_ids": [payer.name]}
    while True:
        reply = await groups.ask(payer.leader, ApiKey.describe_transactions, 0, **asked)
        if reply.transaction_states[0].transaction_state == wanted:
            return
        await asyncio.sleep(0.01)


class Life:
    """A topic whose leader is no coordinator of the transaction and not the controller, and what happens to it."""

    def __init__(self, groups: Groups, controller: int, payer: Any, who: Producer) -> None:
        self.groups, self.controller, self.payer, self.who = groups, controller, payer, who
        states = groups.nodes.image.topics[TRANSACTION_STATE_TOPIC].partitions
        copies = states[partition_for(payer.name, len(states))].replicas
        self.leader = next(
            int(each) for each in groups.nodes.ids if each not in (controller, *copies)
        )
        self._ends = node_name(payer.leader), node_name(self.leader)

    async def prepare(self) -> None:
        await create(self.groups, self.controller, [self.leader])
        assigned = [{"partition_index": 0, "broker_ids": [self.controller]}]
        other = {"name": OTHER, "num_partitions": -1, "replication_factor": -1, "configs": []}
        topics = [{**other, "assignments": assigned}]
        await self.groups.ask(
            self.controller, ApiKey.create_topics, 7, timeout=5_000, topics=topics
        )
        await self.groups.nodes.until_whole()
        await asyncio.sleep(1)

    async def one_transaction(self, *, with_a_late_word: bool) -> None:
        """It has added the topic, and is aborted while that is gone. The word, if late, comes when the next one is there."""
        groups, payer = self.groups, self.payer
        if with_a_late_word:
            groups.world.net.cut(*self._ends)
        await add(groups, payer.leader, self.who, T)
        await delete(groups, self.controller)
        await end(groups, payer.leader, self.who, commit=False)
        await until_state(groups, payer, "CompleteAbort")
        topic_id = await create(groups, self.controller, [self.leader])
        image = groups.nodes.broker(self.leader).image
        while (known := image.topics.get(T)) is None or known.topic_id != topic_id:
            await asyncio.sleep(0.01)
        groups.world.net.heal(*self._ends)
        await asyncio.sleep(2)

    def shown(self, node: int, topic: str) -> tuple[int, int]:
        partition = self.groups.nodes.broker(node).replicas.partitions[TopicPartition(topic, 0)]
        return partition.log_end_offset, partition.last_stable_offset


async def begun(groups: Groups) -> Life:
    controller = await internal_topics(groups)
    life = Life(groups, controller, *await coordinated_elsewhere(groups, controller))
    await life.prepare()
    return life


@pytest.mark.parametrize("is_late", [True, False])
def test_the_next_transaction_is_shown_in_all_its_topics(is_late: bool) -> None:
    """Its marker was another one's to the topic made anew, which kept the beginning that the word had named; and an abort of
    the one after it took what was committed."""

    async def scenario(groups: Groups, _: int) -> None:
        life = await begun(groups)
        await life.one_transaction(with_a_late_word=is_late)
        await add(groups, life.payer.leader, life.who, T, OTHER)
        assert await write(groups, life.leader, life.who, T) is E.none
        assert await write(groups, life.controller, life.who, OTHER) is E.none
        await end(groups, life.payer.leader, life.who, commit=True)
        await until_state(groups, life.payer, "CompleteCommit")
        assert life.shown(life.leader, T) == life.shown(life.controller, OTHER) == (2, 2)

    play(0, scenario, nodes=5)


@pytest.mark.parametrize("is_late", [True, False])
def test_a_batch_of_what_was_aborted_is_not_let_into_the_next_topic(is_late: bool) -> None:
    """Nothing would have ended it."""

    async def scenario(groups: Groups, _: int) -> None:
        life = await begun(groups)
        await life.one_transaction(with_a_late_word=is_late)
        assert await write(groups, life.leader, life.who, T) is E.invalid_txn_state
        assert life.shown(life.leader, T) == (0, 0)

    play(0, scenario, nodes=5)
