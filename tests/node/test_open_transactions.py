"""Transactions that are open while nodes die: what readers of committed records see, on leaders and followers."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.chaos.workloads.cluster_client import ClusterClient
from fencepost.chaos.workloads.txn_client import TransactionalProducer
from fencepost.cluster.base.ids import TopicPartition
from fencepost.replication.partition import Partition
from sim_cluster import CLIENT, Cluster
from support.read_committed import seen_by_a_client

pytestmark = pytest.mark.slow
TOPIC = "t"
FIRST = TopicPartition(TOPIC, 0)
SETTINGS = ("transaction.state.log.num.partitions=1", "offsets.topic.num.partitions=1")


class Scene:
    def __init__(self, seed: str, *, new_protocol: bool) -> None:
        self.cluster = Cluster(3, seed=seed, config=SETTINGS)
        self.client = self.cluster.world.node(CLIENT)
        self.new_protocol = new_protocol
        self.producer: TransactionalProducer

    def play(self, scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            await self.cluster.create(TOPIC)
            await self.begin("one")
            await scenario()

        self.cluster.play(whole)

    async def begin(self, name: str) -> None:
        client = ClusterClient(self.client, self.cluster.nodes.addresses, name="producer")
        self.producer = TransactionalProducer(client, name, new_protocol=self.new_protocol)
        await self.on(self.producer.init())

    async def on(self, work: Awaitable[Any]) -> Any:
        async def done() -> Any:
            return await work

        return await self.cluster.world.on(self.client, done())

    async def send(self, *values: bytes) -> None:
        await self.on(self.producer.send(TOPIC, 0, values))

    async def end(self, *, commit: bool) -> None:
        assert await self.on(self.producer._end(commit=commit)) == ("ok", "")

    # -- what the replicas show ------------------------------------------------------------------

    def replicas(self) -> list[Partition]:
        nodes = self.cluster.nodes
        found = [nodes.broker(each).replicas.partitions.get(FIRST) for each in nodes.ready()]
        return [each for each in found if each is not None]

    async def all_show(self, *values: bytes, stable: bool = True) -> None:
        """Every replica, leader or not, shows just these to readers of committed records."""

        def shown() -> bool:
            replicas = self.replicas()
            return len(replicas) == 3 and all(
                seen_by_a_client(each, each.log_start_offset) == list(values)
                and (each.last_stable_offset == each.log_end_offset) is stable
                for each in replicas
            )

        await self.cluster.until(shown)

    async def kill_and_start(self, *node_ids: int, power: bool = False) -> None:
        world, nodes = self.cluster.world, self.cluster.nodes
        for each in node_ids:
            if power:
                world.crash(node_name(each), torn=False)
            else:
                world.kill(node_name(each))
        for each in node_ids:
            nodes.start(each)
        await self.cluster.until(lambda: set(node_ids) <= set(nodes.ready()))


BOTH = pytest.mark.parametrize("new_protocol", [False, True], ids=["old", "new"])


@BOTH
def test_a_transaction_goes_on_under_the_next_leader(new_protocol: bool) -> None:
    scene = Scene("next leader", new_protocol=new_protocol)

    async def scenario() -> None:
        await scene.send(b"a", b"b")
        await scene.all_show(stable=False)
        leader = scene.cluster.partition(0).leader
        scene.cluster.world.kill(node_name(leader))
        await scene.cluster.until(lambda: scene.cluster.partition(0).leader not in (-1, leader))
        await scene.send(b"c")
        scene.cluster.nodes.start(leader)
        await scene.all_show(stable=False)
        await scene.end(commit=True)
        await scene.all_show(b"a", b"b", b"c")

    scene.play(scenario)


@BOTH
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
def test_a_transaction_that_is_open_when_all_nodes_die_is_open_when_they_are_back(
    new_protocol: bool, power: bool
) -> None:
    scene = Scene("all nodes die", new_protocol=new_protocol)

    async def scenario() -> None:
        await scene.send(b"a")
        await scene.end(commit=True)
        await scene.send(b"b")
        await scene.end(commit=False)
        await scene.send(b"c")
        await scene.all_show(b"a", stable=False)
        await scene.kill_and_start(*scene.cluster.nodes.ids, power=power)
        await scene.all_show(b"a", stable=False)
        await scene.send(b"d")
        await scene.end(commit=True)
        await scene.all_show(b"a", b"c", b"d")
        await scene.kill_and_start(*scene.cluster.nodes.ids, power=power)
        await scene.all_show(b"a", b"c", b"d")

    scene.play(scenario)


@BOTH
def test_what_a_dead_producer_left_open_is_ended_by_the_next_of_its_name(
    new_protocol: bool,
) -> None:
    scene = Scene("next producer", new_protocol=new_protocol)

    async def scenario() -> None:
        await scene.send(b"a")
        leader = scene.cluster.partition(0).leader
        scene.cluster.world.kill(node_name(leader))
        await scene.begin("one")
        await scene.send(b"b")
        await scene.end(commit=True)
        scene.cluster.nodes.start(leader)
        await scene.all_show(b"b")

    scene.play(scenario)


@BOTH
def test_a_cut_off_leader_gives_up_what_only_it_has_of_a_transaction(new_protocol: bool) -> None:
    """The middle of a transaction is cut away when it comes back, and what its successor has counts."""
    scene = Scene("cut off", new_protocol=new_protocol)

    async def scenario() -> None:
        await scene.send(b"a")
        world, leader = scene.cluster.world, scene.cluster.partition(0).leader
        others = [node_name(each) for each in scene.cluster.nodes.ids if each != leader]
        for other in others:
            world.net.cut(node_name(leader), other)
        # Only the old leader hears of it, and it can't commit it.
        sending = scene.client.tasks.spawn(scene.producer.send(TOPIC, 0, [b"b"]), name="send")
        await scene.cluster.until(lambda: scene.cluster.partition(0).leader not in (-1, leader))
        for other in others:
            world.net.heal(node_name(leader), other)
        await sending
        await scene.end(commit=True)
        await scene.all_show(b"a", b"b")

    scene.play(scenario)
