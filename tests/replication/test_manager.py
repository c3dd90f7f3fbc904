"""A broker's partitions as the image makes them, through starts, stops, damage and rounds."""

import asyncio
import dataclasses
import errno
from typing import Any
from uuid import UUID

import pytest
from fencepost.chaos.sim.node import SimEnv
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId, LeaderEpoch, PartitionEpoch, TopicPartition
from fencepost.cluster.metadata.image import ConfigType, ImageDelta
from fencepost.cluster.wire.batch import compute_crc
from fencepost.cluster.wire.records import Record, build_batch, control_batch
from fencepost.replication.log.checkpoint import Kind
from fencepost.replication.manager import PARTITIONS_A_TURN
from fencepost.replication.partition import Appended, Partition, Refusal
from replica_helpers import (
    FOLDER,
    ME,
    NONE,
    ORDERS,
    Metadata,
    Node,
    batch,
    id_of,
    play,
    state_of,
    surveyed,
    topic_of,
)

E = ErrorCode
PAYMENTS = TopicPartition("payments", 0)


class Restarts:
    """Scenes on one machine, a start of the node each."""

    def __init__(self, world: World, metadata: Metadata) -> None:
        self.world = world
        self.metadata = metadata

    def __call__(self, scene, *, stop: bool = True) -> None:
        env = self.world.node("a")

        async def main(env: SimEnv) -> None:
            node = await Node(env, self.metadata).start()
            await scene(node)
            if stop:
                await node.manager.stop()

        self.world.run(self.world.on(env, main(env)))
        if not stop:
            self.world.kill("a")
        self.world.restart("a")


def said(node: Node, event: str) -> list[dict[str, object]]:
    """The fields of each such line of the node's log."""
    return [fields for _, each, fields in node.env.log.events if each == event]


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


def test_that_syncs_count_no_more_is_on_the_disk_before_what_was_not_synced_is_committed() -> None:
    """1. A write waits for its sync. 2. `flush.policy` becomes `os`: it is committed. 3. An end of power took it before it
    was written down that such a log may lack something, and the node came back into the ISR.
    """

    async def scene(node: Node) -> None:
        known: list[bool] = []
        offsets = node.manager.store.offsets
        node.manager.lead()  # the cluster knows that the disk was empty
        await node.manager.store.checkpoint()
        assert offsets.get(Kind.DOUBT, ORDERS) is None

        def told(_outcome: ErrorCode) -> None:
            is_doubted = offsets.get(Kind.DOUBT, ORDERS) is not None
            known.append(is_doubted and offsets.is_durable(Kind.DOUBT, ORDERS))

        done = node.produce(batch("a"))
        assert isinstance(done, Appended)
        node.partition().when_acknowledged(done.last_offset, -1, told)
        node.metadata.configure(node.manager, "orders", flush_policy="os")
        assert known == [True]

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


def test_a_log_that_fails_in_its_first_sync_under_ack_may_lack_what_it_acknowledged_before() -> (
    None
):
    """By `flush.policy=os`, and nothing of it was synced: it stayed eligible to lead."""

    async def scene(node: Node) -> None:
        node.manager.lead()
        await node.write(batch("a"))
        assert node.partition().log.recovery_point == 0
        node.env.machine.disk.faults.fail("sync", path="*.log")
        node.metadata.configure(node.manager, "orders")
        await node.env.clock.sleep(1)
        assert [may_lack for _, _, may_lack in node.manager.failures(untold=False)] == [True]

    play(scene, configs={"orders": {"flush.policy": "os"}})


def test_a_log_that_was_always_synced_first_lacks_nothing_when_a_sync_fails() -> None:
    async def scene(node: Node) -> None:
        node.manager.lead()
        node.env.machine.disk.faults.fail("sync", path="*.log")
        assert isinstance(node.produce(batch("a")), Appended)
        await node.env.clock.sleep(1)
        assert [may_lack for _, _, may_lack in node.manager.failures(untold=False)] == [False]

    play(scene)


