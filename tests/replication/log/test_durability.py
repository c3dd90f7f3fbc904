"""Group commit, and a disk that fails: what is promised and what is not."""

import errno

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.ids import TopicPartition
from fencepost.replication.log.metadata_file import read_topic_id
from fencepost.replication.log.sync import SyncTicket
from log_helpers import FOLDER, TOPIC_ID, Node, produce, read_all, run


def test_the_recovery_point_moves_with_the_sync_and_not_before() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 3)
        assert log.recovery_point == 0
        sync = world.loop.create_task(node.sync())
        await node.env.clock.sleep(0)
        produce(log, 2)  # after the sync began: the next one's business
        await sync
        assert log.recovery_point == 3
        await node.sync()
        assert log.recovery_point == 5

    run(scenario)


def test_dirty_files_and_mark_synced_do_the_same_by_hand() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 60)  # two segments
        files = log.dirty_files()
        assert len(files) == 2
        await node.env.disk.sync(files)
        log.mark_synced(60)
        assert log.recovery_point == 60

    run(scenario)


def test_one_sync_serves_many_logs_and_new_files_outlive_a_power_cut() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        await node.start()
        partitions = [TopicPartition("many", number) for number in range(20)]
        logs = [node.store.open(at, TOPIC_ID, node.config) for at in partitions]
        for log in logs:
            produce(log, 2)
        await node.store.sync(logs)
        await node.restart("crash")
        for partition in partitions:
            log = node.store.open(partition, TOPIC_ID, node.config)
            assert log.log_end_offset == 2
            path = f"{FOLDER}/{partition}/partition.metadata"
            assert read_topic_id(node.env.disk, path) == TOPIC_ID

    run(scenario)


@pytest.mark.parametrize(
    ("what", "path"), [("sync", "*.log"), ("sync", "*metadata"), ("sync_folder", "*/many-1")]
)
def test_a_sync_that_fails_fails_every_log_that_waited_for_it(what: str, path: str) -> None:
    """Whose file it was does not matter: a later sync of any of them would succeed without having written anything."""

    async def scenario(world: World) -> None:
        node = Node(world)
        await node.start()
        logs = [node.store.open(TopicPartition("many", at), TOPIC_ID, node.config) for at in (0, 1)]
        for log in logs:
            produce(log, 2)
        world.disk("n1").faults.fail(what, path=path)
        with pytest.raises(OSError, match="Input/output"):
            await node.store.sync(logs)
        assert [log.failed is not None for log in logs] == [True, True]
        await node.store.sync(logs)
        assert [log.recovery_point for log in logs] == [0, 0]

    run(scenario)


def test_a_truncation_during_a_sync_voids_it() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 10)
        sync = world.loop.create_task(node.sync())
        await node.env.clock.sleep(0)
        log.truncate_to(4)
        produce(log, 3)
        await sync
        assert log.recovery_point <= 4
        await node.sync()
        assert log.recovery_point == 7

    run(scenario)


