"""Whether `/health/ready` tells the truth, through all that happens to a node of three."""

import asyncio
import json
from typing import Any

import pytest
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ports import HttpRequest
from fencepost.cluster.metadata.image import ClusterImage
from fencepost.cluster.wire.api import ApiKey
from fencepost.node.metrics.health import State, Verdict
from sim_cluster import Cluster

pytestmark = pytest.mark.slow  # a cluster each
DOOR = ("admin.listener=0.0.0.0:9644",)


def verdict(cluster: Cluster, node_id: int) -> Verdict:
    """Asked in one turn: on a node of few partitions nothing waits."""
    asking = cluster.nodes.brokers[node_id].metrics.health.verdict()
    try:
        asking.send(None)
    except StopIteration as said:
        found: Verdict = said.value
        return found
    raise AssertionError("it waited")


def states(cluster: Cluster) -> dict[int, str]:
    return {each: verdict(cluster, each).state.value for each in cluster.nodes.ids}


async def all_ready(cluster: Cluster) -> None:
    await cluster.until(lambda: set(states(cluster).values()) == {"ready"})


def is_out(cluster: Cluster, node_id: int, image: ClusterImage | None = None) -> bool:
    """Whether some partition lacks this node in its ISR, as this metadata has it, or the newest of any node."""
    image = image or cluster.nodes.image
    assert image is not None
    return any(
        node_id in state.replicas and node_id not in state.isr
        for topic in image.topics.values()
        for state in topic.partitions
    )


def test_a_node_that_was_restarted_is_ready_when_it_is_back_in_every_isr() -> None:
    """What a rolling restart waits for: not before all of its replicas are in sync, and then at once."""
    cluster = Cluster(config=DOOR)

    async def scene() -> None:
        await cluster.create("t", partitions=5)
        await all_ready(cluster)
        cluster.kill(2)
        await cluster.until(lambda: is_out(cluster, 2))
        for number in range(20):
            leader = cluster.partition(number % 5).leader
            assert await cluster.produce(leader, b"x" * 1000, partition=number % 5) is (
                ErrorCode.none
            )
        assert {states(cluster)[each] for each in (1, 3)} == {"ready"}  # it is not they who lack
        cluster.nodes.start(2)
        seen: list[State] = []
        while not seen or seen[-1] is not State.READY:
            now = verdict(cluster, 2)
            if not seen or now.state is not seen[-1]:
                seen.append(now.state)
            if now.is_ready:
                assert not is_out(cluster, 2), "it says that it is ready and is not"
            if now.state is State.CATCHING_UP:
                # By what it knows: it hears a moment later than the controller that it is in again.
                assert is_out(cluster, 2, cluster.nodes.broker(2).image)
                assert "not in sync yet" in now.why and "t-" in now.why
            await asyncio.sleep(0.001)
        assert seen[0] is State.STARTING and State.CATCHING_UP in seen
        assert State.UNREGISTERED in seen or State.FENCED in seen

    cluster.play(scene)


@pytest.mark.parametrize("state", list(State))
def test_one_state_alone_is_ready(state: State) -> None:
    assert Verdict(state, "").is_ready is (state is State.READY)


def test_a_node_without_a_majority_says_what_it_waits_for() -> None:
    cluster = Cluster(config=DOOR)

    async def scene() -> None:
        for each in cluster.nodes.ids:
            cluster.kill(each)
        cluster.nodes.start(1)
        await asyncio.sleep(5)
        state, why = verdict(cluster, 1)
        assert state is State.STARTING and "majority of the voters" in why
        assert "(2 and 3 can't be reached); a majority is 2: start one of them" in why
        assert await asked(cluster, 1, "/health/live") == (200, {"live": True, "why": why_live()})
        status, fields = await asked(cluster, 1, "/health/ready")
        assert (status, fields) == (503, {"ready": False, "state": "starting", "why": why})
        cluster.nodes.start(2)
        await cluster.until(lambda: verdict(cluster, 1).state is not State.STARTING)

    cluster.play(scene)


def test_of_a_voter_with_another_secret_it_is_not_said_that_it_should_be_started() -> None:
    """Only two lines of the log, of many, named the secret."""
    cluster = Cluster(config=DOOR, deaths_allowed=True)

    async def scene() -> None:
        for each in cluster.nodes.ids:
            cluster.kill(each)
        cluster.nodes.start(1)
        cluster.nodes._config = (*cluster.nodes._config, "peer.secret=guessed")
        cluster.nodes.start(3)
        await asyncio.sleep(5)
        for each, other in ((1, 3), (3, 1)):
            why = verdict(cluster, each).why
            assert (
                f"2 can't be reached; {other} runs, and its peer.secret is not this node's" in why
            )
            assert "start 2, or give all nodes the same peer.secret" in why

    cluster.play(scene)


def why_live() -> str:
    return "this node's loop turns"