def test_what_could_not_be_synced_for_want_of_descriptors_is_acknowledged_when_there_are_some() -> (
    None
):
    """Without another write to it."""

    async def scene(node: Node) -> None:
        node.manager.lead()
        wrong = node.env.machine.disk.faults
        wrong.fail("sync_folder", number=errno.EMFILE, times=1_000_000)
        assert isinstance(node.produce(batch("a")), Appended)
        await node.env.clock.sleep(2)
        assert (node.partition().high_watermark, node.partition().closed) == (0, None)
        wrong.planned.clear()
        await node.env.clock.sleep(1)
        assert node.partition().high_watermark == 1

    play(scene)


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


# -- starts and stops --------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_knows_every_record_producer_and_watermark(clean: bool) -> None:
    with World(1) as world:
        start = Restarts(world, Metadata(topic_of("orders"), topic_of("payments")))
        sent = [bytes(batch(str(n), pid=7, sequence=n)) for n in range(8)]

        async def before(node: Node) -> None:
            for each in sent:
                await node.write(bytearray(each))
            node.partition().delete_records(1)
            await node.env.clock.sleep(1)

        async def after(node: Node) -> None:
            partition = node.partition()
            assert node.manager.store.was_clean is clean
            assert (partition.log_start_offset, partition.high_watermark) == (1, 8)
            # Every batch of the window is known, not just the last (which is all that Kafka keeps).
            for number in range(3, 8):
                again = node.produce(bytearray(sent[number]))
                assert isinstance(again, Appended) and again.duplicate
                assert again.first_offset == number
            assert await node.read_values() == [str(n).encode() for n in range(1, 8)]
            await node.write(batch("8", pid=7, sequence=8))

        start(before, stop=clean)
        start(after)


def test_what_was_deleted_stays_so_though_nothing_would_be_synced_for_long() -> None:
    """Under flush.policy=os the log start is told when what is before it is synced, and that is asked for."""
    with World(1) as world:
        start = Restarts(
            world, Metadata(topic_of("orders"), configs={"orders": {"flush.policy": "os"}})
        )

        async def before(node: Node) -> None:
            for n in range(4):
                await node.write(batch(str(n), pid=n, sequence=0))
            assert node.partition().log.recovery_point == 0
            node.partition().delete_records(3)
            await node.env.clock.sleep(0.5)

        async def after(node: Node) -> None:
            assert node.partition().log_start_offset == 3
            assert all(node.partition().log.producers.knows(n) for n in range(4))

        start(before, stop=False)
        start(after)


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
def test_producers_that_can_not_be_read_after_a_start_cost_a_batch_at_most(
    number: int,
) -> None:
    """They are read for the first batch. One that may be read later (too many open files) costs that batch only, and a file that the
    disk can't read is made anew from the log."""
    with World(1) as world:
        start = Restarts(world, Metadata(topic_of("orders")))

        async def before(node: Node) -> None:
            for pid in range(300):  # more than a hint carries: they are in a file of their own
                await node.write(batch("a", pid=pid))

        async def after(node: Node) -> None:
            faults = node.env.machine.disk.faults
            faults.fail("*", path="*.producers", number=number)
            if number == errno.EMFILE:
                refused = node.produce(batch("b", pid=7, sequence=1))
                assert isinstance(refused, Refusal) and refused.error is E.kafka_storage_error
            again = node.produce(batch("a", pid=7))
            assert isinstance(again, Appended) and again.duplicate
            await node.write(batch("b", pid=7, sequence=1))
            assert not node.manager.offline

        start(before, stop=True)
        start(after)


