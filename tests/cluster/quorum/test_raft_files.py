import errno

import pytest
from fencepost.chaos.sim.node import SimEnv
from fencepost.chaos.sim.world import NodeLost, World
from fencepost.cluster.base.errors import LogDamaged
from fencepost.cluster.quorum.raft_files import Snapshot, SnapshotFile
from fencepost.cluster.quorum.segment_format import Entry

SNAPSHOT = "/data/snapshot"
VOTERS = {1: ("a", 9192), 2: ("b", 9192)}


def test_a_snapshot_is_the_old_one_or_the_new_one_after_any_crash() -> None:
    for operation in range(1, 9):
        with World(seed=operation) as world:
            env = world.node("a")
            old = Snapshot(Entry(b"\x01", 1, 0), Entry(b"\x01", 2, 1), b"old", VOTERS)
            new = Snapshot(Entry(b"\x00x", 7, 1), Entry(b"\x00y", 8, 1), b"new" * 5000, {})

            async def replace(env: SimEnv = env, snapshots: tuple = (old, new)) -> None:
                for snapshot in snapshots:
                    await SnapshotFile(env, SNAPSHOT).store(snapshot)

            world.run(world.on(env, SnapshotFile(env, SNAPSHOT).store(old)))
            world.crash_at_disk_op("a", operation)
            try:
                world.run(world.on(env, SnapshotFile(env, SNAPSHOT).store(new)))
            except NodeLost:
                pass
            found = SnapshotFile(world.restart("a"), SNAPSHOT).load()
            assert found in (old, new)


def test_a_damaged_snapshot_is_refused_and_none_is_none() -> None:
    with World(seed=1) as world:
        env = world.node("a")
        assert SnapshotFile(env, SNAPSHOT).load() is None
        snapshot = Snapshot(Entry(b"\x01", 1, 0), Entry(b"\x01", 2, 1), b"state", VOTERS)
        world.run(world.on(env, SnapshotFile(env, SNAPSHOT).store(snapshot)))
        world.disk("a").files.file(SNAPSHOT).flip(12, 0)
        with pytest.raises(LogDamaged, match=f"{SNAPSHOT} is damaged"):
            SnapshotFile(env, SNAPSHOT).load()


def test_a_full_disk_leaves_the_snapshot_before() -> None:
    with World(seed=1) as world:
        env = world.node("a")
        snapshot = Snapshot(Entry(b"\x01", 1, 0), Entry(b"\x01", 2, 1), b"state", VOTERS)
        world.run(world.on(env, SnapshotFile(env, SNAPSHOT).store(snapshot)))
        world.disk("a").faults.fail("append", number=errno.ENOSPC)

        async def full() -> None:
            with pytest.raises(OSError, match="No space"):
                await SnapshotFile(env, SNAPSHOT).store(snapshot)

        world.run(world.on(env, full()))
        found = SnapshotFile(env, SNAPSHOT).load()
        assert found is not None and found.machine == b"state"
