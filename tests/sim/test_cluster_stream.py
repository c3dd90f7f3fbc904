"""The clients of the cluster campaign, each alone: what they take for an anomaly, and what they bear."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from fencepost.chaos.checkers.history import History
from fencepost.chaos.checkers.verdict import judge
from fencepost.chaos.sim.cluster import TOPIC, ClusterRun
from fencepost.chaos.sim.cluster_admin import Admin
from fencepost.chaos.sim.cluster_nodes import ClusterNodes
from fencepost.chaos.sim.plan import Plan
from fencepost.chaos.sim.world import World
from fencepost.chaos.workloads.cluster_client import ClusterClient, Leader
from fencepost.chaos.workloads.cluster_stream import StreamProducer, StreamReader, ToldToEnd
from fencepost.cluster.base.errors import ErrorCode, Trouble


class Answer:
    """What Metadata says of one partition, or Produce of one batch."""

    def __init__(self, error_code: ErrorCode = ErrorCode.none, base_offset: int = 0) -> None:
        self.error_code = error_code
        self.base_offset = base_offset


@pytest.fixture
def world() -> Iterator[World]:
    with World(5, time_limit_s=120) as world:
        yield world


def client(world: World) -> ClusterClient:
    return ClusterClient(world.node("client"), [("node-1", 9092)], name="p0")


LEADER: Any = Leader(1, 3, None, None)  # type: ignore[arg-type]


def a_round(world: World, *answers: Answer | Trouble) -> tuple[StreamProducer, History]:
    """A producer with one batch for each answer, which has just been told them."""
    history: History = []
    producer = StreamProducer(client(world), TOPIC, 0, history)
    for _ in answers:
        producer._unacknowledged.append(producer._new_batch())
    producer._take_all(LEADER, list(producer._unacknowledged), answers)
    return producer, history


def test_what_is_acknowledged_behind_a_failure_is_sent_again(world: World) -> None:
    producer, history = a_round(world, Trouble("lost"), Answer(base_offset=4))
    assert producer.waiting == 2
    assert history == []


def test_a_batch_out_of_order_behind_one_that_was_lost_is_only_a_retry(world: World) -> None:
    refused = Answer(ErrorCode.out_of_order_sequence_number)
    producer, history = a_round(world, Trouble("lost"), refused)
    assert producer.waiting == 2
    assert history == []


def test_a_batch_out_of_order_behind_one_that_was_refused_ends_the_producer(world: World) -> None:
    """librdkafka would begin a new epoch, and write again under it what is there already."""
    refused = Answer(ErrorCode.out_of_order_sequence_number)
    with pytest.raises(ToldToEnd, match="out_of_order_sequence_number from node 1"):
        a_round(world, Answer(ErrorCode.not_enough_replicas), refused)


def test_a_producer_that_is_told_to_end_says_so_in_the_history(world: World) -> None:
    with pytest.raises(ToldToEnd, match="out_of_order_sequence_number from node 1"):
        a_round(world, Answer(ErrorCode.out_of_order_sequence_number))


def test_what_a_former_leader_refused_is_overtaken_at_the_next_one_and_only_there(
    world: World,
) -> None:
    """As in librdkafka, where a refused batch waits for a pause of its own; each comes once, the others in their order."""
    producer, _ = a_round(world, *[Answer(ErrorCode.not_leader_or_follower)] * 4)
    batches = list(producer._unacknowledged)

    def sent_to(leader: Any) -> list[list[int]]:
        orders = []
        for _ in range(40):
            producer._refused_by = LEADER
            orders.append([batches.index(each) for each in producer._overtaken(leader, batches)])
        return [list(each) for each in sorted(set(map(tuple, orders)))]

    assert producer._refused_by is LEADER
    successor: Any = Leader(2, 4, None, None)  # type: ignore[arg-type]
    assert sent_to(successor) == [[0, 1, 2, 3], [1, 0, 2, 3], [1, 2, 0, 3], [1, 2, 3, 0]]
    assert sent_to(LEADER) == [[0, 1, 2, 3]]


def test_a_client_does_not_go_back_to_an_older_leader(world: World) -> None:
    asks = client(world)
    asks._learn(TOPIC, 0, 2, 7)
    asks._learn(TOPIC, 0, 1, 6)  # from a node that lags behind
    assert asks._leaders[TOPIC, 0] == (2, 7)
    asks._learn(TOPIC, 0, -1, 7)
    assert asks._leaders[TOPIC, 0] == (-1, 7)


async def _stream(world: World, nodes: ClusterNodes, history: History) -> None:
    nodes.start_all()
    await nodes.until_ready()
    admin = Admin(client(world), nodes, TOPIC)
    assert await world.on(admin.client.env, admin.create(TOPIC, 1)) == "none"
    producer = StreamProducer(client(world), TOPIC, 0, history)
    running = asyncio.ensure_future(world.on(producer.client.env, producer.run()))
    for _ in range(3):
        await asyncio.sleep(0.4)
        world.kill("node-1")
        await asyncio.sleep(0.2)
        nodes.start(1)
    producer.stopping = True
    await running
    final = StreamReader(client(world), TOPIC, 0, history, name="final")
    await world.on(final.client.env, final.read_all())


def test_producer_and_reader_leave_a_valid_history_of_a_node_that_is_killed(world: World) -> None:
    history: History = []
    world.run(_stream(world, ClusterNodes(world, 1), history))
    verdict = judge(history)
    assert verdict.valid, str(verdict)
    assert verdict.counts["acknowledged"] > 20


def test_a_run_that_fails_tells_the_last_events_of_each_node() -> None:
    run = ClusterRun(Plan(campaign="cluster", seed=3, nodes=1, seconds=1, faults=("kill",)))
    run.run()
    told = run.explain()
    assert "-- node-1" in told
    assert "node_ready" in told
    assert "faults: 1 kill at" in told
