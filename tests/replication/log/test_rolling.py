"""Where segments end, by Kafka's rules."""

import errno

import pytest
from fencepost.chaos.sim.world import World
from fencepost.replication.log import snapshots
from log_helpers import START_MS, Node, append, batch_at, end_txn, produce, read_all, run


def test_a_segment_ends_before_it_would_be_too_large() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=270)  # three batches of 90
        log = await node.start()
        produce(log, 7)
        assert [segment.size for segment in log.segments] == [270, 270, 90]
        produce(log, size=500)  # one that is larger than a segment has one for itself
        produce(log)
        assert log.bases == [0, 3, 6, 7, 8]

    run(scenario)


def test_a_segment_ends_when_its_first_record_is_segment_ms_older_than_the_next() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, segment_ms=1000)
        log = await node.start()
        for time in (0, 1000, 1001, 1500, 2002):
            produce(log, timestamp=START_MS + time)
        assert log.bases == [0, 2, 4]
        log = await node.restart("clean")
        produce(log, timestamp=START_MS + 3002)
        assert log.bases == [0, 2, 4]
        produce(log, timestamp=START_MS + 3003)
        assert log.bases == [0, 2, 4, 6]

    run(scenario)


def test_records_without_a_time_count_from_when_the_segment_was_made() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, segment_ms=1000)
        log = await node.start()
        for time in (0, 1000, 1001):
            append(log, batch_at(log.log_end_offset, timestamp=-1), START_MS + time)
        assert log.bases == [0, 2]

    run(scenario)


def test_the_cleaner_is_not_kept_waiting_longer_than_max_compaction_lag_ms() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, compact=True, max_compaction_lag_ms=1000)
        log = await node.start()
        produce(log, timestamp=START_MS)
        produce(log, timestamp=START_MS + 1001)
        assert log.bases == [0, 1]

    run(scenario)


def test_jitter_spreads_the_ends_of_segments() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, segment_ms=1000, segment_jitter_ms=500)
        log = await node.start()
        produce(log)
        jitters = {(log.roll(START_MS) and produce(log)) or log.active.jitter_ms for _ in range(20)}
        assert len(jitters) > 10 and max(jitters) < 500

    run(scenario)


def test_offsets_in_a_segment_fit_in_31_bits() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log)
        append(log, batch_at(2**31 - 1))  # the last that fits
        append(log, batch_at(2**31))
        assert log.bases == [0, 2**31]
        append(log, batch_at(2**33))  # a gap wider than a segment: the log goes on behind it
        assert log.bases == [0, 2**31, 2**33]
        before = read_all(log)
        for how in ("clean", "kill", "crash"):
            await node.sync()
            log = await node.restart(how)
            assert read_all(log) == before
            assert log.log_end_offset == 2**33 + 1

    run(scenario)


def test_two_snapshots_of_producers_are_kept() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=200)
        log = await node.start()
        for sequence in range(12):
            produce(log, producer_id=1, producer_epoch=0, base_sequence=sequence)
            log.committed = log.log_end_offset
            await node.settle()
        names = [name for name in node.files() if name.endswith(".producers")]
        assert [int(name[:20]) for name in names] == log.snapshots == log.bases[-2:]

    run(scenario)


def test_the_aborted_transactions_of_a_range_are_found_across_segments() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=250)
        log = await node.start()
        for number in range(8):
            produce(log, producer_id=number % 2, producer_epoch=0, base_sequence=number // 2,
                    transactional=True)  # fmt: skip
            produce(log)
            end_txn(log, number % 2, commit=number % 3 == 0)
        want = [(txn.first_offset, txn.last_offset) for txn in log.aborted_between(0, 24)]
        assert want == [(at * 3, at * 3 + 2) for at in range(8) if at % 3]
        assert [txn.first_offset for txn in log.aborted_between(4, 7)] == [3, 6]
        for how in ("kill", "crash", "clean"):
            await node.sync()
            log = await node.restart(how)
            found = [(txn.first_offset, txn.last_offset) for txn in log.aborted_between(0, 24)]
            assert found == want

    run(scenario)


