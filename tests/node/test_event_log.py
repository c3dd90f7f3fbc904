"""What the logs of a whole cluster say of what happened to it: once, where it was decided, and why."""

import asyncio
from typing import Any

from fencepost.chaos.sim.cluster_nodes import node_name
from sim_cluster import Cluster

# Of these there is one line in the whole cluster for each thing that happens.
DECIDED = (
    "broker_fenced",
    "broker_unfenced",
    "broker_leaving",
    "isr_changed",
    "isr_expands",
    "isr_shrinks",
    "leader_elected",
    "partition_without_leader",
    "quorum_leader_elected",
    "quorum_lead_lost",
)


class Told(Cluster):
    def forget(self) -> None:
        for each in self.nodes.ids:
            self.world.machine(node_name(each)).events.clear()

    def told(self, *without: str) -> list[tuple[int, str, Any]]:
        """(node, event, cause) of all that was decided since, by node and in order."""
        return [
            (each, event, fields.get("cause"))
            for each in self.nodes.ids
            for _, event, fields in self.world.machine(node_name(each)).events
            if event in DECIDED and event not in without
        ]

    async def controller_id(self) -> int:
        image = self.nodes.image
        assert image is not None
        await self.until(lambda: image.controller_id is not None)
        assert image.controller_id is not None
        return image.controller_id

    async def settled(self, seconds: float = 6.0) -> None:
        await asyncio.sleep(seconds)


def test_a_killed_leader_is_told_once_with_who_leads_now_and_why() -> None:
    cluster = Told(3, seed="told")

    async def scenario() -> None:
        await cluster.create("t", partitions=2)
        controller = await cluster.controller_id()
        led = cluster.leaders()
        victim = next(each for each in led if each != controller)
        cluster.forget()
        cluster.kill(victim)
        await cluster.settled()
        dead = f"node {victim} is fenced: its process is dead"
        expected = [(controller, "broker_fenced", "its process is dead")]
        expected += [
            (controller, "leader_elected" if leader == victim else "isr_changed", dead)
            for leader in led
        ]
        assert cluster.told() == expected

    cluster.play(scenario)


def test_a_killed_controller_is_told_by_the_one_that_takes_over() -> None:
    cluster = Told(3, seed="told too")

    async def scenario() -> None:
        await cluster.create("t")
        victim = await cluster.controller_id()
        cluster.forget()
        cluster.kill(victim)
        await cluster.settled()
        after = await cluster.controller_id()
        why = f"node {victim} is fenced: its process is dead"
        leads = "leader_elected" if cluster.partition().leader_epoch else "isr_changed"
        assert cluster.told() == [
            (after, "quorum_leader_elected", f"the process of node {victim} is dead"),
            (after, "broker_fenced", "its process is dead"),
            (after, leads, why),
        ]

    cluster.play(scenario)


def test_a_clean_stop_is_told_as_one_and_a_return_with_the_leader_that_takes_it_back() -> None:
    cluster = Told(3, seed="told of a stop")

    async def scenario() -> None:
        await cluster.create("t")
        controller = await cluster.controller_id()
        victim = next(each for each in (1, 2, 3) if each != controller)
        leader = cluster.partition().leader
        cluster.forget()
        await cluster.nodes.stop(victim)
        stopping = f"node {victim} is stopping"
        changed = "leader_elected" if leader == victim else "isr_changed"
        told = cluster.told()
        assert told[0] == (controller, "broker_leaving", "it asked to go")
        assert told[1] == (controller, changed, stopping)
        cluster.forget()
        cluster.nodes.start(victim)
        await cluster.until(lambda: victim in cluster.nodes.ready())
        await cluster.until(lambda: len(cluster.partition().isr) == 3)
        expected = [
            (controller, "broker_unfenced", "it has caught up with the metadata"),
            (cluster.partition().leader, "isr_expands", "it has all that is committed, up to 0"),
        ]
        assert sorted(cluster.told("leader_elected")) == sorted(expected)

    cluster.play(scenario)


def test_a_follower_that_is_paused_is_dropped_with_by_how_much_it_lags() -> None:
    cluster = Told(3, seed="a lag", config=["broker.session.timeout.ms=60000"])

    async def scenario() -> None:
        await cluster.create("t")
        controller = await cluster.controller_id()
        leader = cluster.partition().leader
        victim = next(each for each in (1, 2, 3) if each not in (controller, leader))
        cluster.forget()
        cluster.world.pause(node_name(victim))
        for _ in range(3):
            await cluster.produce(leader)
        await cluster.until(lambda: len(cluster.partition().isr) == 2)
        ((who, event, cause),) = cluster.told()
        assert (who, event) == (leader, "isr_shrinks")
        assert cause.startswith(f"node {victim} is ") and "records behind" in cause
        assert cause.endswith("replica.lag.time.max.ms is 1500")

    cluster.play(scenario)
