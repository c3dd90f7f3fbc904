"""Markers on their way to the leaders of partitions: together, again, elsewhere, or not at all."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TopicPartition
from fencepost.txn.runtime.shard import Shard
from fencepost.txn.transactions.commands import MarkersDone, WriteMarkers
from fencepost.txn.transactions.marker_sender import WRITE_S_MAX, MarkerSender
from transaction_node import Cluster, Door

E = ErrorCode
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class FakeShard:
    def __init__(self) -> None:
        self.is_lost = False


class Bench(Cluster):
    def __init__(self, world: World) -> None:
        super().__init__()
        self.door = Door()
        self.shard = FakeShard()
        self.done: list[MarkersDone] = []
        self.told = 0
        self.is_of_now = True
        self.sender = MarkerSender(
            env=world.node("n"),
            image=self.image,
            door=self.door,
            coordinator_epoch=lambda partition: 40 + partition,
            done=self.take_done,
            confirm_image=self.confirm_image,
        )
        self.make_topic("a", [1, 2])
        self.make_topic("b", [1])
        self.listeners.append(self.sender)

    async def confirm_image(self) -> bool:
        return self.is_of_now

    def take_done(self, shard: Shard, done: tuple[MarkersDone, ...]) -> None:
        assert cast(Any, shard) is self.shard
        self.told += 1
        self.done += done

    def send(self, name: str, *partitions: TopicPartition, commit: bool = True) -> None:
        markers = WriteMarkers(
            transactional_id=name,
            producer_id=7,
            producer_epoch=3,
            commit=commit,
            partitions=partitions,
            transaction_version=2,
        )
        self.sender.send(2, cast(Shard, self.shard), markers)

    @property
    def names(self) -> list[str]:
        return [each.transactional_id for each in self.done]


def on_bench(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    with World(seed=1) as world:

        async def go() -> None:
            await scenario(Bench(world))

        world.run(world.on(world.node("n"), go()))


def test_a_transaction_is_done_when_its_last_partition_shows_the_outcome() -> None:
    async def scenario(bench: Bench) -> None:
        bench.door.answers[A1] = [E.not_leader_or_follower]
        bench.send("x", A0, A1, B0, commit=False)
        await asyncio.sleep(0.001)
        assert bench.names == []
        await asyncio.sleep(1)
        assert bench.names == ["x"]
        first = bench.door.written[0][1]
        assert (first.producer_id, first.producer_epoch, first.coordinator_epoch) == (7, 3, 42)
        assert (first.commit, first.transaction_version) == (False, 2)
        assert first.leader_epochs == (0, 0)
        asked = [(broker, marker.partitions) for broker, marker in bench.door.written]
        assert asked == [(1, (A0, B0)), (2, (A1,)), (2, (A1,))]

    on_bench(scenario)


def test_all_markers_of_a_turn_go_to_a_node_in_one_request() -> None:
    async def scenario(bench: Bench) -> None:
        for n in range(50):
            bench.send(f"x{n}", A0, B0)
        await asyncio.sleep(0.01)
        assert bench.door.requests == 1
        assert len(bench.done) == 50
        assert bench.told == 1

    on_bench(scenario)


def test_a_transaction_without_partitions_is_done_at_once() -> None:
    async def scenario(bench: Bench) -> None:
        bench.send("x")
        await asyncio.sleep(0.001)
        assert bench.names == ["x"]
        assert bench.door.requests == 0

    on_bench(scenario)


def test_a_partition_without_leader_is_waited_for_and_asked_as_soon_as_it_has_one() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead("a", 0, -1)
        bench.send("x", A0, B0)
        await asyncio.sleep(5.0)
        assert bench.names == []
        assert bench.sender.stuck() == {A0: ["x"]}
        bench.lead("a", 0, 2, epoch=2)
        await asyncio.sleep(0.001)
        assert bench.names == ["x"]
        assert bench.sender.stuck() == {}

    on_bench(scenario)


def test_a_node_that_is_not_there_is_asked_again_until_another_leads() -> None:
    async def scenario(bench: Bench) -> None:
        bench.door.unreachable = {1}
        bench.send("x", A0)
        await asyncio.sleep(10)
        assert 5 < bench.door.requests < 20
        assert bench.names == []
        bench.lead("a", 0, 2)
        await asyncio.sleep(0.001)
        assert bench.names == ["x"]

    on_bench(scenario)


def test_a_topic_that_is_deleted_inside_an_open_transaction_holds_nothing_up() -> None:
    async def scenario(bench: Bench) -> None:
        bench.delete_topic("b")
        bench.send("x", A0, B0)
        await asyncio.sleep(0.01)
        assert bench.names == ["x"]
        bench.lead("a", 0, -1)
        bench.send("y", A0)
        await asyncio.sleep(1)
        bench.delete_topic("a")
        await asyncio.sleep(0.01)
        assert bench.names == ["x", "y"]

    on_bench(scenario)


def test_a_topic_that_was_made_anew_gets_its_marker_from_a_node_that_hears_of_its_end_first() -> (
    None
):
    """1. the transaction wrote to the new one  2. the image has the old one  3. deleted, and in a moment: made"""

    async def scenario(bench: Bench) -> None:
        bench.door.answers[A0] = [E.not_leader_or_follower] * 3
        bench.send("x", A0)
        await asyncio.sleep(0.03)
        bench.delete_topic("a")
        bench.make_topic("a", [2])
        await asyncio.sleep(5)
        assert bench.names == ["x"]
        assert bench.door.written[-1][0] == 2

    on_bench(scenario)


def test_a_name_that_may_be_known_to_others_is_not_taken_for_deleted() -> None:
    async def scenario(bench: Bench) -> None:
        bench.is_of_now = False
        bench.delete_topic("b")
        bench.send("x", B0)
        await asyncio.sleep(5)
        assert bench.names == []
        assert bench.sender.stuck() == {B0: ["x"]}
        bench.is_of_now = True
        await asyncio.sleep(5)
        assert bench.names == ["x"]

    on_bench(scenario)


def test_a_partition_that_knows_a_later_epoch_needs_no_marker() -> None:
    async def scenario(bench: Bench) -> None:
        bench.door.answers[A0] = [E.invalid_producer_epoch]
        bench.send("x", A0)
        await asyncio.sleep(0.01)
        assert bench.names == ["x"]

    on_bench(scenario)


def test_a_partition_that_is_not_mentioned_in_the_answer_is_asked_again() -> None:
    async def scenario(bench: Bench) -> None:
        for code in (E.request_timed_out, E.not_enough_replicas, E.unknown_server_error):
            bench.door.answers.setdefault(A0, []).append(code)
        bench.send("x", A0, B0)
        await asyncio.sleep(1)
        assert bench.names == ["x"]
        assert [marker.partitions for _, marker in bench.door.written][1:] == [(A0,)] * 3

    on_bench(scenario)


def test_a_node_that_never_answers_is_asked_again() -> None:
    async def scenario(bench: Bench) -> None:
        bench.door.open.clear()
        bench.send("x", A0)
        await asyncio.sleep(WRITE_S_MAX + 0.01)
        bench.door.open.set()
        await asyncio.sleep(1)
        assert bench.names == ["x"]

    on_bench(scenario)


def test_a_coordinator_that_lost_its_partition_sends_nothing_more() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead("a", 0, -1)
        bench.send("x", A0)
        bench.send("y", B0)
        bench.shard.is_lost = True
        await asyncio.sleep(5)
        bench.lead("a", 0, 1)
        await asyncio.sleep(5)
        assert bench.done == []
        assert bench.door.requests <= 1
        assert bench.door.written == []

    on_bench(scenario)
