"""What the watch of a simulated cluster must see, and must not take for a fault."""

import asyncio

import pytest
from cluster_scene import TOPIC, Scene, play
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.chaos.sim.cluster_watch import ClusterBroken
from fencepost.chaos.sim.limits import cleaner_settings
from fencepost.chaos.sim.world import World
from fencepost.chaos.workloads.cluster_offsets import OffsetKeeper
from fencepost.cluster.base.ids import TopicPartition

SEED = 1
NAME = TopicPartition(TOPIC, 0)


def test_a_member_of_the_isr_without_any_log_of_what_is_committed_is_seen() -> None:
    async def scenario(scene: Scene) -> None:
        del scene.nodes.broker(scene.followers[0]).replicas.partitions[NAME]
        await scene.until_acknowledged(20)

    with pytest.raises(ClusterBroken, match=r"commit-missing.*has no log of it"):
        play(SEED, scenario)


def test_a_log_that_is_damaged_though_no_bit_has_flipped_is_seen() -> None:
    """A node that refuses what only crashes went through has lost it, or claimed too much of it."""

    async def scenario(scene: Scene) -> None:
        victim = scene.followers[0]
        await asyncio.sleep(1)  # a checkpoint says how far it is synced
        scene.kill(victim)
        files = scene.world.disk(node_name(victim)).files
        for path in [path for path, _ in files.files() if f"/{NAME}/" in path]:
            if path.endswith(".log"):
                files.remove(path)
        scene.nodes.start(victim)
        await asyncio.sleep(5)

    with pytest.raises(ClusterBroken, match="damaged: stream-0"):
        play(SEED, scenario)


def begin_to_commit(scene: Scene) -> tuple[OffsetKeeper, asyncio.Future[None]]:
    """Positions in a group, all the time: its log is compacted."""
    client = scene.client("group")
    keeper = OffsetKeeper(client, TOPIC, scene.watch.positioned, pause_s=0.01)
    return keeper, asyncio.ensure_future(scene.world.on(client.env, keeper.run()))


def test_tables_of_a_compacted_log_that_differ_are_seen() -> None:
    async def scenario(scene: Scene) -> None:
        keeper, running = begin_to_commit(scene)
        await asyncio.sleep(2)
        keeper.stopping = True
        await running
        await asyncio.sleep(1)
        assert scene.watch.compare_tables() > 0
        name = next(
            name
            for name, partition in scene.nodes.broker(1).replicas.partitions.items()
            if partition.log.config.compact and partition.log.log_end_offset
        )
        log = scene.nodes.broker(1).replicas.partitions[name].log
        log.segments[-1].size = 0  # to the watch it is empty
        scene.watch.compare_tables()
        await asyncio.sleep(0)

    with pytest.raises(ClusterBroken, match="tables-differ"):
        play(SEED, scenario)


def test_what_one_replica_of_a_compacted_log_alone_has_is_no_difference() -> None:
    """A group whose last session runs out while a run is judged makes its coordinator write."""

    async def scenario(scene: Scene) -> None:
        keeper, running = begin_to_commit(scene)
        await asyncio.sleep(2)
        brokers = [scene.nodes.broker(node_id) for node_id in scene.nodes.ids]
        compacted = [
            [each.replicas.partitions[name] for each in brokers]
            for name, partition in brokers[0].replicas.partitions.items()
            if partition.log.config.compact
        ]
        was_uneven = 0
        for _ in range(300):
            await asyncio.sleep(0.001)
            assert scene.watch.compare_tables() > 0
            was_uneven += any(
                len({replica.log.log_end_offset for replica in replicas}) > 1
                for replicas in compacted
            )
        assert was_uneven, "never did one replica have more than another"
        keeper.stopping = True
        await running

    play(SEED, scenario)


def test_a_third_of_the_seeds_has_logs_that_are_cleaned_all_the_time() -> None:
    drawn = []
    for seed in range(300):
        with World(seed) as world:
            drawn.append(cleaner_settings(world.stream))
    some = [settings for settings in drawn if settings]
    assert 70 < len(some) < 130
    assert len(set(some)) == 2, "segments of two sizes"