def test_a_node_that_is_cut_off_is_not_ready_until_it_is_back_in_every_isr() -> None:
    cluster = Cluster(config=DOOR)

    async def scene() -> None:
        await cluster.create("t", partitions=5)
        await all_ready(cluster)
        others = [each for each in cluster.nodes.ids if each != 2]
        for other in others:
            cluster.world.net.cut(node_name(2), node_name(other))
        await asyncio.sleep(6)
        state, why = verdict(cluster, 2)
        assert state is State.CUT_OFF and "no controller has answered" in why
        assert "node 2 of voters 1, 2, 3 reaches 0 of the others (1 and 3 can't be reached)" in why
        assert {states(cluster)[each] for each in others} == {"ready"}
        for other in others:
            cluster.world.net.heal(node_name(2), node_name(other))
        seen: list[State] = []
        while not seen or seen[-1] is not State.READY:
            now = verdict(cluster, 2)
            if now.is_ready:
                assert not is_out(cluster, 2), f"it says that it is ready: {now}"
            if not seen or now.state is not seen[-1]:
                seen.append(now.state)
            await asyncio.sleep(0.001)
        assert seen[0] is State.CUT_OFF
        assert {State.FENCED, State.UNREGISTERED, State.CATCHING_UP} & set(seen)

    cluster.play(scene)


def test_a_node_that_stops_says_so_until_it_is_gone() -> None:
    cluster = Cluster(config=DOOR)

    async def scene() -> None:
        await cluster.create("t", partitions=5)
        await all_ready(cluster)
        stopping = asyncio.ensure_future(cluster.nodes.stop(2))
        await cluster.until(lambda: cluster.nodes.broker(2).is_stopping)
        seen = []
        while not stopping.done():
            seen.append(verdict(cluster, 2))
            await asyncio.sleep(0.001)
        await stopping
        assert seen
        assert {each.state for each in seen} == {State.STOPPING}
        cluster.nodes.start(2)
        await all_ready(cluster)

    cluster.play(scene)


def test_a_failed_disk_and_a_full_one_are_told_with_what_to_do() -> None:
    cluster = Cluster(config=DOOR)

    async def scene() -> None:
        await cluster.create("t")
        await all_ready(cluster)
        leader = cluster.partition().leader
        disk = cluster.world.disk(node_name(leader))
        disk.files.capacity = disk.files.used
        assert await cluster.produce(leader, b"x" * 1000) is ErrorCode.kafka_storage_error
        state, why = verdict(cluster, leader)
        assert state is State.DISK_FULL and "Make room" in why
        disk.files.capacity = None
        await cluster.until(lambda: verdict(cluster, leader).is_ready)  # nobody writes
        # Another, if it was full for as long as a heartbeat takes.
        leader = cluster.partition().leader
        disk = cluster.world.disk(node_name(leader))
        assert await cluster.produce(leader, b"x" * 1000) is ErrorCode.none
        disk.faults.fail("sync", path="*/t-0/*.log")
        await cluster.produce(leader)
        await cluster.until(lambda: verdict(cluster, leader).state is State.DISK_FAILED)
        _, why = verdict(cluster, leader)
        assert "t-0" in why and "restart the node" in why
        others = [each for each in cluster.nodes.ids if each != leader]
        await cluster.until(lambda: cluster.partition().leader in others)
        assert {states(cluster)[each] for each in others} == {"ready"}
        cluster.kill(leader)
        cluster.nodes.start(leader)
        await all_ready(cluster)

    cluster.play(scene)


def test_a_partition_that_is_just_moving_here_keeps_no_node_from_being_ready() -> None:
    """It was not here before, so its absence takes nothing from anybody."""
    cluster = Cluster(nodes=4, config=DOOR)

    async def scene() -> None:
        await cluster.create("t")
        await all_ready(cluster)
        there = cluster.partition().replicas
        (new,) = [each for each in cluster.nodes.ids if each not in there]
        target = [*there[:2], new]
        topics = [{"name": "t", "partitions": [{"partition_index": 0, "replicas": target}]}]
        moving = asyncio.ensure_future(
            cluster.ask(
                there[0], ApiKey.alter_partition_reassignments, timeout=5_000, topics=topics
            )
        )
        was_moving = False
        while not moving.done() or cluster.partition().is_moving:
            was_moving |= new in cluster.partition().adding
            assert verdict(cluster, new).is_ready, verdict(cluster, new)
            await asyncio.sleep(0.001)
        assert was_moving and sorted(cluster.partition().replicas) == sorted(target)

    cluster.play(scene)


def test_metadata_that_does_not_come_is_missed() -> None:
    cluster = Cluster(nodes=1, config=DOOR)

    async def scene() -> None:
        metrics = cluster.nodes.broker(1).metrics
        assert verdict(cluster, 1).is_ready
        metrics._behind_since = cluster.now - 0.5  # on its way
        assert verdict(cluster, 1).is_ready
        metrics._behind_since = cluster.now - 5
        state, why = verdict(cluster, 1)
        assert state is State.BEHIND and "5.0 s" in why
        await asyncio.sleep(1)  # it is looked at again, and all is here
        assert verdict(cluster, 1).is_ready

    cluster.play(scene)


async def asked(cluster: Cluster, node_id: int, path: str) -> tuple[int, Any]:
    admin = cluster.nodes.broker(node_id).admin

    async def ask() -> tuple[int, Any]:
        reply = await admin.handle(HttpRequest("GET", path, {}, b""))
        return reply.status, json.loads(reply.body)

    return await cluster.world.on(cluster.world.node(node_name(node_id)), ask())
