"""A disk that is full to the last byte gets room again by what is deleted, whatever crashes meanwhile."""

import errno
from uuid import UUID

import pytest
from fencepost.chaos.sim.world import NodeLost, World
from fencepost.cluster.base.ids import TopicPartition
from fencepost.replication.log import spare
from fencepost.replication.log.checkpoint import Kind, PartitionOffsets
from fencepost.replication.log.metadata_file import read_topic_id
from fencepost.replication.log.removal import UNFORGOTTEN
from fencepost.replication.log.store import LogStore
from log_helpers import (
    FOLDER,
    PARTITION,
    START_MS,
    TOPIC_ID,
    Node,
    end_txn,
    produce,
    read_all,
    run,
)

LATER = START_MS + 99_999
NEW_ID = UUID(int=0x5678)
TRANSACTION = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}


def fill_disk(world: World, name: str = "n1", *, spare: int = 0) -> None:
    files = world.disk(name).files
    files.capacity = files.used + spare


async def checkpoints(node: Node, count: int = 5) -> int:
    """A few, some time apart; how many failed."""
    failed = 0
    for _ in range(count):
        try:
            await node.store.checkpoint()
        except OSError:
            failed += 1
        await node.env.clock.sleep(2)
    return failed


async def fill(node: Node, segments: int = 5) -> None:
    """In each segment an aborted transaction, of another producer in another leader epoch."""
    log = await node.start()
    for number in range(segments):
        fields = {"leader_epoch": number, "size": 300}
        produce(log, count=2, producer_id=number, **TRANSACTION, **fields)
        end_txn(log, number, commit=False, leader_epoch=number)
        log.roll(START_MS)
    produce(log, 2, leader_epoch=segments)
    log.committed = log.log_end_offset
    await node.settle()


def durable_start(node: Node) -> int | None:
    offsets = PartitionOffsets(node.env, f"{FOLDER}/partition-offsets")
    offsets.load()
    return offsets.get(Kind.LOG_START, PARTITION)


def test_what_retention_took_makes_room_on_a_disk_too_full_to_write_that_down() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, retention_ms=0)
        await fill(node)
        fill_disk(world)
        used = world.disk("n1").files.used
        goes = sum(segment.size for segment in node.log.segments[:5])
        assert node.log.apply_retention(LATER, 15) == 5
        assert await checkpoints(node) < 5
        assert goes > 3_000 and world.disk("n1").files.used <= used - goes
        assert [name for name in node.files() if ".log" in name] == ["00000000000000000015.log"]
        assert durable_start(node) == 15
        produce(node.log)
        await node.settle()
        log = await node.restart("crash")
        assert (log.log_start_offset, log.log_end_offset) == (15, 18)

    run(scenario)


def test_a_disk_with_room_for_the_log_start_but_not_for_leader_epochs_is_emptied_too() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, retention_ms=0)
        await fill(node)
        path = "*leader-epoch-checkpoint.tmp"
        world.disk("n1").faults.fail("append", path=path, number=errno.ENOSPC, times=100)
        assert node.log.apply_retention(LATER, 15) == 5
        assert await checkpoints(node) == 0
        assert [name for name in node.files() if ".log" in name] == ["00000000000000000015.log"]

    run(scenario)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("what", ["append", "sync"])
def test_what_retention_took_goes_though_a_checkpoint_failed(what: str, number: int) -> None:
    """It is out of the log: nobody but the list of what is doomed knows of those files."""

    async def scenario(world: World) -> None:
        node = Node(world, retention_ms=0)
        await fill(node)
        assert node.log.apply_retention(LATER, 15) == 5
        world.disk("n1").faults.fail(what, path="*/partition-offsets", number=number)
        assert await checkpoints(node) == 1
        assert [name for name in node.files() if ".log" in name] == ["00000000000000000015.log"]
        assert node.log.doomed == [] and node.store.shared.unsettled == {}

    run(scenario)