@pytest.mark.parametrize("what", ["sync", "sync_folder"])
def test_no_append_is_believed_after_a_failed_sync(what: str) -> None:
    """The kernel may have thrown away what it could not write: a second sync that succeeds proves nothing."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 3)
        world.disk("n1").faults.fail(what)
        with pytest.raises(OSError, match="Input/output"):
            await node.sync()
        assert log.failed is not None and log.recovery_point == 0
        with pytest.raises(OSError, match="had a write or a sync fail"):
            produce(log)
        await node.sync()
        assert log.recovery_point == 0
        assert len(read_all(log)) == 270  # reads go on
        log = await node.restart("kill")
        produce(log)
        await node.sync()
        before = read_all(log)
        log = await node.restart("crash")
        assert read_all(log) == before
        assert log.log_end_offset == 4

    run(scenario)


@pytest.mark.parametrize(
    ("what", "path", "times"),
    [("open", "*.log", 2), ("sync_folder", "*", 1), ("open", "*metadata", 1)],
    ids=["a file before it", "a folder", "a file of its folder"],
)
def test_a_sync_for_which_nothing_can_be_opened_fails_no_log_and_is_done_again(
    what: str, path: str, times: int
) -> None:
    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=1000)
        log = await node.start()
        if path == "*.log":
            produce(log, 4, size=300)  # two files, of which the next process has to sync both
            await node.settle()
            log = await node.restart("kill")
            log.shared.pool.close(log.segments[0])
        produce(log)
        before = log.recovery_point
        world.disk("n1").faults.fail(what, path=path, number=errno.EMFILE, times=times)
        with pytest.raises(OSError, match="Too many open files"):
            await node.sync()
        assert (log.failed, log.recovery_point) == (None, before)
        await node.sync()
        assert log.recovery_point == log.log_end_offset > before
        end = log.log_end_offset
        log = await node.restart("crash")
        assert log.log_end_offset == end

    run(scenario)


def test_a_log_whose_file_can_not_be_opened_for_another_reason_fails() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=1000)
        log = await node.start()
        produce(log, 4, size=300)
        await node.settle()
        log = await node.restart("kill")
        log.shared.pool.close(log.segments[0])
        produce(log)
        world.disk("n1").faults.fail("open", path="*.log")
        with pytest.raises(OSError, match="Input/output"):
            await node.sync()
        assert log.failed is not None

    run(scenario)


@pytest.mark.parametrize(
    "why", ["the boot is not confirmed", "flush.policy=os", "the checkpoint is lost"]
)
def test_what_a_killed_process_could_not_sync_is_written_again(why: str) -> None:
    """The next one can't tell that the sync failed, and counts what it finds: a sync alone would pass those pages over."""

    async def scenario(world: World) -> None:
        policy = "os" if why == "flush.policy=os" else "ack"
        node = Node(world, segment_bytes=1000, flush_policy=policy)
        log = await node.start()
        produce(log, 3)
        await node.settle()
        if why == "the boot is not confirmed":
            node.down("crash")
            node.env = world.restart("n1")
            world.disk("n1").faults.fail("rename", path="*partition-offsets*", number=errno.ENOSPC)
            with pytest.raises(OSError, match="No space"):
                await node.start()
            log = node.log
        produce(log, 4, size=200)  # the sealed segment gets some of it, too
        assert len(log.segments) == 2
        world.disk("n1").faults.fail("sync")
        with pytest.raises(OSError, match="Input/output"):
            await node.sync()
        if why == "the checkpoint is lost":
            node.env.disk.remove(f"{FOLDER}/partition-offsets")
        log = await node.restart("kill")
        await node.settle()
        before = read_all(log)
        log = await node.restart("crash")
        assert (read_all(log), log.log_end_offset) == (before, 7)

    for seed in range(20):
        run(scenario, seed)


def test_two_syncs_of_one_log_may_end_in_any_order() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 2)
        first = SyncTicket(log)
        produce(log, 2)
        second = SyncTicket(log)
        await node.env.disk.sync(second.files)
        second.done()
        first.done()
        assert log.recovery_point == 4 and not log.dirty
        produce(log)
        await node.sync()
        assert log.recovery_point == 5

    run(scenario)


def test_when_descriptors_run_out_idle_files_are_closed() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=300)
        log = await node.start()
        for _ in range(20):
            produce(log, 3)
            await node.settle()
        pool = node.store.shared.pool
        before = len(pool)
        world.disk("n1").faults.fail("open", path="*.log", number=errno.EMFILE)
        produce(log, 3)
        assert log.log_end_offset == 63
        assert len(pool) <= before // 2 + 1

    run(scenario)


def test_one_log_that_is_damaged_does_not_end_the_sync_of_the_others() -> None:
    """A start from a clean stop's hints looks at no file; the first sync takes in the one that was sealed last, too."""

    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=1000)
        log = await node.start()
        produce(log, 5, size=300)
        assert len(log.segments) == 3
        await node.stop()
        node.env = world.restart("n1")
        node.env.disk.remove(node.path("00000000000000000000.log"))
        log = await node.start()
        log.truncate_to(3)
        other = node.store.open(TopicPartition("orders", 1), TOPIC_ID, node.config)
        produce(other)
        with pytest.raises(OSError, match="is missing"):
            await node.store.sync([log, other])
        assert log.failed is not None
        assert (other.failed, other.recovery_point) == (None, other.log_end_offset)

    run(scenario)
