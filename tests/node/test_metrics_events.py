"""Numbers move when what they count happens, on a simulated cluster; and those of before do not."""

import asyncio
from typing import Any

import pytest
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey
from scraping import Scraper
from sim_cluster import Cluster
from sim_transactions import TransactionCluster

pytestmark = pytest.mark.slow  # a cluster each
NONE = ErrorCode.none


def play(scene: Any, **world: Any) -> None:
    cluster = Cluster(**world)

    async def with_topic() -> None:
        await cluster.create("t", partitions=3)
        await cluster.nodes.until_whole()
        await scene(cluster, Scraper(cluster))

    cluster.play(with_topic)


def test_a_whole_cluster_adds_up() -> None:
    async def scene(cluster: Cluster, now: Scraper) -> None:
        for partition in range(3):
            leader = cluster.partition(partition).leader
            assert await cluster.produce(leader, partition=partition) is NONE
        await asyncio.sleep(1)
        await now.all()
        assert now.sum("controller_active") == now.sum("quorum_leader") == 1
        assert now.sum("quorum_leader_known") == now.sum("node_ready") == 3
        assert now.sum("cluster_brokers", state="active") == 3
        assert now.sum("cluster_partitions") == now.sum("leader_partitions") == 3
        assert now.sum("replicas") == 9
        assert now.sum("offline_partitions") == now.sum("under_replicated_partitions") == 0
        assert now.sum("not_in_sync_replicas") == now.sum("metadata_lag_entries") == 0
        assert now.sum("peers", state="connected") == 6 and now.sum("peers", state="missing") == 0
        assert len({now.of(each, "metadata_version") for each in now.found}) == 1
        assert now.sum("log_appended_records_total") == 9  # each of three, on three nodes
        assert now.sum("replication_out_bytes_total") == now.sum("replication_in_bytes_total") > 0
        for leader in now.found:
            for follower in now.found.keys() - {leader}:
                if now.of(leader, "leader_partitions"):
                    assert now.of(leader, "replication_lag_records", follower=str(follower)) == 0
                    assert now.of(leader, "replication_lag_seconds", follower=str(follower)) == 0
        controller = cluster.nodes.controller()
        assert now.of(controller, "quorum_commit_seconds_count") > 0
        assert now.of(controller, "quorum_journal_bytes") > 0
        assert now.of(controller, "heartbeat_age_seconds") < 1

    play(scene)


def test_a_leader_that_dies_shows_in_elections_isrs_and_what_is_missing() -> None:
    async def scene(cluster: Cluster, now: Scraper) -> None:
        before = await Scraper(cluster).all()
        victim = cluster.partition().leader
        led = sum(leader == victim for leader in cluster.leaders())
        cluster.kill(victim)
        await cluster.until(lambda: victim not in cluster.leaders())
        await asyncio.sleep(2)
        await now.all()

        def grew(name: str, **labels: str) -> float:
            return sum(
                now.of(each, name, **labels) - before.of(each, name, **labels) for each in now.found
            )

        assert grew("leader_elections_total") == grew("controller_elections_total") == led
        assert grew("controller_unclean_elections_total") == 0
        assert grew("controller_fencings_total") == 1
        assert now.sum("under_replicated_partitions") == 3
        assert now.sum("cluster_under_replicated_partitions") == 3
        assert now.sum("not_preferred_leader_partitions") == led
        assert now.sum("offline_partitions") == now.sum("under_min_isr_partitions") == 0
        assert now.sum("cluster_brokers", state="fenced") == 1
        assert now.sum("peers", state="missing") == now.sum("node_ready") == 2
        assert now.sum("peer_connections_lost_total") > 0
        cluster.nodes.start(victim)
        await cluster.nodes.until_whole()
        await now.all()
        assert now.sum("under_replicated_partitions") == now.sum("peers", state="missing") == 0
        assert grew("isr_expands_total") == 3
        assert now.of(victim, "node_start", was="unclean") == 1
        assert now.of(victim, "node_start", was="clean") == 0
        assert now.of(victim, "node_start_seconds") > 0

    play(scene)


