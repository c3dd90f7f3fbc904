"""A broker's partitions as the image makes them, in their rounds, and as they are shown."""

import asyncio
import dataclasses
import errno

from fencepost.chaos.sim.node import SimEnv
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId, LeaderEpoch, PartitionEpoch, TopicPartition
from fencepost.cluster.metadata.image import ConfigType, ImageDelta
from fencepost.replication.manager import PARTITIONS_A_TURN
from fencepost.replication.partition import Appended, Partition
from replica_helpers import (
    FOLDER,
    ME,
    NONE,
    ORDERS,
    PAYMENTS,
    Metadata,
    Node,
    Restarts,
    batch,
    id_of,
    play,
    said,
    state_of,
    topic_of,
)

E = ErrorCode

# -- the image ---------------------------------------------------------------------------------------


def test_partitions_come_and_go_with_the_image() -> None:
    async def scene(node: Node) -> None:
        manager = node.manager
        assert manager.partition(PAYMENTS) is E.unknown_topic_or_partition
        node.metadata.create(manager, topic_of("payments", 2))
        assert await node.write(batch("a"), TopicPartition("payments", 1)) == 0
        found = manager.partition_by_id(id_of("payments"), 1)
        assert isinstance(found, Partition) and found.high_watermark == 1
        node.metadata.delete(manager, "payments")
        assert manager.partition(PAYMENTS) is E.unknown_topic_or_partition
        assert manager.partition_by_id(id_of("payments"), 1) is E.unknown_topic_id
        assert found.closed is E.unknown_topic_or_partition

    play(scene)


def test_a_topic_made_again_under_its_name_is_another() -> None:
    async def scene(node: Node) -> None:
        await node.write(batch("old", pid=7))
        node.metadata.delete(node.manager, "orders")
        node.metadata.create(node.manager, topic_of("orders", incarnation="again"))
        assert await node.read_values() == []
        assert await node.write(batch("new", pid=7)) == 0
        assert await node.read_values() == [b"new"]

    play(scene)


def test_a_topic_made_again_while_the_node_was_down_is_another_too() -> None:
    with World(1) as world:
        metadata = Metadata(topic_of("orders"))
        start = Restarts(world, metadata)

        async def before(node: Node) -> None:
            await node.write(batch("old"))

        async def after(node: Node) -> None:
            assert await node.read_values() == []

        start(before)
        again = topic_of("orders", incarnation="again")
        metadata.image.topics["orders"] = again
        metadata.image.topics_by_id[again.topic_id] = again
        start(after)
        assert any(name.endswith("-stray") for name in world.node("a").disk.list(FOLDER))


def test_what_is_taken_away_while_logs_are_opened_is_gone_when_they_are() -> None:
    """Nobody listens to the image until then, and what there is says nothing of what there was."""
    with World(1) as world:
        short = {"retention.ms": "60000"}
        many = topic_of("payments", PARTITIONS_A_TURN)
        metadata = Metadata(topic_of("orders"), many, configs={"orders": short})

        async def main(env: SimEnv) -> None:
            node = Node(env, metadata)
            starting = asyncio.ensure_future(node.manager.start())
            while PAYMENTS not in node.manager.partitions:
                await asyncio.sleep(0)
            assert ORDERS in node.manager.partitions and not starting.done()
            metadata.delete(node.manager, "payments")
            del metadata.image.configs[ConfigType.TOPIC, "orders"]
            await starting
            assert node.partition().config.retention_ms == 7 * 24 * 3600 * 1000
            assert node.manager.partitions.keys() == {ORDERS}
            assert node.manager.partition(PAYMENTS) is E.unknown_topic_or_partition

        env = world.node("a")
        world.run(world.on(env, main(env)))


def test_a_partition_moved_away_is_dropped() -> None:
    async def scene(node: Node) -> None:
        await node.write(batch("a"))
        two = (BrokerId(2),)
        node.metadata.change(node.manager, "orders", leader=BrokerId(2), replicas=two, isr=two)
        assert node.manager.partition(ORDERS) is E.not_leader_or_follower
        assert not node.env.disk.exists(f"{FOLDER}/orders-0")

    play(scene)


def test_settings_take_effect_without_a_restart() -> None:
    async def scene(node: Node) -> None:
        partition = node.partition()
        node.metadata.configure(node.manager, "orders", flush_policy="os", max_message_bytes="100")
        node.produce(batch("a"))
        assert partition.high_watermark == 1
        refused = node.produce(batch("x" * 200))
        assert refused.error is E.message_too_large
        node.metadata.configure(node.manager, "orders")
        assert isinstance(node.produce(batch("x" * 200)), Appended)
        assert partition.high_watermark == 1

    play(scene)


def test_a_leader_deposed_in_a_snapshot_commits_nothing_by_a_minimum_that_came_with_it() -> None:
    """Node 2 led when the minimum was lowered. What node 1 had alone before that was never committed."""
    other = BrokerId(2)
    topic = topic_of("orders")
    topic.partitions[0] = dataclasses.replace(state_of(), replicas=(ME, other))

    async def scene(node: Node) -> None:
        image = node.metadata.image
        node.produce(batch("alone"), acks=1)
        await node.env.clock.sleep(1)
        partition = node.partition()
        assert partition.log_end_offset == 1 and partition.high_watermark == 0
        state = dataclasses.replace(
            topic.partitions[0],
            leader=other, isr=(other,), leader_epoch=LeaderEpoch(2), partition_epoch=PartitionEpoch(2),
        )  # fmt: skip
        topic.partitions[0] = state
        image.configs[ConfigType.TOPIC, "orders"] = {"min.insync.replicas": "1"}
        delta = ImageDelta(image)
        delta.configs_changed = [(ConfigType.TOPIC, "orders")]
        delta.partitions_changed = [(topic, state)]
        node.manager.on_image(delta)
        assert not partition.is_leader
        assert partition.high_watermark == 0

    play(scene, topic, configs={"orders": {"min.insync.replicas": "2"}})


