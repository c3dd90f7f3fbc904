"""What a start makes of what a crash, or a bad disk, has left."""

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import LogDamaged
from fencepost.cluster.wire.batch import headers_of
from fencepost.replication.log.names import EPOCHS
from fencepost.replication.log.search import MAX_TIMESTAMP, Seek
from hypothesis import given, settings
from hypothesis import strategies as st
from log_helpers import (
    FOLDER,
    LOG,
    PARTITION,
    START_MS,
    Node,
    append,
    batch_at,
    end_txn,
    fill,
    offsets_in,
    produce,
    read_all,
    rewrite,
    run,
)


@pytest.mark.slow
def test_a_log_cut_anywhere_above_the_recovery_point_ends_at_the_last_whole_batch() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        data = await fill(node)
        edges = [position for position, _ in headers_of(data)] + [len(data)]
        for size in range(edges[3], len(data) + 1):
            node.world.kill("n1")
            rewrite(node, LOG, data[:size])
            await node.restart("kill" if size % 2 else "crash", torn=False)
            whole = max(edge for edge in edges if edge <= size)
            assert read_all(node.log) == data[:whole]
            assert node.log.log_end_offset == len(offsets_in(data[:whole]))
            assert node.log.recovery_point == node.log.log_end_offset
            produce(node.log)
            node.log.truncate_to(3)
            await node.settle()

    run(scenario)


def test_a_log_cut_below_the_recovery_point_is_refused_and_left_alone() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        data = await fill(node)
        edge = headers_of(data)[3][0]
        for size in (0, 1, 70, edge - 1):
            for how in ("kill", "crash"):
                node.down(how)
                rewrite(node, LOG, data[:size])
                with pytest.raises(LogDamaged, match=rf"{LOG} is damaged at position \d+"):
                    await node.restart("kill")
                assert node.world.node("n1").disk.read_all(node.path(LOG)) == data[:size]

    run(scenario)


@given(
    st.integers(0, 5), st.integers(0, 10_000), st.integers(0, 7), st.sampled_from(["kill", "crash"])
)
@settings(max_examples=120)
def test_damage_below_the_recovery_point_is_refused(
    which: int, at: int, bit: int, how: str
) -> None:
    """And above it: after a power cut the log ends there, on the same boot it is refused as well."""

    async def scenario(world: World) -> None:
        node = Node(world, index_interval_bytes=1)
        data = await fill(node)
        await node.sync()  # so that the crash itself takes nothing
        (position, header) = headers_of(data)[which]
        # The leader epoch is the one field that nothing protects.
        inside = at % (header.size - 4)
        inside += 4 if inside >= 12 else 0
        # An offset that is too high in the very last batch looks like a gap between two batches: compaction leaves them.
        if which == 5 and inside < 8:
            return
        garbled = bytearray(data)
        garbled[position + inside] ^= 1 << bit
        node.down(how)
        rewrite(node, LOG, bytes(garbled))
        is_last_and_short = which == 5 and _runs_over(garbled, position)
        if which < 3 or (how == "kill" and not is_last_and_short):
            # Below the recovery point a kill's start looks no further back than it has to.
            if which < 2 and how == "kill":
                return
            with pytest.raises(LogDamaged, match=f"{LOG} is damaged at position {position}"):
                await node.restart("kill")
            return
        await node.restart("kill")
        assert read_all(node.log) == data[:position]
        torn = [name for name in node.files() if name.endswith(".torn")]
        assert bool(torn) == (which < 5)

    run(scenario)


def _runs_over(data: bytearray, position: int) -> bool:
    length = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
    offset = int.from_bytes(data[position : position + 8], "big")
    return position + 12 + length > len(data) and offset == 5


def test_whole_batches_behind_a_torn_one_are_kept_aside() -> None:
    """After a power cut nobody can tell an unsynced page that is gone from a synced one that has rotted."""

    async def scenario(world: World) -> None:
        node = Node(world)
        data = await fill(node)
        positions = [position for position, _ in headers_of(data)]
        garbled = bytearray(data)
        garbled[positions[3] + 70] ^= 1
        world.crash("n1", lose_unsynced=False)
        rewrite(node, LOG, bytes(garbled))
        await node.restart("kill")
        assert read_all(node.log) == data[: positions[3]]
        (torn,) = [name for name in node.files() if name.endswith(".torn")]
        assert node.env.disk.read_all(node.path(torn)) == bytes(garbled[positions[3] :])
        (line,) = [line for line in world.machine("n1").events if "torn_log_cut" in line]
        assert "error" in line and "'whole_batches_behind': True" in str(line)

    run(scenario)


