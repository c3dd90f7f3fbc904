"""What was synced and is not there again when its node is back is seen, though its leader would send it anew."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest
from cluster_scene import TOPIC, Scene, play
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.chaos.sim.cluster_watch import ClusterBroken
from fencepost.chaos.sim.file_node import FileNode
from fencepost.chaos.sim.world import NodeLost
from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.wire.batch import headers_of
from fencepost.replication.log.log import Log

SEED = 1
NAME = TopicPartition(TOPIC, 0)
EPOCH_AT = 15  # of a batch: the last byte of its leader epoch, which no checksum covers


async def kill_before_a_checkpoint(scene: Scene) -> tuple[int, FileNode]:
    """A follower that has synced more than any checkpoint says; its newest file."""
    victim = scene.followers[0]
    log = scene.nodes.broker(victim).replicas.partitions[NAME].log
    while not (log.settled_point < log.recovery_point == log.log_end_offset and log.active.size):
        await asyncio.sleep(0.001)
    scene.kill(victim)
    return victim, scene.world.disk(node_name(victim)).files.file(log.active.path)


async def change_after_a_kill(scene: Scene, change: Callable[[FileNode, int], None]) -> None:
    """`change` is given the file, and where its last batch begins."""
    victim, file = await kill_before_a_checkpoint(scene)
    *_, (last, _) = headers_of(bytes(file.content))
    change(file, last)
    scene.nodes.start(victim)
    await asyncio.sleep(5)


def test_a_synced_tail_that_is_gone_after_a_kill_is_seen() -> None:
    def drop(file: FileNode, last: int) -> None:
        del file.content[last:], file.durable[last:]

    with pytest.raises(ClusterBroken, match=r"synced-lost: stream-0: .* its log ends at"):
        play(SEED, lambda scene: change_after_a_kill(scene, drop))


def test_a_synced_byte_that_is_another_one_is_seen() -> None:
    def turn(file: FileNode, last: int) -> None:
        for copy in (file.content, file.durable):
            copy[last + EPOCH_AT] ^= 1

    with pytest.raises(ClusterBroken, match=r"synced-lost: stream-0: .* other bytes"):
        play(SEED, lambda scene: change_after_a_kill(scene, turn))


def test_a_power_cut_takes_only_what_was_not_synced() -> None:
    async def scenario(scene: Scene) -> None:
        victim = scene.followers[0]
        log = scene.nodes.broker(victim).replicas.partitions[NAME].log
        while not log.recovery_point < log.log_end_offset:
            await asyncio.sleep(0.001)
        scene.world.crash(node_name(victim))
        scene.nodes.start(victim)
        await asyncio.sleep(2)

    assert play(SEED, scenario).watch.synced.compared > 0


async def begin_anew(log: Log, offset: int) -> None:
    log.truncate_fully_and_start_at(offset)


def test_a_log_that_was_beginning_anew_when_its_node_was_killed_owes_nothing() -> None:
    """At every disk operation behind the first file's making: its start in memory is the old one yet, or is not."""
    starts: list[int] = []  # in memory, at each kill

    async def kill_at(scene: Scene, victim: int, operation: int) -> bool:
        """Whether it got so far; `operation` is counted from the first that finds the new file."""
        name, log = node_name(victim), scene.nodes.broker(victim).replicas.partitions[NAME].log
        begin, seen = log.log_end_offset, 0
        assert begin > 0

        def look(_: int) -> None:
            nonlocal seen
            seen += bool(log.segments) and log.segments[0].base_offset == begin
            if seen == operation:
                starts.append(log.log_start_offset)
                scene.world.disk(name).on_operation = None
                scene.kill(victim)

        scene.world.disk(name).on_operation = look
        with suppress(NodeLost):
            await scene.world.on(scene.world.node(name), begin_anew(log, begin))
        scene.world.disk(name).on_operation = None
        return seen == operation

    async def scenario(scene: Scene) -> None:
        victim, operation = scene.followers[0], 1
        scene.watch.shortened.add(TOPIC)
        while await kill_at(scene, victim, operation):
            operation += 1
            scene.nodes.start(victim)
            await scene.nodes.until_ready()
            await scene.nodes.until_whole()
            await scene.until_acknowledged(20)

    play(SEED, scenario)
    assert starts[0] == 0 < starts[-1]