def test_a_start_names_what_may_lack_something_until_the_cluster_knows_it() -> None:
    with World(1) as world:
        metadata = Metadata(topic_of("orders"), configs={"orders": {"flush.policy": "os"}})
        topic_id = metadata.image.topics["orders"].topic_id

        async def first(node: Node) -> list[tuple[UUID, int]] | None:
            await node.manager.start()
            lacking = node.manager.lacking()
            node.manager.lead()
            assert node.manager.lacking() == []
            await node.manager.store.checkpoint()
            await node.write(batch("a"))
            return lacking

        def started() -> list[tuple[UUID, int]] | None:
            env = world.node("a")
            return world.run(world.on(env, first(Node(env, metadata))))

        assert started() is None  # an empty disk: it may be another one than it had
        world.kill("a")
        assert started() == []  # the same boot: the page cache is still there
        world.crash("a")
        assert started() == [(topic_id, 0)]


def test_what_the_first_start_after_an_end_of_power_could_not_open_is_doubted_by_the_next() -> None:
    """1. The power goes. 2. There are too many open files for this log, and the process is killed before it registers.
    3. On the same boot it opens the log: it said that it lacks nothing, and stayed in the ISR.
    """
    with World(1) as world:
        metadata = Metadata(topic_of("orders"), configs={"orders": {"flush.policy": "os"}})
        topic_id = metadata.image.topics["orders"].topic_id

        def started() -> Node:
            env = world.node("a")
            node = Node(env, metadata)
            world.run(world.on(env, node.manager.start()))
            return node

        node = started()

        async def acknowledge() -> None:
            node.manager.lead()
            await node.manager.store.checkpoint()
            await node.write(batch("a"))

        world.run(world.on(node.env, acknowledge()))
        world.crash("a")
        world.restart("a").machine.disk.faults.fail("*", path="*/orders-0*", number=errno.EMFILE)
        assert ORDERS in started().manager.offline
        world.kill("a")
        world.restart("a")
        assert started().manager.lacking() == [(topic_id, 0)]


def test_a_damaged_log_is_offline_and_the_others_serve() -> None:
    with World(1) as world:
        start = Restarts(world, Metadata(topic_of("orders"), topic_of("payments")))

        async def before(node: Node) -> None:
            for value in "abcdef":
                await node.write(batch(value * 100))
                await node.write(batch(value), PAYMENTS)
            await node.env.clock.sleep(1)

        async def after(node: Node) -> None:
            assert node.manager.partition(ORDERS) is E.kafka_storage_error
            assert "orders-0" in node.manager.offline[ORDERS]
            assert await node.read_values(PAYMENTS) == [value.encode() for value in "abcdef"]
            assert len(node.manager.offline) == surveyed(node.manager).replicas == 1

        start(before, stop=False)
        path = f"{FOLDER}/orders-0/{0:020d}.log"
        world.disk("a").flip_bits(path, 20)
        start(after, stop=False)


def test_a_marker_for_a_log_that_is_damaged_is_refused() -> None:
    """What was aborted before is derived from the log, which can't be read."""
    with World(1) as world:
        start = Restarts(world, Metadata(topic_of("orders")))

        def mark(node: Node) -> Appended | Refusal:
            marker = control_batch(
                commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=5
            )
            return node.partition().append_as_leader(
                marker, required_acks=-1, now_ms=5, origin_client=False
            )

        async def before(node: Node) -> None:
            await node.write(batch("a", pid=7, transactional=True))
            assert isinstance(mark(node), Appended)
            await node.write(batch("b", pid=7, sequence=1, transactional=True))

        async def after(node: Node) -> None:
            partition = node.partition()
            node.env.machine.disk.flip_bits(partition.log.active.path, 500)
            refused = mark(node)
            assert isinstance(refused, Refusal) and refused.error is E.kafka_storage_error
            assert partition.closed is None
            two = (ME, BrokerId(2))
            node.metadata.change(node.manager, "orders", replicas=two, isr=two)
            refused = mark(node)
            assert isinstance(refused, Refusal) and refused.error is E.kafka_storage_error
            assert ORDERS in node.manager.offline and partition.closed is E.kafka_storage_error

        start(before)
        world.disk("a").flip_bits(f"{FOLDER}/orders-0/{0:020d}.txnindex", 20)
        start(after, stop=False)