@pytest.mark.parametrize("how", ["kill", "crash"])
def test_without_a_checkpoint_everything_is_checked_and_a_damaged_middle_refused(how: str) -> None:
    """With the checkpoint the boot id is lost too: what the end looks like is no evidence."""

    async def scenario(world: World) -> None:
        node = Node(world)
        data = await fill(node)
        await node.sync()
        positions = [position for position, _ in headers_of(data)]
        for damaged_at, is_refused in ((1, True), (4, True), (5, False)):
            garbled = bytearray(data)
            garbled[positions[damaged_at] + 70] ^= 1
            node.down(how)
            rewrite(node, LOG, bytes(garbled))
            disk = world.node("n1").disk
            if disk.exists(f"{FOLDER}/partition-offsets"):
                disk.remove(f"{FOLDER}/partition-offsets")
            if is_refused:
                with pytest.raises(LogDamaged, match=f"at position {positions[damaged_at]}"):
                    await node.restart("kill")
            else:
                await node.restart("kill")
                assert read_all(node.log) == data[: positions[damaged_at]]

    run(scenario)


def test_a_missing_segment_is_refused_and_named() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        await node.start()
        for _ in range(3):
            produce(node.log, 2)
            node.log.roll(START_MS)
        produce(node.log)
        await node.sync()
        node.down("crash")
        world.node("n1").disk.remove(node.path("00000000000000000002.log"))
        with pytest.raises(LogDamaged, match="the next file starts at offset 4"):
            world.node("n1").disk.remove(f"{FOLDER}/partition-offsets")
            await node.restart("kill")

    run(scenario)


@pytest.mark.parametrize("compact", [False, True])
def test_an_end_that_was_lost_before_a_file_that_was_not_ends_the_log(compact: bool) -> None:
    """A power cut takes what was not synced in any order. What compaction leaves is no gap between two files."""

    async def scenario(world: World) -> None:
        node = Node(world, flush_policy="os", compact=compact)
        await node.start()
        produce(node.log, 4)
        ends = [position + header.size for position, header in headers_of(read_all(node.log))]
        await node.settle()
        produce(node.log, 2)
        node.log.roll(START_MS)
        produce(node.log, 2)
        data = read_all(node.log)
        node.world.crash("n1", lose_unsynced=False)
        rewrite(node, LOG, data[: ends[3]])
        await node.restart("kill")
        assert node.log.log_end_offset == 4
        assert read_all(node.log) == data[: ends[3]]

    run(scenario)


def test_a_whole_log_that_is_gone_is_refused() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        await fill(node)
        node.down("kill")
        world.node("n1").disk.remove_tree(f"{FOLDER}/{PARTITION}")
        with pytest.raises(LogDamaged, match="offsets 0 to 2"):
            await node.restart("kill")

    run(scenario)


def _everything(node: Node) -> object:
    log = node.log
    return (
        read_all(log),
        (log.log_start_offset, log.log_end_offset),
        (log.epochs.epochs, log.epochs.starts),
        log.first_unstable_offset,
        [state._replace(seen_ms=0) for state in log.producers.states()],
        log.aborted_between(0, log.log_end_offset),
        [log.search(Seek(START_MS + at), log.log_end_offset) for at in range(0, 60, 7)],
        log.search(Seek(MAX_TIMESTAMP), log.log_end_offset),
    )


TXN_STEPS = st.one_of(
    st.tuples(st.just("idempotent"), st.integers(1, 3)),
    st.tuples(st.just("txn"), st.integers(4, 6)),
    st.tuples(st.just("end"), st.integers(4, 6), st.booleans()),
    st.tuples(st.just("epoch")),
    st.tuples(st.just("roll")),
    st.tuples(st.just("sync")),
    st.tuples(st.just("settle")),
    st.tuples(st.just("truncate"), st.integers(0, 5)),
    st.tuples(st.just("restart"), st.sampled_from(["clean", "kill", "crash"])),
    st.tuples(st.just("rot"), st.sampled_from(["clean", "kill", "crash"]), st.integers(0, 1 << 30)),
)