def test_a_thousand_idle_partitions_take_no_files_and_no_timers() -> None:
    async def scene(node: Node) -> None:
        loop = asyncio.get_running_loop()
        before = len(asyncio.all_tasks(loop))
        node.metadata.create(node.manager, topic_of("many", 1_000))
        assert len(asyncio.all_tasks(loop)) == before
        assert len(node.manager.store.shared.pool) == 0
        await node.env.clock.sleep(3600)
        assert node.manager.counters.syncs == 0
        assert node.env.disk.list(FOLDER) == ["partition-offsets"]

    play(scene)


# -- rounds ------------------------------------------------------------------------------------------


def test_old_segments_go_in_their_round() -> None:
    async def scene(node: Node) -> None:
        now = node.env.clock.now_ms()
        await node.write(batch("old", timestamp=now))
        await node.env.clock.sleep(20)
        node.partition().log.roll(node.env.clock.now_ms())
        await node.write(batch("new", timestamp=node.env.clock.now_ms()))
        await node.env.clock.sleep(45)
        assert await node.read_values() == [b"new"]
        assert node.partition().log_start_offset == 1
        assert node.manager.counters.retention_deletes == 1

    play(
        scene,
        configs={"orders": {"retention.ms": "60000"}},
        node_config={"log.retention.check.interval.ms": "1000"},
    )


def test_idle_producers_are_forgotten_in_a_round() -> None:
    async def scene(node: Node) -> None:
        await node.write(batch("a", pid=7))
        assert node.manager.store.shared.budget.count == 1
        await node.env.clock.sleep(310)  # by now nothing is on its way to a former leader
        assert node.manager.store.shared.budget.count == 0
        await node.write(batch("b", pid=7, sequence=9))  # and comes back without an error

    play(
        scene,
        node_config={
            "producer.id.expiration.ms": "60000",
            "log.retention.check.interval.ms": "10000",
        },
    )


def test_a_log_that_fails_its_round_does_not_end_it() -> None:
    async def scene(node: Node) -> None:
        for name in (ORDERS, PAYMENTS):
            await node.write(batch("old", timestamp=1), name)

        def broken(*_: object) -> int:
            raise OSError(errno.EIO, "broken")

        log = node.partition(ORDERS).log
        node.partition(ORDERS).log = _Failing(log, apply_retention=broken)
        await node.env.clock.sleep(2)
        assert node.partition(PAYMENTS).log_start_offset == 1
        assert said(node, "retention_failed")
        node.partition(ORDERS).log = log

    play(
        scene,
        topic_of("orders"),
        topic_of("payments"),
        configs={name: {"retention.ms": "1000"} for name in ("orders", "payments")},
        node_config={"log.retention.check.interval.ms": "1000"},
    )


class _Failing:
    """A log of which one method fails."""

    def __init__(self, log: object, **broken: object) -> None:
        self._log = log
        self.__dict__.update(broken)

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)


def test_checkpoints_are_written_when_something_moved_and_only_then() -> None:
    async def scene(node: Node) -> None:
        await node.env.clock.sleep(1)
        before = node.env.machine.disk.operations
        await node.env.clock.sleep(600)
        assert node.env.machine.disk.operations == before
        await node.write(batch("a"))
        await node.env.clock.sleep(1)
        assert node.partition().log.settled_point == 1

    play(scene, node_config={"log.retention.check.interval.ms": "100000000"})


# -- what is shown -----------------------------------------------------------------------------------


def test_sizes_and_space_are_told() -> None:
    async def scene(node: Node) -> None:
        sent = batch("a")
        await node.write(sent)
        assert dict(node.manager.sizes()) == {ORDERS: len(sent)}
        total, free = node.manager.disk_bytes()
        assert 0 < free <= total

    play(scene)


def test_a_read_that_fails_is_an_answer_and_a_line_in_the_log() -> None:
    async def scene(node: Node) -> None:
        await node.write(batch("a"))
        log = node.partition().log

        def broken(*_: object, **__: object) -> object:
            raise OSError(errno.EIO, "broken")

        node.partition().log = _Failing(log, read=broken)
        refused = node.partition().read(0, 100, isolation=0, min_one=True)
        assert refused.error is E.kafka_storage_error
        assert said(node, "read_failed")
        assert node.partition().readable_bytes(0, 100, 0) is None
        node.partition().log = log
        assert await node.read_values() == [b"a"]

    play(scene)


def test_a_write_while_the_watermark_waits_is_seen_by_producers_only() -> None:
    async def scene(node: Node) -> None:
        partition = node.partition()
        node.produce(batch("a", pid=3))
        assert [each.producer_id for each in partition.active_producers()] == [3]
        assert await partition.committed(0) is NONE

    play(scene)
