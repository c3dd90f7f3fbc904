"""What a start takes for durable, and what it makes anew: it costs nobody his place among those who have written."""

import pytest
from fencepost.chaos.sim.world import World
from fencepost.replication.log import snapshots
from fencepost.replication.log.checkpoint import Kind
from fencepost.replication.log.log import Log
from fencepost.replication.log.settle import Settlement
from fencepost.replication.log.store import LogStore
from log_helpers import FOLDER, PARTITION, START_MS, TOPIC_ID, Node, end_txn, produce, run
from test_producers_outlive import delete_before, first, log_files


def commit(node: Node, log: Log) -> None:
    log.committed = log.log_end_offset
    node.store.offsets.put(Kind.HIGH_WATERMARK, PARTITION, log.committed)


async def deleted_without_a_snapshot(node: Node) -> Log:
    """1 wrote a segment that is out of the log, durably; it is there yet, for the disk took no snapshot."""
    log = await node.start()
    first(log, 1)
    await node.settle()
    faults = node.world.disk("n1").faults
    faults.fail("create", path="*.producers")
    log.roll(START_MS)
    produce(log, 2)
    commit(node, log)
    await node.sync()
    faults.fail("create", path="*.producers")
    delete_before(log, 1)
    await node.store.checkpoint()
    assert log.doomed and not log.snapshots
    return log


@pytest.mark.parametrize("seed", range(10))
def test_a_start_removes_nothing_for_a_snapshot_that_a_killed_process_did_not_sync(
    seed: int,
) -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await deleted_without_a_snapshot(node)
        log.roll(START_MS)  # its snapshot is just where the checkpoint says that all is settled
        produce(log)
        commit(node, log)
        await node.sync()
        await node.store.offsets.flush()
        node.down("kill")
        node.env = world.restart("n1")
        store = LogStore(node.env, FOLDER)
        store.start()
        assert store.open(PARTITION, TOPIC_ID, node.config).snapshots == [3]
        log = await node.restart("crash")
        assert log.producers.knows(1)
        produce(log)
        commit(node, log)
        log.apply_retention(START_MS, log.log_end_offset)
        for _ in range(2):
            await node.settle()
        log = await node.restart("crash")
        assert log.bases[0] == 1 and log.producers.knows(1)

    run(scenario, seed)


@pytest.mark.parametrize("seed", range(10))
def test_a_snapshot_is_synced_by_a_start_whose_boot_nobody_could_write_down(seed: int) -> None:
    """The killed process had no room for that. To the next one it seems that the power went, and what it reads is on the disk."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await deleted_without_a_snapshot(node)
        node.store.offsets.boot_id = "before"  # as it is until that is written
        node.store.offsets.rewrite()
        log.roll(START_MS)
        produce(log)
        commit(node, log)
        await node.sync()
        await node.store.offsets.flush()
        log = await node.restart("kill")
        assert not node.store.same_boot
        log.apply_retention(START_MS, log.log_end_offset)
        await node.settle()
        log = await node.restart("crash")
        assert log.producers.knows(1)

    run(scenario, seed)


# --- a start that has to make something anew ---


@pytest.mark.parametrize("how", ["kill", "crash"])
def test_who_wrote_what_was_deleted_is_known_where_aborted_transactions_are_derived_anew(
    how: str,
) -> None:
    """To find where they began the state was replayed from the log's start, and the snapshot was not believed any more."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        first(log, 1)
        log.roll(START_MS)
        produce(log)
        log.roll(START_MS)
        produce(log, 3, transactional=True, producer_id=2, producer_epoch=0)
        end_txn(log, 2, commit=False)
        commit(node, log)
        await node.settle()
        delete_before(log, 1)
        await node.settle()
        assert log_files(node) == [1, 2]
        node.down(how)
        node.env = world.restart("n1")
        world.disk("n1").faults.fail("read", path="*.txnindex", times=100)
        log = await node.start()
        assert [each.first_offset for each in log.aborted_between(0, 9)] == [2]
        assert log.producers.knows(1)

    run(scenario)


@pytest.mark.parametrize("seed", range(10))
def test_a_snapshot_whose_sync_a_killed_process_saw_fail_is_written_once_more(seed: int) -> None:
    """The kernel has its pages for clean: another sync passes them over, and says that all is well (fsyncgate)."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await deleted_without_a_snapshot(node)
        log.roll(START_MS)
        produce(log)
        commit(node, log)
        await node.sync()
        await node.store.offsets.flush()
        world.disk("n1").faults.fail("sync", path="*.producers")
        Settlement(log).run(node.env.disk)
        log = await node.restart("kill")
        assert 3 in log.snapshots
        log.apply_retention(START_MS, log.log_end_offset)
        await node.settle()
        assert log_files(node)[0] == 1
        log = await node.restart("crash")
        assert log.producers.knows(1)

    run(scenario, seed)


@pytest.mark.parametrize("how", ["kill", "crash"])
def test_what_was_deleted_goes_after_a_start_though_nothing_more_is_written(how: str) -> None:
    """The snapshot of the last roll is not believed, and one at the high watermark stands for nothing (a cut may take it): what was
    deleted lay there until somebody wrote."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        first(log, 1)
        log.roll(START_MS)
        produce(log, 3)
        commit(node, log)
        await node.sync()
        await node.store.offsets.flush()
        log = await node.restart(how)
        assert log.committed == log.log_end_offset
        delete_before(log, 2)
        log.apply_retention(START_MS, log.log_end_offset)
        for _ in range(2):
            await node.settle()
        assert log_files(node) == [1]
        log = await node.restart(how)
        assert log.producers.knows(1)

    run(scenario)


async def without_the_last_rolls_snapshot(node: Node) -> Log:
    """1 and 2 wrote a segment each. The disk took no snapshot when the second one's was sealed; the next is where the log ends, and
    so the high watermark is."""
    log = await node.start()
    first(log, 1)
    log.roll(START_MS)
    first(log, 2)
    await node.settle()
    node.world.disk("n1").faults.fail("create", path="*.producers")
    log.roll(START_MS)
    produce(log, 3)
    commit(node, log)
    await node.sync()
    await node.settle()
    return log


@pytest.mark.parametrize("how", ["kill", "crash"])
@pytest.mark.parametrize("deleted", ["before the start", "after it"])
def test_what_was_deleted_goes_though_the_last_roll_found_no_room_for_its_snapshot(
    how: str, deleted: str
) -> None:
    """The next one was made where the log ends, and so the high watermark is: it stands for nothing."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await without_the_last_rolls_snapshot(node)
        roll, end = log.active.base_offset, log.log_end_offset
        assert log.snapshots[-1] == end and roll not in log.snapshots
        if deleted == "before the start":
            delete_before(log, roll)
            await node.settle()
        await node.store.offsets.flush()
        log = await node.restart(how)
        delete_before(log, roll)
        log.apply_retention(START_MS, log.log_end_offset)
        for _ in range(2):
            await node.settle()
        assert log_files(node) == [roll]
        log = await node.restart("crash")
        assert log.producers.knows(1) and log.producers.knows(2)

    run(scenario)


def test_a_start_that_can_not_read_what_was_before_the_last_roll_does_without_its_snapshot() -> (
    None
):
    """The newest knows all of it."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await without_the_last_rolls_snapshot(node)
        older = log.snapshots[0]
        await node.store.offsets.flush()
        node.world.disk("n1").flip_bits(snapshots.path_of(log, older), 4000)
        log = await node.restart("kill")
        assert log.active.base_offset not in log.snapshots
        assert log.producers.knows(1) and log.producers.knows(2)

    run(scenario)
