"""One bit of a batch's own offset flips, which no checksum covers; then the log is compacted."""

import contextlib

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import LogDamaged
from log_helpers import LOG, START_MS, Node, end_txn, put, run


def _flip(node: Node, position: int, bit: int) -> None:
    file = node.env.disk.open(node.path(LOG))
    data = int.from_bytes(file.read(position, 8), "big") ^ (1 << bit)
    file.write_at(position, data.to_bytes(8, "big"))
    file.close()


def test_an_offset_that_has_sunk_takes_no_newest_value_of_a_key() -> None:
    async def scenario(world: World) -> None:
        node = Node(world, compact=True, delete=False, segment_bytes=1 << 20)
        log = await node.start()
        for number in range(50):
            put(log, (f"k{number}", "once"))
        log.roll(START_MS)
        await log.compact(START_MS, 50, force=True)
        assert log.cleaned_to == 50
        for number in range(50, 99):
            put(log, (f"k{number}", "once"))
        put(log, ("k90", "acknowledged"))  # at 99
        at = log.active.size
        put(log, ("k90", "the newest"))  # at 100
        put(log, ("last", "x"))
        log.roll(START_MS)
        await node.settle()
        file = node.env.disk.open(log.segments[1].path)
        assert int.from_bytes(file.read(at, 8), "big") == 100
        file.write_at(at, (100 ^ 64).to_bytes(8, "big"))
        file.close()
        with contextlib.suppress(LogDamaged):
            await log.compact(START_MS, 102, force=True)
        found = b"".join(node.env.disk.read_all(segment.path) for segment in log.segments[:-1])
        assert b"the newest" in found

    run(scenario)


@pytest.mark.parametrize("bit", [12, 20, 40])
def test_an_offset_that_has_risen_takes_no_committed_record(bit: int) -> None:
    async def scenario(world: World) -> None:
        node = Node(world, compact=True, delete=False, segment_bytes=1 << 20)
        log = await node.start()
        put(log, ("other", "x"))
        txn = {"transactional": True, "producer_id": 5, "producer_epoch": 0}
        put(log, ("key", "committed"), base_sequence=0, **txn)
        end_txn(log, 5, commit=True)
        for number in range(6):  # so that nothing of it stays for its producer's sake
            put(log, (f"k{number}", "aborted"), base_sequence=1 + number, **txn)
        end_txn(log, 5, commit=False)
        log.roll(START_MS)
        await node.settle()
        _flip(node, 0, bit)
        with contextlib.suppress(LogDamaged):
            await log.compact(START_MS, log.log_end_offset, force=True)
        assert b"committed" in node.env.disk.read_all(node.path(LOG))

    run(scenario)
