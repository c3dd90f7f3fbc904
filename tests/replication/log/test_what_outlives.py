"""What must not outlive the log that it was true of, and what must: after cuts, crashes, bad sectors and clean stops."""

import asyncio
import errno

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import LogDamaged
from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.wire.batch import headers_of
from fencepost.cluster.wire.records import read_records
from fencepost.replication.log.checkpoint import Kind
from fencepost.replication.log.log import Log
from fencepost.replication.log.snapshots import AT_ONCE_MAX, KEEP
from log_helpers import START_MS, Node, end_txn, produce, put, read_all, run

OTHER = TopicPartition("payments", 0)
MANY = AT_ONCE_MAX + 100  # producers: their snapshots are written off the loop


def table(log: Log) -> dict[bytes, bytes]:
    """The last value of each key."""
    found: dict[bytes, bytes] = {}
    data = read_all(log)
    for position, header in headers_of(data):
        if header.is_control:
            continue
        for record in read_records(data, position):
            assert record.key is not None
            if record.value is None:
                found.pop(record.key, None)
            else:
                found[record.key] = record.value
    return found


def first(log: Log, producer_id: int) -> None:
    produce(log, producer_id=producer_id, producer_epoch=0, base_sequence=0)


# --- how far it was cleaned ---


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("how", ["cut", "crash"])
def test_what_comes_where_the_log_was_cut_is_cleaned_anew(how: str, killed: bool) -> None:
    """It counted as clean: a tombstone there was set against nothing, went in time, and the key was back. `killed`: before it is
    cleaned, so what counts as clean is what the disk says then."""
    ends: list[int] = []

    async def scenario(world: World) -> None:
        # So small that the second segment is not put together with the first: a round that leaves it as it is does not sync it.
        node = Node(world, compact=True, delete=False, delete_retention_ms=0, segment_bytes=700)
        log = await node.start()
        put(log, ("k", "old"))
        log.roll(START_MS)
        await node.sync()
        for number in range(9):
            put(log, (f"x{number}", "1"))
        log.roll(START_MS)
        await log.compact(START_MS, 10, force=True)
        assert log.cleaned_to == log.log_end_offset == 10
        await node.store.offsets.flush()
        if how == "cut":
            log.truncate_to(5)
        else:  # what was cleaned had not been synced
            log = await node.restart("crash")
        ends.append(log.log_end_offset)
        assert log.cleaned_to == ends[-1]
        put(log, ("k", None), leader_epoch=2)
        for number in range(10):
            put(log, (f"y{number}", "1"), leader_epoch=2)
        if killed:
            await node.sync()
            log = await node.restart("kill")
            assert log.cleaned_to == ends[-1]
        log.roll(START_MS)
        for number in range(3):
            await log.compact(START_MS + number, log.log_end_offset, force=True)
            put(log, (f"z{number}", "1"), leader_epoch=2)
            log.roll(START_MS)
        assert b"k" not in table(log)

    for seed in range(20 if how == "crash" else 1):
        run(scenario, seed)
    assert any(1 < end < 10 for end in ends), "nothing of what was cleaned was lost"


# --- who has written ---


def test_a_snapshot_that_is_written_while_the_log_is_closed_gets_no_name() -> None:
    """The next start did not know of it, a truncation left it, and the one after believed what had been cut."""

    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=1 << 20)
        log = await node.start()
        for producer_id in range(MANY):
            first(log, producer_id)
        log.roll(START_MS)
        produce(log)
        produce(log, producer_id=7, producer_epoch=0, base_sequence=1)
        await node.settle()
        await asyncio.sleep(1)
        produce(log, producer_id=7, producer_epoch=0, base_sequence=2)
        faults = world.disk("n1").faults
        usual, faults.run_s = faults.run_s, (0.5, 0.5)
        log.roll(START_MS)
        await asyncio.sleep(0)
        faults.run_s = usual
        produce(log, producer_id=8, producer_epoch=0, base_sequence=1)
        await node.store.stop([log])
        await asyncio.sleep(1)
        world.kill("n1")
        node.env = world.restart("n1")
        log = await node.start()
        log.truncate_to(MANY + 2)
        produce(log, 4)
        await node.settle()
        log = await node.restart("kill")
        state = log.producers.state_of(7)
        assert state is not None
        assert state.last_sequence == 1

    run(scenario)


def test_a_roll_while_a_snapshot_is_written_has_one_written_later() -> None:
    """Or those whose records DeleteRecords takes were forgotten, and a retry of theirs was written again."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        for producer_id in range(MANY):
            first(log, producer_id)
        for _ in range(2):
            log.roll(START_MS)
            produce(log)
        for _ in range(3):
            await node.settle()
            await asyncio.sleep(1)
        log.delete_records_before(log.log_end_offset)
        log.apply_retention(START_MS, log.log_end_offset)
        await node.settle()
        log = await node.restart("kill")
        assert len(log.producers) >= MANY

    run(scenario)


def test_a_snapshot_for_which_there_was_no_room_is_tried_again() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=1 << 20)
        log = await node.start()
        for producer_id in range(MANY):
            first(log, producer_id)
        world.disk("n1").faults.fail("append", path="*.producers*", number=errno.ENOSPC, times=2)
        log.roll(START_MS)
        produce(log)
        await asyncio.sleep(1)
        assert not log.snapshots
        for _ in range(2):
            await node.settle()
            await asyncio.sleep(1)
        assert log.snapshots

    run(scenario)


# --- what the disk can't read ---


@pytest.mark.parametrize("path", ["*.producers", "*.txnindex", "*leader-epoch*", "*.index"])
@pytest.mark.parametrize("how", ["kill", "crash"])
def test_what_can_be_made_anew_is_made_anew_where_the_disk_can_not_read_it(
    path: str, how: str
) -> None:
    """A bad sector in a file that says nothing new kept the partition from being used, at each start, until somebody removed it."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        end_txn(log, 1, commit=False)
        log.roll(START_MS)
        produce(log, 3, leader_epoch=1)
        await node.settle()
        was = read_all(log), log.aborted_between(0, 9), log.latest_epoch
        node.down(how)
        node.env = world.restart("n1")
        world.disk("n1").faults.fail("read", path=path, number=errno.EIO, times=100)
        log = await node.start()
        assert log.producers.knows(1)
        assert (read_all(log), log.aborted_between(0, 9), log.latest_epoch) == was

    run(scenario)