def test_folders_that_nobody_knows_are_named_and_left() -> None:
    with World(1) as world:
        metadata = Metadata(topic_of("orders"))
        start = Restarts(world, metadata)

        async def before(node: Node) -> None:
            await node.write(batch("a"))

        async def after(node: Node) -> None:
            assert node.manager.partitions == {}
            assert node.env.disk.exists(f"{FOLDER}/orders-0")
            [fields] = said(node, "stray_folders")
            assert fields["partitions"] == ["orders-0"]

        start(before)
        metadata.image.topics.clear()
        start(after)


def test_a_stop_syncs_what_was_written_and_takes_no_more() -> None:
    with World(1) as world:
        start = Restarts(world, Metadata(topic_of("orders")))

        async def before(node: Node) -> None:
            node.produce(batch("a"))
            partition = node.partition()
            await node.manager.stop()
            assert partition.log.recovery_point == 1
            refused = partition.append_as_leader(batch("b"), required_acks=1, now_ms=0)
            assert refused.error is E.not_leader_or_follower

        async def after(node: Node) -> None:
            assert await node.read_values() == [b"a"]

        start(before, stop=False)
        start(after)


def test_a_crash_between_the_image_and_the_folder_leaves_nothing_of_a_deleted_topic_readable() -> (
    None
):
    with World(1) as world:
        metadata = Metadata(topic_of("orders"))
        start = Restarts(world, metadata)

        async def before(node: Node) -> None:
            await node.write(batch("a"))
            node.env.machine.disk.faults.fail("rename", path="*orders-0*", number=errno.EIO)
            metadata.delete(node.manager, "orders")

        async def after(node: Node) -> None:
            assert node.manager.partition(ORDERS) is E.unknown_topic_or_partition

        start(before, stop=False)
        start(after)


def test_a_damaged_replica_that_is_moved_away_and_back_is_a_new_one() -> None:
    """Its folder stayed, and was found damaged again: nothing but another disk could mend it."""
    with World(1) as world:
        metadata = Metadata(topic_of("orders"))
        start = Restarts(world, metadata)

        async def before(node: Node) -> None:
            await node.write(batch("a"))
            await node.manager.store.checkpoint()

        async def after(node: Node) -> None:
            manager, here = node.manager, metadata.image.topics["orders"].partitions[0].replicas
            assert "holds no log" in manager.offline[ORDERS]
            there = (BrokerId(2), BrokerId(3))
            metadata.change(manager, "orders", replicas=there, isr=there, leader=there[0])
            assert not manager.offline
            metadata.change(manager, "orders", replicas=(*there, *here))
            assert node.partition().log_end_offset == 0

        start(before, stop=False)
        world.node("a").disk.remove(f"{FOLDER}/orders-0/00000000000000000000.log")
        start(after)


def test_a_stop_in_the_middle_of_a_checkpoint_lets_it_end() -> None:
    """The log has handed its work to the checkpoint: cut off there, nobody would do it."""

    async def scene(node: Node) -> None:
        await node.write(batch("a"))
        node.env.machine.disk.faults.run_s = (5, 5)
        await node.env.clock.sleep(0.3)
        path = f"{FOLDER}/orders-0/leader-epoch-checkpoint"
        await node.manager.stop()
        assert node.env.disk.exists(path)

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


