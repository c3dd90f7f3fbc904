"""The power goes, or the process, at every single step that compaction takes on the disk."""

import pytest
from fencepost.chaos.sim.world import NodeLost, World
from fencepost.cluster.wire.batch import headers_of
from fencepost.cluster.wire.records import Record, read_records
from fencepost.replication.log.txn_index import AbortedIndex, AbortedTxn
from log_helpers import START_MS, Node, append, batch_at, end_txn, offsets_in, read_all, run

STEPS = 120  # more than a round has


def _fill(node: Node) -> None:
    log = node.log
    for number in range(14):
        end = log.log_end_offset
        records = [
            Record(end + at, START_MS, b"k%d" % ((number + at) % 4), b"%d-%d" % (number, at) * 30)
            for at in range(3)
        ]
        is_txn = number % 4 == 1
        fields = {"producer_id": 5, "producer_epoch": 0, "base_sequence": number * 3}
        append(log, batch_at(end, records=records, transactional=is_txn, **fields))
        if is_txn:
            end_txn(log, 5, commit=number % 8 == 1)
    log.roll(START_MS)


def _state(node: Node) -> tuple[list[int], dict[bytes, bytes | None], int]:
    """Offsets of the batches, last committed value of each key, end: after hiding what was aborted."""
    log = node.log
    data = read_all(log)
    aborted = log.aborted_between(log.log_start_offset, log.log_end_offset)
    latest: dict[bytes, bytes | None] = {}
    for position, header in headers_of(data):
        hidden = header.is_control or any(
            txn.producer_id == header.producer_id
            and txn.first_offset <= header.base_offset < txn.last_offset
            and header.is_transactional
            for txn in aborted
        )
        if not hidden:
            for record in read_records(data, position):
                latest[record.key or b""] = record.value
    return offsets_in(data), latest, log.log_end_offset


@pytest.mark.slow
@pytest.mark.parametrize("how", ["crash", "kill"])
def test_a_crash_at_any_step_leaves_the_old_or_the_new(how: str) -> None:
    async def scenario(world: World) -> None:
        node = Node(world, compact=True, delete=False, segment_bytes=1500)
        await node.start()
        _fill(node)
        await node.settle()
        offsets, latest, end = _state(node)
        last_sequence = node.log.producers.states()[0].last_sequence
        shrunk = 0
        for step in range(1, STEPS):
            if node.log.cleaned_to > 0:
                break  # a whole round went by
            world.crash_at_disk_op("n1", step, kill=how == "kill")
            try:
                await world.on(node.env, node.log.compact(START_MS, end, force=True))
            except NodeLost:
                node.env = world.restart("n1")
                await node.start()
            found, values, found_end = _state(node)
            assert (values, found_end) == (latest, end), f"step {step}"
            assert found == sorted(set(found)) and set(found) <= set(offsets), f"step {step}"
            assert node.log.producers.states()[0].last_sequence == last_sequence
            assert not [name for name in node.files() if name.endswith((".cleaned", ".swap"))]
            shrunk += len(found) < len(offsets)
            offsets = found
        else:
            pytest.fail("the round never got to its end")
        assert shrunk

    run(scenario, seed=how)


@pytest.mark.parametrize(
    "left", ["log.cleaned", "txnindex.cleaned", "txnindex.swap", "timeindex.cleaned"]
)
def test_what_a_round_that_was_given_up_has_left_is_in_no_later_one_s_way(left: str) -> None:
    """1. A stop ends a round, whose files are durable   2. they are removed, and the stop is clean   3. the power goes, and one
    is there again   4. a start from hints looks at no folder   5. a later round writes files of the same names.
    """

    async def scenario(world: World) -> None:
        node = Node(world, compact=True, delete=False, segment_bytes=1500)
        log = await node.start()
        append(
            log, batch_at(0, transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
        )
        end_txn(log, 5, commit=True)
        log.roll(START_MS)
        await node.stop()
        node.env = world.restart("n1")
        file = node.env.disk.open(node.path(f"00000000000000000000.{left}"), create=True)
        aborted = AbortedIndex([AbortedTxn(5, 0, 1, 2)])
        file.append((aborted.to_bytes(),))
        file.sync()
        file.close()
        node.env.disk.sync_folder(node.path("").rstrip("/"))
        log = await node.start()
        append(log, batch_at(2, records=[Record(0, START_MS, b"k0", b"new")]))
        log.roll(START_MS)
        await node.settle()
        await log.compact(START_MS, log.log_end_offset, force=True)
        assert log.cleaned_to == 3
        assert not [name for name in node.files() if name.endswith((".cleaned", ".swap"))]
        log = await node.restart("kill")
        assert log.aborted_between(0, 3) == []

    run(scenario)


def test_what_a_crash_brings_back_before_the_log_s_start_is_aborted_yet() -> None:
    """Deleted, but no checkpoint says so yet; a round in between saw nothing of the transaction but its marker."""

    async def scenario(world: World) -> None:
        node = Node(world, compact=True)
        log = await node.start()
        append(
            log, batch_at(0, transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
        )
        log.roll(START_MS)
        end_txn(log, 5, commit=False)
        log.roll(START_MS)
        await node.settle()
        log.delete_records_before(1)
        assert log.apply_retention(START_MS, 2) == 1
        await log.compact(START_MS, 2, force=True)
        log = await node.restart("kill")
        assert log.log_start_offset == 0
        assert [each.first_offset for each in log.aborted_between(0, 1)] == [0]
        log.delete_records_before(1)
        log.roll(START_MS)
        await node.settle()
        await log.compact(START_MS, 2, force=True)
        assert log.cleaned_to == 2

    run(scenario)
