"""What any node tells of the cluster and its quorum, to those who ask for it."""

from typing import Any

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey
from sim_cluster import Cluster

METADATA = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]


async def described_quorum(cluster: Cluster, node_id: int) -> tuple[Any, Any]:
    reply = await cluster.ask(node_id, ApiKey.describe_quorum, topics=METADATA)
    assert reply.error_code is ErrorCode.none
    return reply.topics[0].partitions[0], reply.nodes


def test_every_node_tells_what_the_leader_of_the_quorum_knows() -> None:
    cluster = Cluster(4)

    async def scenario() -> None:
        await cluster.create("t")
        leader = cluster.nodes.controller()
        for node_id in cluster.nodes.ids:
            told, nodes = await described_quorum(cluster, node_id)
            assert told.leader_id == leader
            assert told.leader_epoch == cluster.nodes.broker(1).quorum.term
            assert [each.replica_id for each in told.current_voters] == [1, 2, 3]
            assert [each.replica_id for each in told.observers] == [4]
            ends = sorted(each.log_end_offset for each in told.current_voters)
            assert 0 < told.high_watermark <= ends[1], "a majority has what is committed"
            assert [(each.node_id, each.listeners[0].host) for each in nodes] == [
                (1, "node-1"),
                (2, "node-2"),
                (3, "node-3"),
            ]

    cluster.play(scenario)


def test_a_voter_that_was_killed_is_seen_to_lag() -> None:
    cluster = Cluster()

    async def scenario() -> None:
        leader = cluster.nodes.controller()
        victim, other = (each for each in (1, 2, 3) if each != leader)
        cluster.kill(victim)
        for number in range(3):
            assert (
                await cluster.create(f"t{number}", other, copies=2)
            ).error_code is ErrorCode.none
        told, _ = await described_quorum(cluster, other)
        ends = {each.replica_id: each.log_end_offset for each in told.current_voters}
        assert ends[victim] < told.high_watermark <= ends[other]
        seen = {each.replica_id: each.last_fetch_timestamp for each in told.current_voters}
        assert seen[victim] < seen[other]

    cluster.play(scenario)


def test_while_nobody_leads_the_answer_is_that_nobody_does() -> None:
    cluster = Cluster()

    async def scenario() -> None:
        cluster.kill(2)
        cluster.kill(3)
        await cluster.until(lambda: cluster.nodes.broker(1).quorum.leader_id is None)
        reply = await cluster.ask(1, ApiKey.describe_quorum, topics=METADATA)
        assert reply.error_code is ErrorCode.not_controller
        assert not reply.topics

    cluster.play(scenario)


def test_a_fenced_broker_is_told_of_to_those_who_ask_for_fenced_ones() -> None:
    cluster = Cluster()

    async def scenario() -> None:
        victim, asked = (each for each in (1, 2, 3) if each != cluster.nodes.controller())
        cluster.kill(victim)
        await cluster.until(lambda: _is_fenced(cluster, asked, victim))
        alive = await cluster.ask(asked, ApiKey.describe_cluster)
        assert [each.broker_id for each in alive.brokers] == [
            each for each in (1, 2, 3) if each != victim
        ]
        every = await cluster.ask(asked, ApiKey.describe_cluster, include_fenced_brokers=True)
        assert {each.broker_id: each.is_fenced for each in every.brokers} == {
            each: each == victim for each in (1, 2, 3)
        }
        assert {each.host for each in every.brokers} == {"node-1", "node-2", "node-3"}

    cluster.play(scenario)


def _is_fenced(cluster: Cluster, asked: int, broker_id: int) -> bool:
    brokers = cluster.nodes.broker(asked).image.brokers
    return any(each.broker_id == broker_id and each.fenced for each in brokers.values())
