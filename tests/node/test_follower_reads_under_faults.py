"""Readers at every replica while nodes die, sleep, lose power and are cut off: what any of them showed is kept."""

import asyncio
import contextlib
import random

import pytest
from fencepost.chaos.sim.cluster_nodes import CLIENT_PORT, node_name
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.wire.client import WireClient
from fencepost.cluster.wire.records import read_records
from test_reads_from_followers import Scene

SECONDS = 4.0


class Readers:
    """One at each node, which reads there whether it leads or follows, as far as it is let."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.seen: dict[int, dict[int, bytes | None]] = {id_: {} for id_ in scene.nodes.ids}
        self.from_followers = 0
        self.writing = True
        self.over = False

    async def read(self, node: int) -> None:
        seen = self.seen[node]
        # A connection of its own: answers come in order, and a produce must not wait for a parked fetch.
        wire = WireClient(self.scene.env, node_name(node), CLIENT_PORT)
        while not self.over:
            offset = len(seen)
            try:
                async with asyncio.timeout(2.0):
                    answer = await self.scene.fetch(node, offset, wait=200, wire=wire)
            except (Trouble, TimeoutError):
                await asyncio.sleep(0.05)
                continue
            if answer.error_code is not ErrorCode.none:
                await asyncio.sleep(0.05)
                continue
            records = read_records(bytes(answer.records)) if answer.records else []
            for record in records:
                if record.offset >= offset:
                    assert record.offset == len(seen), "a reader skips nothing"
                    assert record.offset < answer.high_watermark, "nor sees what is not committed"
                    seen[record.offset] = record.value
            if records and self.scene.nodes.leader("orders", 0) != node:
                self.from_followers += len(records)


async def write(scene: Scene, readers: Readers) -> None:
    number = 0
    while readers.writing:
        number += 1
        with contextlib.suppress(Trouble, TimeoutError, AssertionError):  # no leader, or refused
            async with asyncio.timeout(1.0):
                await scene.produce(b"%d" % number)
        await asyncio.sleep(0.005)


async def break_things(scene: Scene, rng: random.Random) -> None:
    world, nodes = scene.world, scene.nodes
    end = world.loop.time() + SECONDS
    while world.loop.time() < end:
        await asyncio.sleep(rng.uniform(0.1, 1.0))
        one, other = rng.sample(nodes.ids, 2)
        name = node_name(one)
        match rng.choice(("kill", "crash", "pause", "cut", "one way")):
            case "kill":
                world.kill(name)
            case "crash":
                world.crash(name, silent=rng.random() < 0.5)
            case "pause":
                world.pause(name)
            case "cut":
                world.net.cut(name, node_name(other))
            case "one way":
                world.net.cut(name, node_name(other), one_way=True)
        await asyncio.sleep(rng.uniform(0.1, 3.0))
        world.heal()
        nodes.start_all()


async def play(scene: Scene) -> None:
    await scene.start()
    readers = Readers(scene)
    async with asyncio.TaskGroup() as group:
        group.create_task(write(scene, readers))
        for node in scene.nodes.ids:
            group.create_task(readers.read(node))
        await break_things(scene, scene.world.stream("faults"))
        scene.world.heal()
        scene.nodes.start_all()
        await scene.nodes.until_whole(90.0)
        await asyncio.sleep(1)  # faults may have left hardly a moment to write in
        readers.writing = False
        await asyncio.sleep(3)
        readers.over = True
    kept: dict[int, bytes | None] = {}
    end = scene.high_watermark(scene.leader)
    # The writer's may be a connection that a machine without power left behind.
    final = WireClient(scene.env, node_name(scene.leader), CLIENT_PORT)
    while len(kept) < end:
        answer = await scene.fetch(scene.leader, len(kept), wire=final)
        kept |= {record.offset: record.value for record in read_records(bytes(answer.records))}
    assert end > 50 and readers.from_followers > 50, "the run was worth it"
    for node, seen in readers.seen.items():
        assert seen.items() <= kept.items(), f"node {node} has shown what is not kept"
        assert len(seen) == end, f"the reader at node {node} has come to the end"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_what_a_follower_has_shown_is_never_taken_back(seed: int) -> None:
    with World(seed) as world:
        world.run(play(Scene(world)))