def test_a_rotten_marker_costs_its_partition_and_not_the_node() -> None:
    """What its reader raised was known to nobody: the node ended in the middle of a cut, or did not start."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        at = log.active.size
        end_txn(log, 1, commit=True)
        produce(log, 2)
        await node.sync()
        world.disk("n1").files.file(node.path("0" * 20 + ".log")).flip(at + 61, 0)
        with pytest.raises(LogDamaged, match="marker can't be read"):
            log.truncate_to(3)
        assert isinstance(log.failed, LogDamaged)

    run(scenario)


async def _deletes_the_first(node: Node, *, synced: bool) -> Log:
    """Whom only DeleteRecords' records told of: 1, in a segment of its own, behind one of 9."""
    log = await node.start()
    first(log, 9)
    await node.settle()
    log.roll(START_MS)
    first(log, 1)
    log.roll(START_MS)
    produce(log)
    if synced:
        await node.sync()
    log.delete_records_before(2)
    log.apply_retention(START_MS, 2)
    return log


@pytest.mark.parametrize("how", ["kill", "crash"])
@pytest.mark.parametrize(
    "when",
    [
        "nothing is synced",
        "another log asks for it",
        "a snapshot can't be synced",
        "it is deleted meanwhile",
        "all is settled",
    ],
)
def test_who_wrote_what_was_deleted_is_known_after_a_crash(how: str, when: str) -> None:
    """The log start was durable, and the recovery point an older one: no snapshot was believed that could stand for what was deleted.
    A retry was written again."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await _deletes_the_first(node, synced=when != "nothing is synced")
        if when == "another log asks for it":
            node.store.offsets.put(Kind.LOG_START, OTHER, 1)
            node.store.offsets.flush_now()
        elif when == "a snapshot can't be synced":
            world.disk("n1").faults.fail("sync", path="*.producers", number=errno.EIO)
            await node.store.checkpoint()
        elif when == "it is deleted meanwhile":
            under_way = asyncio.ensure_future(node.store.checkpoint())
            await asyncio.sleep(0)
            log.delete_records_before(3)
            await under_way
        else:
            await node.store.checkpoint()
        if when == "all is settled":
            await node.settle()
            await asyncio.sleep(2)
            assert log.is_start_durable
        log = await node.restart(how)
        if how == "kill" or when != "nothing is synced":
            assert log.producers.knows(1) and log.producers.knows(9)
            if when == "all is settled":
                assert (log.log_start_offset, log.log_end_offset) == (2, 3)

    for seed in range(10):
        run(scenario, seed)


@pytest.mark.parametrize("how", ["kill", "crash"])
def test_who_wrote_what_was_deleted_is_known_though_the_rest_was_cut_off(how: str) -> None:
    """Cut to just where it starts, a log had a recovery point below that, and no snapshot there was believed."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await _deletes_the_first(node, synced=True)
        await node.settle()
        log.truncate_to(2)
        assert log.producers.knows(1)
        log = await node.restart(how)
        assert (log.log_start_offset, log.producers.knows(1)) == (2, True)

    for seed in range(10):
        run(scenario, seed)


def test_an_older_snapshot_stays_until_a_start_would_believe_a_newer_one() -> None:
    """It was removed before the checkpoint was durable: an end of power in between left neither to believe."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await _deletes_the_first(node, synced=True)
        await node.settle()
        await asyncio.sleep(2)
        for _ in range(3):
            produce(log)
            log.roll(START_MS)
        await node.sync()
        world.disk("n1").faults.fail("sync", path="*partition-offsets", number=errno.EIO)
        with pytest.raises(OSError, match="partition-offsets"):
            await node.store.checkpoint()
        log = await node.restart("crash")
        assert log.producers.knows(1)

    for seed in range(10):
        run(scenario, seed)


def test_a_truncation_finds_a_snapshot_where_what_was_before_it_is_deleted() -> None:
    """Both that were kept were above the high watermark: whoever had written before it was forgotten, and a retry written again."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        first(log, 1)
        log.roll(START_MS)
        log.committed = 2
        for _ in range(4):
            produce(log, 2)
            log.roll(START_MS)
        produce(log, 2)
        for _ in range(2):
            await node.settle()
        log.delete_records_before(1)
        log.apply_retention(START_MS, 2)
        await node.settle()
        log.truncate_to(2)
        assert log.producers.knows(1)
        log.committed = 20
        for _ in range(4):
            produce(log, 2)
            log.roll(START_MS)
        for _ in range(2):
            await node.settle()
        assert len(log.snapshots) == KEEP

    run(scenario)
