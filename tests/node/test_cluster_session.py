"""Brokers that come, live and go in a cluster of three, as their clients see it."""

import asyncio

import pytest
from fencepost.chaos.sim.cluster_nodes import node_config, node_name
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.exit_codes import EXIT_IDENTITY, CannotRun
from fencepost.cluster.base.ids import BrokerId
from fencepost.cluster.metadata.image import PartitionState
from fencepost.cluster.wire.api import ApiKey
from fencepost.node.broker import Broker
from fencepost.node.config import NodeConfig
from sim_cluster import Cluster

SESSION_S = 3.0


def test_three_nodes_that_start_together_are_one_cluster() -> None:
    cluster = Cluster()

    async def scenario() -> None:
        ids = {cluster.nodes.broker(each).image.cluster_id for each in (1, 2, 3)}
        assert len(ids) == 1
        for node_id in (1, 2, 3):
            reply = await cluster.ask(node_id, ApiKey.describe_cluster)
            assert [each.broker_id for each in reply.brokers] == [1, 2, 3]
            assert {each.port for each in reply.brokers} == {9092}, (
                "the peer door is nobody's business"
            )

    cluster.play(scenario)


def test_a_topic_that_was_made_at_any_node_is_known_there_at_once() -> None:
    cluster = Cluster()

    async def scenario() -> None:
        for node_id in (1, 2, 3):
            name = f"t{node_id}"
            assert (await cluster.create(name, node_id)).error_code is ErrorCode.none
            reply = await cluster.ask(
                node_id, ApiKey.metadata, topics=[{"name": name}], allow_auto_topic_creation=False
            )
            assert [each.error_code for each in reply.topics] == [ErrorCode.none]

    cluster.play(scenario)


def test_a_killed_nodes_partitions_are_led_by_others_long_before_its_session_ends() -> None:
    cluster = Cluster()

    async def scenario() -> None:
        await cluster.create("t", partitions=6)
        controller = cluster.nodes.controller()
        victim = next(each for each in (1, 2, 3) if each != controller)
        assert victim in cluster.leaders()
        cluster.kill(victim)
        took = await cluster.until(lambda: victim not in cluster.leaders())
        assert -1 not in cluster.leaders()
        assert took < 0.1
        assert await cluster.produce(cluster.leaders()[0]) is ErrorCode.none

    cluster.play(scenario)


def test_a_killed_controller_takes_no_more_than_an_election_with_it() -> None:
    cluster = Cluster()

    async def scenario() -> None:
        await cluster.create("t", partitions=6)
        await cluster.nodes.until_whole()  # or those who are left may not have heard of it yet
        victim = cluster.nodes.controller()
        assert victim is not None
        cluster.kill(victim)
        took = await cluster.until(lambda: victim not in cluster.leaders())
        assert took < 0.5
        cluster.nodes.start(victim)
        await cluster.nodes.until_whole()

    cluster.play(scenario)


@pytest.mark.parametrize("seed", range(5))
def test_who_asks_in_the_moment_of_a_kill_is_told_who_leads_now(seed: int) -> None:
    """Librdkafka asks once when its connection ends. Told the old leader's name it asks again after a second."""
    cluster = Cluster(seed=seed)

    async def scenario() -> None:
        await cluster.create("t", partitions=6)
        victim = cluster.partition().leader
        asked = next(each for each in (1, 2, 3) if each != victim)
        await cluster.ask(asked, ApiKey.metadata, topics=[{"name": "t"}])
        cluster.kill(victim)
        began = cluster.now
        reply = await cluster.ask(asked, ApiKey.metadata, topics=[{"name": "t"}])
        assert {each.leader_id for each in reply.topics[0].partitions} <= {1, 2, 3} - {victim}
        assert cluster.now - began < 0.5

    cluster.play(scenario)


def test_a_broker_that_stays_out_of_sight_delays_no_answer_for_long() -> None:
    """A cable between two brokers is cut; the controller sees both of them."""
    cluster = Cluster()

    async def scenario() -> None:
        await cluster.create("t")
        controller = cluster.nodes.controller()
        one, other = (each for each in (1, 2, 3) if each != controller)
        cluster.world.net.cut(node_name(one), node_name(other))
        await asyncio.sleep(3)
        for within_s in (1.2, 0.1):
            began = cluster.now
            reply = await cluster.ask(one, ApiKey.metadata, topics=[])
            assert [each.node_id for each in reply.brokers] == [1, 2, 3]
            assert cluster.now - began < within_s

    cluster.play(scenario)