def test_each_segment_has_left_durably_before_the_next_one_and_before_its_own_index() -> None:
    """The simulated disk keeps the order of names in a folder; POSIX promises none between two syncs."""

    async def scenario(world: World) -> None:
        node = Node(world, retention_ms=0)
        await fill(node, 2)
        fill_disk(world)
        node.log.apply_retention(LATER, 6)
        world.trace.lines.clear()
        await node.store.checkpoint()
        steps = []
        for line in world.trace.lines:
            if f"disk.sync_folder path={node.path('')}"[:-1] in line:
                steps.append("sync")
            elif "disk.rename" in line and line.endswith(".deleted"):
                name = line.rpartition("/")[2].removesuffix(".deleted")[19:]
                steps += [name] * (name not in steps)  # the `.log` is looked for again
        others = [".index", ".timeindex", ".txnindex"]
        first, second = ([f"{base}{suffix}" for suffix in others] for base in (0, 3))
        assert steps == ["sync", "0.log", "sync", *first, "3.log", "sync", *second]

    run(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("goes", ["what is sealed", "everything", "what was compacted"])
@pytest.mark.parametrize(("how", "seeds"), [("kill", 1), ("crash", 4)])
def test_a_crash_while_a_full_disk_is_emptied_leaves_no_hole(
    how: str, seeds: int, goes: str
) -> None:
    """Everything: the file that the log goes on in is new too. What was compacted: it took the place of segments whose
    files are still there, and its first file may be below the log start that the disk knows."""

    async def scenario(world: World) -> None:
        found = set()
        for step in range(1, 80):
            name = f"n{step}"
            node = Node(world, retention_ms=0, compact=goes == "what was compacted")
            node.env = world.node(name)
            await fill(node)
            if node.config.compact:
                await node.log.compact(LATER, 15, force=True)
                await node.sync()
            bases = set(node.log.bases)
            data = read_all(node.log)
            aborted = node.log.aborted_between(0, 17)
            fill_disk(world, name)
            world.crash_at_disk_op(name, step, kill=how == "kill")
            try:
                await world.on(node.env, _retain(node, 17 if goes == "everything" else 15))
            except NodeLost:
                world.disk(name).files.capacity = None
                node.env = world.restart(name)
                log = await node.start()
                start = log.log_start_offset
                found.add(start)
                assert start in {*bases, 17} and log.log_end_offset == 17
                assert data.endswith(read_all(log))
                assert (start == 0) == (read_all(log) == data)
                kept = [txn for txn in aborted if txn.last_offset >= start]
                assert log.aborted_between(start, 17) == kept
                world.crash(name)
            else:
                assert found >= {0, 17 if goes == "everything" else 15}
                return
        pytest.fail("never done")

    for seed in range(seeds):
        run(scenario, seed)


async def _retain(node: Node, high_watermark: int) -> None:
    node.log.apply_retention(LATER, high_watermark)
    await checkpoints(node, 3)


def test_a_partition_that_is_deleted_makes_room_on_a_full_disk() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        await fill(node)
        offline = TopicPartition("offline", 3)
        other = node.store.open(offline, TOPIC_ID, node.config)
        produce(other, 10)
        await node.store.sync([other])
        await node.store.checkpoint()
        other.close(clean=False)
        fill_disk(world)
        node.store.delete([node.log])
        node.store.delete_unopened([offline])
        assert node.store.folders() == []
        await node.env.clock.sleep(2)
        assert await checkpoints(node) == 0
        assert node.env.disk.list(FOLDER) == [spare.FILE_NAME, "partition-offsets"]
        for partition in (PARTITION, offline):
            log = node.store.open(partition, NEW_ID, node.config)
            assert (log.log_start_offset, log.log_end_offset) == (0, 0)

    run(scenario)


def test_a_topic_made_again_on_a_full_disk_is_written_when_there_is_room() -> None:
    """And has nothing of the old one: neither while the node runs, nor when it is killed before any checkpoint."""

    async def scenario(world: World) -> None:
        node = Node(world, retention_ms=0)
        await fill(node)
        node.log.apply_retention(LATER, 15)
        await node.store.checkpoint()
        fill_disk(world)
        node.store.delete([node.log])
        log = node.log = node.store.open(PARTITION, NEW_ID, node.config)
        with pytest.raises(OSError, match="No space"):
            produce(log)
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)
        await node.env.clock.sleep(2)
        produce(log, 3)
        node.world.kill("n1")
        node.env = world.restart("n1")
        store = LogStore(node.env, FOLDER)
        store.start()
        log = store.open(PARTITION, NEW_ID, node.config)
        assert (log.log_start_offset, log.log_end_offset) == (0, 3)

    run(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "crash"])