def test_a_damaged_index_of_aborted_transactions_is_made_again() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=400)
        log = await node.start()
        for sequence in range(6):
            produce(
                log, producer_id=1, producer_epoch=0, base_sequence=sequence, transactional=True
            )
            end_txn(log, 1, commit=False)
        await node.settle()
        want = log.aborted_between(0, 12)
        for how in ("kill", "crash"):
            node.down(how)
            disk = world.node("n1").disk
            for at, damage in ((5, b"\x77\x77"), (34, b"\x00")):
                file = disk.open(node.path("00000000000000000000.txnindex"))
                file.write_at(at, damage)
                file.sync()
                file.close()
            log = await node.restart("kill")
            assert log.aborted_between(0, 12) == want
            await node.settle()

    run(scenario)


@pytest.mark.parametrize("how", ["clean", "kill", "crash"])
def test_a_truncated_index_of_aborted_transactions_is_written_again(how: str) -> None:
    """As many are aborted after the cut as the file had, and one more: the file must not keep the old ones."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        end_txn(log, 1, commit=False)
        await node.settle()
        log.truncate_to(0)
        for number in (2, 3):
            produce(log, producer_id=number, producer_epoch=0, base_sequence=0, transactional=True)
            end_txn(log, number, commit=False)
        want = log.aborted_between(0, 4)
        assert [txn.producer_id for txn in want] == [2, 3]
        await node.settle()
        log = await node.restart(how)
        assert log.aborted_between(0, 4) == want

    run(scenario)


def test_an_abort_whose_marker_was_lost_is_not_told_of_what_came_instead() -> None:
    """The index was on the disk before the end of the log, and the power was cut."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log)
        await node.settle()
        synced = log.size_bytes
        fields = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
        produce(log, **fields)
        end_txn(log, 1, commit=False)
        await node.store.checkpoint()
        node.down("crash")
        file = world.node("n1").disk.open(node.path("00000000000000000000.log"))
        file.truncate(synced)
        file.sync()
        file.close()
        log = await node.restart("kill")
        assert log.log_end_offset == 1
        produce(log, **fields)
        end_txn(log, 1, commit=True)
        await node.settle()
        log = await node.restart("kill")
        assert log.aborted_between(0, log.log_end_offset) == []

    run(scenario)


@pytest.mark.parametrize("then", ["nothing", "truncated", "removed", "full disk"])
def test_many_producers_are_written_off_the_loop(
    then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A roll only copies the table of their names. What was cut or deleted meanwhile leaves no snapshot."""
    monkeypatch.setattr(snapshots, "AT_ONCE_MAX", 3)

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        for pid in range(5):
            produce(log, producer_id=pid, producer_epoch=0, base_sequence=0)
        if then == "full disk":
            faults = node.env.machine.disk.faults
            faults.fail("append", path="*.producers*", number=errno.ENOSPC, times=2)
        log.roll(START_MS)
        assert log.snapshots == [], "it is being written"
        produce(log, producer_id=0, producer_epoch=0, base_sequence=1)
        if then == "truncated":
            log.truncate_to(4)
        elif then == "removed":
            node.store.delete([log])
        await node.env.clock.sleep(1)
        files = [name for name in node.files() if ".producers" in name]
        if then == "nothing":
            assert log.snapshots == [5]
            log.roll(START_MS)
            await node.env.clock.sleep(1)
            await node.settle()
            log = await node.restart("crash")
            assert sorted(each.producer_id for each in log.producers.states()) == [0, 1, 2, 3, 4]
            assert log.producers.state_of(0).last_sequence == 1
        elif then == "removed":
            assert log.snapshots == []
        else:
            assert log.snapshots == [] and files in ([], ["00000000000000000005.producers.tmp"])

    run(scenario)