@pytest.mark.parametrize("whom", ["controller", "another"])
def test_a_stopped_nodes_partitions_move_when_its_session_is_over(whom: str) -> None:
    """SIGSTOP: nobody is told anything. It comes back, sees that it leads nothing, and follows."""
    cluster = Cluster()

    async def scenario() -> None:
        await cluster.create("t", partitions=6)
        controller = cluster.nodes.controller()
        others = [each for each in (1, 2, 3) if each != controller]
        victim = controller if whom == "controller" else others[0]
        assert victim is not None
        cluster.world.pause(node_name(victim))
        took = await cluster.until(lambda: victim not in cluster.leaders())
        assert took < SESSION_S + 2.0
        assert -1 not in cluster.leaders()
        await asyncio.sleep(2)
        cluster.world.resume(node_name(victim))
        await cluster.nodes.until_whole()
        assert len(cluster.events(victim, "broker_registered")) == 1, "its registration still held"

    cluster.play(scenario)


def test_a_voter_is_not_taken_off_the_list_whichever_node_is_asked() -> None:
    cluster = Cluster()

    async def scenario() -> None:
        controller = cluster.nodes.controller()
        victim, other = (each for each in (1, 2, 3) if each != controller)
        cluster.kill(victim)
        image = cluster.nodes.broker(other).image
        await cluster.until(lambda: image.brokers[BrokerId(victim)].fenced)
        for asked in (controller, other):
            reply = await cluster.ask(asked, ApiKey.unregister_broker, broker_id=victim)
            assert reply.error_code is ErrorCode.invalid_request
            assert f"`fencepost node voters remove {victim}`" in reply.error_message
            assert victim in image.brokers
        reply = await cluster.ask(
            other,
            ApiKey.remove_raft_voter,
            voter_id=victim,
            cluster_id=None,
            voter_directory_id=None,
        )
        assert reply.error_code is ErrorCode.none
        reply = await cluster.ask(other, ApiKey.unregister_broker, broker_id=victim)
        assert reply.error_code is ErrorCode.none
        assert victim not in image.brokers

    cluster.play(scenario)


def test_a_stopped_node_that_was_taken_off_the_list_registers_again() -> None:
    cluster = Cluster(4)  # of which node 4 does not vote

    async def scenario() -> None:
        await cluster.create("t", partitions=6)
        victim, other = 4, 1
        cluster.world.pause(node_name(victim))
        image = cluster.nodes.broker(other).image
        await cluster.until(lambda: image.brokers[BrokerId(victim)].fenced)
        reply = await cluster.ask(other, ApiKey.unregister_broker, broker_id=victim)
        assert reply.error_code is ErrorCode.none
        assert victim not in image.brokers
        cluster.world.resume(node_name(victim))
        await cluster.nodes.until_whole()
        assert cluster.events(victim, "broker_registers_again")

    cluster.play(scenario)


def test_a_node_that_stops_hands_over_first() -> None:
    """Its leaderships have moved before it closes its door: nothing is without a leader for a moment."""
    cluster = Cluster()

    async def scenario() -> None:
        await cluster.create("t", partitions=6)
        for node_id in (1, 2, 3):
            seen: list[list[int]] = []

            async def watch(seen: list[list[int]] = seen) -> None:
                while True:
                    seen.append(cluster.leaders())
                    await asyncio.sleep(0.0005)

            watching = asyncio.create_task(watch())
            await cluster.nodes.stop(node_id)
            watching.cancel()
            assert all(-1 not in leaders for leaders in seen)
            assert node_id not in cluster.leaders()
            cluster.nodes.start(node_id)
            await cluster.nodes.until_whole()

    cluster.play(scenario)


def test_a_node_alone_with_its_partitions_stops_without_asking_anybody() -> None:
    cluster = Cluster(1)

    async def scenario() -> None:
        await cluster.create("t", copies=1)
        before = cluster.nodes.broker(1).image.version
        await cluster.nodes.stop(1)
        assert cluster.nodes.broker(1).image.version == before

    cluster.play(scenario)


@pytest.mark.parametrize("seed", range(6))
def test_a_node_whose_id_is_taken_says_so_and_ends(seed: int) -> None:
    """Somebody starts a second node 3, on another machine. The first one stays in service."""
    cluster = Cluster(seed=seed, deaths_allowed=True)

    async def scenario() -> None:
        await cluster.create("t")
        env = cluster.world.node("impostor")
        text = {**node_config(3, 3).text, "peer.advertised.listener": "impostor:9192"}
        text["advertised.listeners"] = "PLAINTEXT://impostor:9092"
        broker = Broker(env, NodeConfig(text))

        async def serve(_env: object) -> None:
            await broker.start()

        cluster.world.start(env, serve)
        await cluster.until(lambda: bool(cluster.world.deaths))
        ((name, reason),) = cluster.world.deaths
        assert name == "impostor"
        assert "the node id 3 is taken" in str(reason)
        assert isinstance(reason, CannotRun) and reason.exit_code == EXIT_IDENTITY
        assert not broker.is_ready
        await cluster.nodes.until_whole()
        assert await cluster.produce(cluster.partition().leader) is ErrorCode.none
        assert not cluster.events(3, "broker_was_fenced")

    cluster.play(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [3, 4, 5])