@pytest.mark.slow
@given(st.lists(TXN_STEPS, max_size=30), st.integers(0, 3))
@settings(max_examples=150)
def test_everything_beside_the_log_is_as_it_was(steps: list[tuple[object, ...]], seed: int) -> None:
    """Producers, transactions, epochs and timestamps after a start are those of before, however it ended.

    Even if one bit flips while the node is down, in any file but a log's own.
    """

    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=700)
        await node.start()
        sequences: dict[int, int] = {}
        epoch = 0
        open_txns: set[int] = set()
        for number, step in enumerate(steps):
            log = node.log
            match step:
                case ("idempotent" | "txn" as kind, int(producer)):
                    sequence = sequences.get(producer, 0)
                    produce(log, producer_id=producer, producer_epoch=0, base_sequence=sequence,
                            transactional=kind == "txn", leader_epoch=epoch,
                            timestamp=START_MS + number * 2)  # fmt: skip
                    sequences[producer] = sequence + 1
                    if kind == "txn":
                        open_txns.add(producer)
                case ("end", int(producer), bool(commit)):
                    if producer in open_txns:
                        end_txn(log, producer, commit=commit, leader_epoch=epoch)
                        open_txns.discard(producer)
                case ("epoch",):
                    epoch += 1
                case ("roll",):
                    log.roll(START_MS)
                case ("sync",):
                    await node.sync()
                case ("settle",):
                    await node.settle()
                case ("truncate", int(back)):
                    log.truncate_to(max(log.log_end_offset - back, 0))
                    open_txns = {
                        state.producer_id
                        for state in log.producers.states()
                        if state.txn_first_offset >= 0
                    }
                case ("restart", str(how)):
                    if how == "crash":
                        await node.sync()
                    before = _everything(node)
                    await node.restart(how)
                    assert _everything(node) == before
                case ("rot", str(how), int(bit)):
                    if not await _comes_back_after_rot(node, how, bit):
                        return

    run(scenario, seed)


async def _comes_back_after_rot(node: Node, how: str, bit: int) -> bool:
    """Whether the node can go on: of a damaged `partition.metadata` it says so, or it will with the next start."""
    await node.sync()
    before = _everything(node)
    if how == "clean":
        await node.stop()
    else:
        node.down(how)
    flipped = _flip(node, bit)
    is_named = flipped.startswith(node.path("partition.metadata"))
    node.env = node.world.restart("n1")
    try:
        await node.start()
    except LogDamaged:
        if is_named:
            return False  # and left alone: nothing else says whose log it is
        raise
    assert _everything(node) == before, flipped
    return not is_named  # after a clean stop it was not asked


def _flip(node: Node, bit: int) -> str:
    """One bit of what is not a log; which."""
    files = node.world.disk("n1").files.files()
    found = sorted(
        (path, file)
        for path, file in files
        if not path.endswith((".log", ".torn")) and file.content
    )
    if not found:
        return "nothing"
    path, file = found[bit % len(found)]
    at = bit // len(found) % (8 * len(file.content))
    file.flip(at // 8, at % 8)
    return f"{path}, byte {at // 8}, bit {at % 8}"


def test_a_snapshot_of_a_truncated_history_is_not_believed() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        await node.start()
        produce(node.log, 3, producer_id=1, producer_epoch=0, base_sequence=-1)
        await node.settle()
        append(node.log, batch_at(3, producer_id=2, producer_epoch=0, base_sequence=0))
        node.log.roll(START_MS)
        stale = node.env.disk.read_all(node.path("00000000000000000004.producers"))
        node.log.truncate_to(3)
        append(node.log, batch_at(3, producer_id=3, producer_epoch=0, base_sequence=0))
        await node.sync()
        node.down("crash")
        rewrite(node, "00000000000000000004.producers", stale)  # its removal was not durable
        await node.restart("kill")
        assert [state.producer_id for state in node.log.producers.states()] == [1, 3]

    run(scenario)


@pytest.mark.parametrize("garbage", [None, b"", b"0\n1\n", b"\xff\xfe"])
def test_leader_epochs_are_read_from_the_batches_when_their_file_is_not_usable(
    garbage: bytes | None,
) -> None:
    async def scenario(world: World) -> None:
        node = Node(world, segment_bytes=300)
        await node.start()
        for epoch in (0, 0, 2, 2, 2, 5):
            produce(node.log, leader_epoch=epoch)
        await node.settle()
        for how in ("kill", "crash"):
            node.down(how)
            if garbage is None:
                disk = world.node("n1").disk
                if disk.exists(node.path(EPOCHS)):
                    disk.remove(node.path(EPOCHS))
            else:
                rewrite(node, EPOCHS, garbage)
            await node.restart("kill")
            assert (node.log.epochs.epochs, node.log.epochs.starts) == ([0, 2, 5], [0, 2, 5])

    run(scenario)
