"""A machine's wall clock is set: while its node runs, and between two runs."""

import asyncio

import pytest
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.cluster.base.errors import ErrorCode
from sim_cluster import Cluster

pytestmark = pytest.mark.slow

HOURS_MS = 5 * 3_600_000


class Clocks(Cluster):
    def jump(self, node_id: int, by_ms: int) -> None:
        self.world.machine(node_name(node_id)).wall.jump(by_ms)

    def jump_all(self, by_ms: int) -> None:
        for each in self.nodes.ids:
            self.jump(each, by_ms)


def test_hours_back_while_it_runs_change_timestamps_and_nothing_else() -> None:
    cluster = Clocks(3, seed="back")

    async def scenario() -> None:
        await cluster.create("t")
        leader = cluster.partition().leader
        assert await cluster.produce(leader) is ErrorCode.none
        before = cluster.partition()
        cluster.jump_all(-HOURS_MS)
        await asyncio.sleep(20.0)
        for each in cluster.nodes.ids:
            (told,) = cluster.events(each, "clock_jumped")
            assert (told["direction"], told["by_s"]) == ("back", HOURS_MS / 1000)
            assert not cluster.events(each, "broker_was_fenced")
        assert cluster.partition() == before, "nobody lost a lead or left an in-sync set"
        assert await cluster.produce(leader) is ErrorCode.none
        assert (await cluster.fetch(leader)).high_watermark == 2

    cluster.play(scenario)


def test_a_clock_set_ahead_and_back_again_is_told_each_time() -> None:
    cluster = Clocks(1, seed="there and back")

    async def scenario() -> None:
        cluster.jump(1, HOURS_MS)
        await asyncio.sleep(11.0)
        cluster.jump(1, -HOURS_MS)
        await asyncio.sleep(11.0)
        told = [each["direction"] for each in cluster.events(1, "clock_jumped")]
        assert told == ["ahead", "back"]

    cluster.play(scenario)


def test_a_clock_that_only_drifts_is_not_told() -> None:
    cluster = Clocks(1)

    async def scenario() -> None:
        cluster.world.machine(node_name(1)).wall.drift(500)  # the fastest that time services slew
        await asyncio.sleep(900.0)
        assert not cluster.events(1, "clock_jumped")

    cluster.play(scenario)


def test_a_clock_set_back_between_two_runs_is_told_at_the_start_with_both_times() -> None:
    cluster = Clocks(3, seed="between")

    async def scenario() -> None:
        await cluster.create("t")
        assert await cluster.produce(cluster.partition().leader) is ErrorCode.none
        for each in cluster.nodes.ids:
            cluster.kill(each)
        cluster.jump_all(-HOURS_MS)
        cluster.nodes.start_all()
        await cluster.until(lambda: len(cluster.nodes.ready()) == 3)
        for each in cluster.nodes.ids:
            (told,) = cluster.events(each, "clock_behind_last_run")
            assert HOURS_MS / 1000 - 120 < told["by_s"] <= HOURS_MS / 1000
        await cluster.until(lambda: len(cluster.partition().isr) == 3)
        leader = cluster.partition().leader
        assert await cluster.produce(leader) is ErrorCode.none
        assert (await cluster.fetch(leader)).high_watermark == 2

    cluster.play(scenario)
