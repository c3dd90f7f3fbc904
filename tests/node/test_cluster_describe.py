"""What any node tells of the cluster and its quorum, to those who ask for it."""

from typing import Any

from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient
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
        assert reply.error_message == (
            "Nobody leads the metadata quorum: node 1 of voters 1, 2, 3 reaches 0 of the others (2 and 3 can't be"
            " reached); a majority is 2: start one of them."
        )

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


def test_every_feature_in_force_is_one_that_every_node_can_work_at() -> None:
    cluster = Cluster()

    async def scenario() -> None:
        for node_id in cluster.nodes.ids:
            reply = await cluster.ask(
                node_id,
                ApiKey.api_versions,
                client_software_name="tests",
                client_software_version="1",
            )
            ranges = {
                each.name: range(each.min_version, each.max_version + 1)
                for each in reply.supported_features
            }
            assert reply.finalized_features
            for each in reply.finalized_features:
                assert each.max_version_level in ranges[each.name]
            image = cluster.nodes.broker(node_id).image
            for broker in image.brokers.values():
                assert {name: range(a, b + 1) for name, (a, b) in broker.features.items()} == ranges

    cluster.play(scenario)


def test_an_older_client_is_not_told_of_a_feature_that_it_can_not_read() -> None:
    """KAFKA-17492: a range that begins at level 0 ends the connection of a client that asks in version 3."""
    cluster = Cluster(1)

    async def scenario() -> None:
        client = cluster.world.node("client")

        async def ask() -> Any:
            wire = WireClient(client, "node-1", 9092)
            return await wire.request(
                ApiKey.api_versions, 3, client_software_name="a", client_software_version="1"
            )

        reply = await cluster.world.on(client, ask())
        assert reply.supported_features
        assert all(each.min_version > 0 for each in reply.supported_features)

    cluster.play(scenario)


def test_a_log_that_failed_is_told_where_people_look_and_forgotten_after_a_restart() -> None:
    """Kafka's kafka-log-dirs.sh and kafka-topics.sh --describe show it; so does this node."""
    cluster = Cluster()

    async def scenario() -> None:
        await cluster.create("t", partitions=2)
        victim = cluster.partition(0).leader
        cluster.world.disk(node_name(victim)).faults.fail("sync", path="/data/t-0/*.log")
        error = await cluster.produce(victim)
        assert error in (ErrorCode.kafka_storage_error, ErrorCode.not_leader_or_follower)
        await cluster.until(lambda: cluster.partition(0).leader != victim, within_s=1)
        dirs = await cluster.ask(victim, ApiKey.describe_log_dirs, topics=None)
        sound, broken = dirs.results
        assert (sound.error_code, sound.log_dir) == (ErrorCode.none, "/data")
        assert [p.partition_index for t in sound.topics for p in t.partitions] == [1]
        assert (broken.error_code, broken.log_dir) == (ErrorCode.kafka_storage_error, "/data/t-0")
        assert [p.partition_index for t in broken.topics for p in t.partitions] == [0]
        await cluster.until(
            lambda: all(
                cluster.nodes.broker(each).image.partition("t", 0).offline == (victim,)
                for each in (1, 2, 3)
            )
        )
        for node_id in (1, 2, 3):
            reply = await cluster.ask(node_id, ApiKey.metadata, topics=[{"name": "t"}])
            first, second = reply.topics[0].partitions
            assert (first.offline_replicas, second.offline_replicas) == ((victim,), ())
        await cluster.nodes.stop(victim)
        cluster.nodes.start(victim)
        await cluster.nodes.until_whole()
        dirs = await cluster.ask(victim, ApiKey.describe_log_dirs, topics=None)
        assert [each.error_code for each in dirs.results] == [ErrorCode.none]

    cluster.play(scenario)