def test_a_crash_at_any_step_of_a_deletion_leaves_all_or_nothing(how: str) -> None:
    """On a full disk, and then the topic is made again: it never takes the log start or the end of the old one."""

    async def scenario(world: World) -> None:
        found = set()
        for step in range(1, 80):
            name = f"n{step}"
            node = Node(world, retention_ms=0)
            node.env = world.node(name)
            await fill(node)
            node.log.apply_retention(LATER, 12)
            await node.store.checkpoint()
            await node.env.clock.sleep(2)
            fill_disk(world, name)
            world.crash_at_disk_op(name, step, kill=how == "kill")
            promised = [0]
            try:
                await world.on(node.env, _delete_and_make_again(node, promised))
            except NodeLost:
                world.disk(name).files.capacity = None
                node.env = world.restart(name)
                has = read_topic_id(node.env.disk, node.path("partition.metadata"))
                found.add(has)
                node.store = LogStore(node.env, FOLDER)
                node.store.start()
                log = node.store.open(PARTITION, has or NEW_ID, node.config)
                await node.store.opened([log])
                span = (log.log_start_offset, log.log_end_offset)
                assert span == (12, 17) if has == TOPIC_ID else span[0] == 0 and span[1] <= 2
                assert span[1] >= promised[0]
                world.crash(name)
            else:
                assert found >= {None, NEW_ID}
                return
        pytest.fail("never done")

    run(scenario)


async def _delete_and_make_again(node: Node, promised: list[int]) -> None:
    node.store.delete([node.log])
    await node.env.clock.sleep(2)
    node.log = node.store.open(PARTITION, NEW_ID, node.config)
    produce(node.log)
    await node.sync()
    promised[0] = 1
    assert await checkpoints(node, 2) == 0
    produce(node.log)
    await node.settle()
    promised[0] = 2


def test_the_doubt_of_a_topic_that_was_made_again_is_not_forgotten_with_the_old_one() -> None:
    """It acknowledges what is not synced, and the power is cut before the next checkpoint."""

    async def scenario(world: World) -> None:
        node = Node(world, flush_policy="os")
        await fill(node)
        fill_disk(world)
        node.store.delete([node.log])
        await node.env.clock.sleep(2)
        log = node.store.open(PARTITION, NEW_ID, node.config)
        node.store.doubts.write_down()
        produce(log)
        world.crash("n1")
        node.env = world.restart("n1")
        node.store = LogStore(node.env, FOLDER)
        node.store.start()
        node.store.open(PARTITION, NEW_ID, node.config)
        assert node.store.doubts.lacking == [PARTITION]

    run(scenario)


def test_what_a_start_has_forgotten_it_does_not_forget_again_after_a_power_cut() -> None:
    """Else it takes the numbers of the log that was begun under that name meanwhile."""

    async def scenario(world: World) -> None:
        node = Node(world)
        await fill(node)
        fill_disk(world)
        node.store.delete([node.log])
        (grave,) = [name for name in node.env.disk.list(FOLDER) if name.endswith(UNFORGOTTEN)]
        world.kill("n1")
        node.env = world.restart("n1")
        LogStore(node.env, FOLDER).start()
        world.crash("n1")
        node.env = world.restart("n1")
        assert grave not in node.env.disk.list(FOLDER)

    for seed in range(8):  # of what was not synced a power cut leaves the one or the other
        run(scenario, seed)
