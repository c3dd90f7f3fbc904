"""Whether `/health/ready` tells the truth, through all that happens to a node of three."""

import asyncio
import json
from typing import Any

import pytest
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ports import HttpRequest
from fencepost.node.metrics.health import State, Verdict
from sim_cluster import Cluster

READY = HttpRequest("GET", "/health/ready", {}, b"")
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


async def seen_until_ready(cluster: Cluster, node_id: int) -> list[State]:
    """The states that a node goes through, each once."""
    seen: list[State] = []
    while not seen or seen[-1] is not State.READY:
        now = verdict(cluster, node_id).state
        if not seen or now is not seen[-1]:
            seen.append(now)
        await asyncio.sleep(0.001)
        assert cluster.now < 300
    return seen


def is_out(cluster: Cluster, node_id: int) -> bool:
    """Whether some partition lacks this node in its ISR, as another node's metadata has it."""
    image = cluster.nodes.image
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
                assert is_out(cluster, 2) and "not in sync yet" in now.why and "t-" in now.why
            await asyncio.sleep(0.001)
        assert seen[0] is State.STARTING and State.CATCHING_UP in seen
        assert State.UNREGISTERED in seen or State.FENCED in seen

    cluster.play(scene)


@pytest.mark.parametrize("state", list(State))
def test_one_state_alone_is_ready(state: State) -> None:
    assert Verdict(state, "").is_ready is (state is State.READY)


def fields_of(cluster: Cluster, node_id: int) -> Any:
    admin = cluster.nodes.brokers[node_id].admin

    async def ask() -> Any:
        reply = await admin.handle(READY)
        return reply.status, json.loads(reply.body)

    return cluster.world.on(cluster.world.node(node_name(node_id)), ask())