def test_a_follower_that_falls_silent_lags_and_leaves_the_isr() -> None:
    async def scene(cluster: Cluster, now: Scraper) -> None:
        leader = cluster.partition().leader
        follower = next(each for each in cluster.nodes.ids if each != leader)
        before = await Scraper(cluster).all()
        for other in cluster.nodes.ids:
            if other != follower:
                cluster.world.net.cut(node_name(other), node_name(follower))
        assert await cluster.produce(leader) is NONE
        await asyncio.sleep(3)
        await now.all()
        shrunk = sum(
            now.of(each, "isr_shrinks_total") - before.of(each, "isr_shrinks_total")
            for each in now.found
        )
        assert shrunk + now.sum("controller_fencings_total") > 0
        lag = {"follower": str(follower)}
        assert now.of(leader, "replication_lag_records", **lag) == 1
        assert 1 < now.of(leader, "replication_lag_seconds", **lag) < 10
        assert now.of(follower, "node_ready") == 0
        assert now.of(follower, "heartbeat_age_seconds") > 2

    play(scene)


def test_a_partition_on_the_move_does_not_count_as_one_that_lacks_a_replica() -> None:
    """FencepostUnderReplicated rests on it: what a move still adds is no copy that is missing."""

    async def scene(cluster: Cluster, now: Scraper) -> None:
        await cluster.create("moved", copies=2)
        await cluster.until(lambda: len(cluster.partition(0, "moved").isr) == 2)
        before = cluster.partition(0, "moved").replicas
        (away,) = set(cluster.nodes.ids) - set(before)
        cluster.kill(away)  # so that the move goes on for as long as one looks
        target = [{"partition_index": 0, "replicas": [before[0], away]}]
        reply = await cluster.ask(
            before[0],
            ApiKey.alter_partition_reassignments,
            timeout=10_000,
            topics=[{"name": "moved", "partitions": target}],
        )
        assert reply.responses[0].partitions[0].error_code is NONE
        await asyncio.sleep(5)
        await now.all()
        assert now.sum("reassigning_partitions") == 1
        assert now.sum("cluster_under_replicated_partitions") == 3  # of `t`, which `away` had too

    play(scene)


def test_a_new_leader_of_the_quorum_is_counted_by_everybody() -> None:
    async def scene(cluster: Cluster, now: Scraper) -> None:
        before = await Scraper(cluster).all()
        old = cluster.nodes.controller()
        assert old is not None
        cluster.kill(old)
        await cluster.until(lambda: cluster.nodes.controller() not in (None, old))
        await asyncio.sleep(1)
        await now.all()
        assert now.sum("controller_active") == 1
        for each in now.found:
            changes = now.of(each, "quorum_leader_changes_total")
            assert changes > before.of(each, "quorum_leader_changes_total")
            assert now.of(each, "quorum_term") > before.of(each, "quorum_term")

    play(scene)


def test_a_clean_stop_is_told_from_a_kill() -> None:
    async def scene(cluster: Cluster, now: Scraper) -> None:
        await cluster.nodes.stop(2)
        cluster.nodes.start(2)
        await cluster.nodes.until_whole()
        await now.all()
        assert {was: now.of(2, "node_start", was=was) for was in ("new", "clean", "unclean")} == {
            "new": 0,
            "clean": 1,
            "unclean": 0,
        }
        assert now.of(1, "node_start", was="new") == 1

    play(scene)