def test_a_topic_that_can_not_be_compacted_says_so_and_the_node_goes_on() -> None:
    """It was not compacted when a client wrote a record, the second of its batch, whose header claims too much."""

    async def scene(node: Node) -> None:
        now_ms = node.env.clock.now_ms()
        records = [Record(i, now_ms, b"k", b"v", [("name", b"x")]) for i in range(2)]
        lying = build_batch(records)
        lying[-7] = 126  # the length of the last header's name
        lying[17:21] = compute_crc(lying, 0, len(lying)).to_bytes(4, "big")
        await node.write(lying)
        node.partition().log.roll(now_ms)
        changed = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0"}
        node.metadata.configure(node.manager, "orders", **changed)
        await node.env.clock.sleep(60)
        events = [line for line in node.env.machine.events if "compaction_failed" in str(line)]
        assert events
        assert await node.partition().list_offset_waiting(now_ms, 0) == (0, now_ms, 1)
        await node.write(batch("goes on", key=b"k"))

    play(scene)


def test_a_compaction_that_fails_half_way_takes_its_partition_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It leads until somebody is told: all that is written there would be refused, with everybody in sync."""

    def refuse(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("fencepost.replication.log.compaction.rename_all", refuse)

    async def scene(node: Node) -> None:
        for number in range(6):
            await node.write(batch(str(number), key=b"k", timestamp=node.env.clock.now_ms()))
            if number == 4:
                node.partition().log.roll(node.env.clock.now_ms())
        place = node.partition().topic_partition
        await node.env.clock.sleep(60)
        assert node.manager.partition(place) is ErrorCode.kafka_storage_error
        ((failed, cause),) = node.manager.offline.items()
        assert (str(failed), "half-way" in str(cause)) == ("orders-0", True)

    play(scene, configs={"orders": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}})


def test_a_compacted_topic_is_compacted_in_its_round() -> None:
    async def scene(node: Node) -> None:
        for number in range(6):
            await node.write(batch(str(number), key=b"k", timestamp=node.env.clock.now_ms()))
            if number == 4:
                node.partition().log.roll(node.env.clock.now_ms())
        await node.env.clock.sleep(60)
        assert await node.read_values() == [b"4", b"5"]
        assert node.manager.counters.compaction_rounds > 0

    play(scene, configs={"orders": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}})


@pytest.mark.parametrize("is_away", [True, False])
def test_tombstones_are_kept_for_a_replica_that_is_away(*, is_away: bool) -> None:
    """It has what they delete, and could not copy them any more (`delete.retention.ms` may be over before it is back)."""

    async def scene(node: Node) -> None:
        there = (ME, BrokerId(2)) if is_away else (ME,)
        node.metadata.change(node.manager, "orders", replicas=there, isr=(ME,))
        for key, value in ((b"k", None), (b"a", b"1"), (b"b", b"2"), (b"c", b"3")):
            now_ms = node.env.clock.now_ms()
            await node.write(bytes(build_batch([Record(0, now_ms, key, value)])))
            node.partition().log.roll(now_ms)
            await node.env.clock.sleep(60)
        tombstone = [b""] if is_away else []
        assert await node.read_values() == [*tombstone, b"1", b"2", b"3"]

    configs = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0",
        "delete.retention.ms": "0",
    }
    play(scene, configs={"orders": configs})


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


# -- a full disk -------------------------------------------------------------------------------------


def test_a_node_starts_on_a_full_disk_and_serves_what_it_can() -> None:
    """It died, and had to be given room by hand before anybody could read from it, or delete something."""

    async def before(node: Node) -> None:
        await node.write(batch("a"))

    async def full(node: Node) -> None:
        assert node.manager.is_disk_full
        assert await node.read_values() == [b"a"]
        disk.capacity = None
        await node.env.clock.sleep(5)
        assert not node.manager.is_disk_full
        await node.write(batch("c"))
        await node.env.clock.sleep(1)

    async def after(node: Node) -> None:
        assert node.manager.store.same_boot  # the checkpoint that failed was tried again
        assert await node.read_values() == [b"a", b"c"]

    with World(5) as world:
        restarts = Restarts(world, Metadata(topic_of("orders")))
        restarts(before, stop=False)
        world.crash("a")
        disk = world.disk("a").files
        disk.capacity = disk.used
        world.restart("a")
        restarts(full, stop=False)
        restarts(after)