def test_nodes_that_all_stop_at_once_wait_for_nobody(nodes: int) -> None:
    """The last ones have nobody to hand over to, and nobody who could decide it: they see that and go."""
    cluster = Cluster(nodes)

    async def scenario() -> None:
        await cluster.create("t", partitions=6)
        began = cluster.now
        async with asyncio.TaskGroup() as group:
            for node_id in cluster.nodes.ids:
                group.create_task(cluster.nodes.stop(node_id))
        assert cluster.now - began < 1.0
        cluster.nodes.start_all()
        await cluster.nodes.until_whole()
        assert cluster.now - began < 2.0

    cluster.play(scenario)


def test_nodes_that_are_all_killed_at_once_wait_for_no_session() -> None:
    """To the new controller their last registrations look alive. Nobody has been heard under them."""
    cluster = Cluster()

    async def scenario() -> None:
        await cluster.create("t", partitions=6)
        for node_id in cluster.nodes.ids:
            cluster.kill(node_id)
        began = cluster.now
        cluster.nodes.start_all()
        await cluster.nodes.until_whole()
        assert cluster.now - began < 2.0

    cluster.play(scenario)


def test_a_node_that_does_not_vote_takes_part_in_all_else() -> None:
    cluster = Cluster(4)

    async def scenario() -> None:
        assert (await cluster.create("t", 4, partitions=8, copies=3)).error_code is ErrorCode.none
        assert 4 in cluster.leaders()
        assert 4 not in cluster.nodes.broker(4).config.peers.voters
        partition = cluster.leaders().index(4)
        assert await cluster.produce(4, partition=partition) is ErrorCode.none
        cluster.kill(4)
        took = await cluster.until(lambda: 4 not in cluster.leaders())
        assert took < 0.1
        cluster.nodes.start(4)
        await cluster.nodes.until_whole()

    cluster.play(scenario)


def test_a_cluster_that_was_moved_as_a_whole_finds_together_by_its_settings() -> None:
    """What was registered names ports where nobody listens any more; the settings name the new ones."""
    cluster = Cluster()

    async def scenario() -> None:
        await cluster.create("t")
        for node_id in cluster.nodes.ids:
            await cluster.nodes.stop(node_id)
        cluster.nodes._config = (
            "controller.quorum.voters=1@node-1:9999,2@node-2:9999,3@node-3:9999",
            "peer.listener=0.0.0.0:9999",
            "peer.advertised.listener=",
        )
        cluster.nodes.start_all()
        await cluster.nodes.until_whole()
        endpoint = cluster.nodes.broker(1).image.brokers[BrokerId(2)].endpoint("PEER")
        assert endpoint is not None
        assert endpoint.port == 9999

    cluster.play(scenario)


@pytest.mark.parametrize("survivor", [1, 2, 3])
def test_one_of_three_that_is_left_refuses_what_must_be_on_two_and_stays_readable(
    survivor: int,
) -> None:
    cluster = Cluster()

    async def scenario() -> None:
        await cluster.create("t", partitions=6)
        partition = cluster.leaders().index(survivor)
        assert await cluster.produce(survivor, b"kept", partition=partition) is ErrorCode.none
        for node_id in (1, 2, 3):
            if node_id != survivor:
                cluster.kill(node_id)
        refused = await cluster.produce(survivor, b"lost", partition=partition)
        assert refused in (
            ErrorCode.request_timed_out,
            ErrorCode.not_enough_replicas,
            ErrorCode.not_leader_or_follower,  # as far as it can know others may lead by now
        )
        answer = await cluster.fetch(survivor, partition=partition)
        assert answer.error_code is ErrorCode.none
        assert answer.high_watermark == 1
        assert b"kept" in bytes(answer.records)
        cluster.nodes.start_all()
        await cluster.nodes.until_whole()

    cluster.play(scenario)


def test_a_group_waits_until_there_are_brokers_enough_for_its_offsets() -> None:
    """As in Kafka: three brokers can't hold four copies, and a client that asks again finds its coordinator later."""
    cluster = Cluster(4, config=("offsets.topic.replication.factor=4",))

    async def scenario() -> None:
        asked = {"key_type": 0, "coordinator_keys": ["group"]}
        reply = await cluster.ask(1, ApiKey.find_coordinator, **asked)
        assert reply.coordinators[0].error_code is ErrorCode.coordinator_not_available
        cluster.nodes.start(4)
        await cluster.nodes.until_ready()
        found = await cluster.ask(1, ApiKey.find_coordinator, **asked)
        assert found.coordinators[0].error_code is ErrorCode.none
        assert {len(each.replicas) for each in _offsets(cluster)} == {4}

    cluster.play(scenario, only=(1, 2, 3))


def _offsets(cluster: Cluster) -> list[PartitionState]:
    return cluster.nodes.broker(1).image.topics["__consumer_offsets"].partitions