def test_data_that_was_given_up_is_counted() -> None:
    """Whoever has everything is gone; a person lets one lead that has not."""
    cluster = Cluster(nodes=4)
    now = Scraper(cluster)

    async def scene() -> None:
        topic = {"name": "t", "num_partitions": 1, "replication_factor": 2, "assignments": []}
        one = {"name": "min.insync.replicas", "value": "1"}
        reply = await cluster.ask(
            1, ApiKey.create_topics, timeout=10_000, topics=[{**topic, "configs": [one]}]
        )
        cluster.topic_id = reply.topics[0].topic_id
        leader, lacks = cluster.partition().replicas
        nodes = cluster.nodes
        await cluster.until(
            lambda: all("t" in nodes.broker(each).image.topics for each in nodes.ids)
        )
        cluster.kill(lacks)
        await cluster.until(lambda: lacks not in cluster.partition().isr)
        assert await cluster.produce(leader) is NONE
        cluster.world.net.cut(node_name(leader), node_name(lacks))
        cluster.nodes.start(lacks)
        await cluster.until(lambda: lacks in cluster.nodes.ready())
        cluster.kill(leader)
        await cluster.until(lambda: cluster.partition().leader < 0)
        await now.all()
        assert now.sum("offline_partitions") == 1
        assert now.sum("controller_unclean_elections_total") == 0
        reply = await cluster.ask(
            lacks,
            ApiKey.elect_leaders,
            election_type=1,
            topic_partitions=[{"topic": "t", "partitions": [0]}],
            timeout=10_000,
        )
        assert reply.error_code is NONE
        await cluster.until(lambda: cluster.partition().leader == lacks)
        await now.all()
        assert now.sum("controller_unclean_elections_total") == 1
        assert now.sum("offline_partitions") == 0

    cluster.play(scene)


def test_a_full_disk_and_a_failed_one_show() -> None:
    async def scene(cluster: Cluster, now: Scraper) -> None:
        leader = cluster.partition().leader
        disk = cluster.world.disk(node_name(leader))
        disk.files.capacity = disk.files.used
        assert await cluster.produce(leader, b"x" * 1000) is ErrorCode.kafka_storage_error
        await now.all()
        assert now.of(leader, "disk_full") == 1
        assert now.of(leader, "node_state", state="disk_full") == 1
        assert now.of(leader, "disk_free_bytes") == 0
        assert now.of(leader, "log_refused_batches_total", error="KAFKA_STORAGE_ERROR") >= 1

    play(scene)


# -- transactions ---------------------------------------------------------------------------------------


def test_transactions_are_counted_from_their_beginning_to_their_end() -> None:
    cluster = TransactionCluster(**{"transaction.max.timeout.ms": "900000"})
    now = Scraper(cluster)

    async def scene() -> None:
        who = await cluster.starts("g", "a")
        await cluster.writes("g", "a", who, "t")
        await asyncio.sleep(5)
        await now.all()
        assert now.sum("transactions", state="Ongoing") == 1
        assert 5 <= max(now.of(each, "open_transaction_seconds") for each in now.found) < 7
        assert now.sum("coordinator_partitions", coordinator="transaction", state="active") == 2
        assert now.sum("coordinator_load_seconds_count", coordinator="transaction") >= 2
        reply = await cluster._until(
            "g",
            ApiKey.end_txn,
            lambda reply: reply.error_code,
            transactional_id="g::a",
            **who,
            committed=True,
        )
        assert reply.error_code is NONE
        await cluster.until_phases("g", "CompleteCommit", "a")
        await now.all()
        assert now.sum("transactions_ended_total", outcome="committed") == 1
        assert now.sum("transactions_ended_total", outcome="aborted") == 0
        assert now.sum("transactions", state="CompleteCommit") == 1
        assert now.sum("transactions", state="Ongoing") == 0
        assert now.sum("transaction_markers_sent_total") == 1
        assert now.sum("transaction_markers_written_total") == 1
        assert now.sum("open_transaction_seconds") == 0

    cluster.play_up(scene)


def test_one_whose_time_is_up_is_counted_as_that_and_once() -> None:
    """Also by a coordinator that takes over: what it reads has ended before."""
    cluster = TransactionCluster()
    now = Scraper(cluster)

    async def scene() -> None:
        who = await cluster.starts("g", "a")
        await cluster.writes("g", "a", who, "t")
        await asyncio.sleep(70)
        await cluster.until_phases("g", "CompleteAbort", "a")
        await now.all()
        assert now.sum("transactions_timed_out_total") == 1
        assert now.sum("transactions_ended_total", outcome="aborted") == 1
        await cluster.starts("g", "a")  # somebody else, in the same name
        late = await cluster._until(
            "g",
            ApiKey.end_txn,
            lambda reply: reply.error_code,
            transactional_id="g::a",
            **who,
            committed=True,
        )
        assert late.error_code in (ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch)
        await now.all()
        assert now.sum("transactions_fenced_total") == 1
        counted = now.sum("transactions_ended_total", outcome="aborted")
        coordinator = cluster.coordinator("g")
        on_it = now.of(coordinator, "transactions_ended_total", outcome="aborted")
        cluster.kill(coordinator)
        await cluster.until(lambda: cluster.coordinator("g") not in (-1, coordinator))
        await cluster.until_phases("g", "Empty", "a")
        await now.all()
        assert now.sum("transactions_ended_total", outcome="aborted") == counted - on_it
        assert now.sum("transactions", state="Empty") == 1

    cluster.play_up(scene)


def test_who_may_not_come_in_is_counted_by_its_door() -> None:
    cluster = TransactionCluster()
    now = Scraper(cluster)

    async def scene() -> None:
        broker = cluster.nodes.broker(1)
        before = await Scraper(cluster).all()
        assert broker.admin.access.refusal("Bearer guessed") is not None
        broker.peers.door.counters.handshakes_refused += 1
        broker.peers.door.counters.handshakes_late += 2
        await now.all()
        for door, more in (("peer", 1), ("admin", 1), ("client", 0)):
            name = "authentication_failures_total"
            assert now.of(1, name, door=door) - before.of(1, name, door=door) == more
        late = "peer_handshakes_late_total"
        assert now.of(1, late) - before.of(1, late) == 2

    cluster.play_up(scene)


def test_groups_are_counted_by_kind() -> None:
    cluster = Cluster()
    now = Scraper(cluster)

    async def scene() -> None:
        await cluster.create("t")
        found = await cluster.ask(
            1, ApiKey.find_coordinator, key_type=0, coordinator_keys=["watchers"]
        )
        node_id = found.coordinators[0].node_id
        for _ in range(100):
            reply = await cluster.ask(
                node_id if node_id > 0 else 1,
                ApiKey.offset_commit,
                group_id="watchers",
                generation_id_or_member_epoch=-1,
                member_id="",
                topics=[
                    {
                        "name": "t",
                        "topic_id": cluster.topic_id,
                        "partitions": [{"partition_index": 0, "committed_offset": 0}],
                    }
                ],
            )
            if reply.topics[0].partitions[0].error_code is NONE:
                break
            await asyncio.sleep(0.1)
            found = await cluster.ask(
                1, ApiKey.find_coordinator, key_type=0, coordinator_keys=["watchers"]
            )
            node_id = found.coordinators[0].node_id
        await now.all()
        assert now.sum("groups", type="classic") == 1
        assert now.sum("groups", type="consumer") == 0
        assert now.sum("coordinator_partitions", coordinator="group", state="active") > 0

    cluster.play(scene)


@pytest.mark.parametrize("by_s", [-3600.0, 3600.0])
def test_a_clock_that_somebody_set_is_counted(by_s: float) -> None:
    cluster = TransactionCluster(nodes=1)
    now = Scraper(cluster)

    async def scene() -> None:
        await now.all()
        assert now.of(1, "clock_jumps_total") == 0
        cluster.world.machine(node_name(1)).wall.jump(round(by_s * 1000))
        await asyncio.sleep(10)
        await now.all()
        assert now.of(1, "clock_jumps_total") == 1
        assert now.of(1, "loop_lag_seconds_count") >= 3

    cluster.play_up(scene)
