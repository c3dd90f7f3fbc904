import errno

import msgpack
import pytest
from crc32c import crc32c
from fencepost.chaos.sim.node import SimEnv
from fencepost.chaos.sim.world import NodeLost, World
from fencepost.cluster.base.errors import LogDamaged
from fencepost.cluster.quorum.raft_files import Snapshot, SnapshotFile, VoteFile
from fencepost.cluster.quorum.segment_format import Entry
from hypothesis import given
from hypothesis import strategies as st

VOTE, SNAPSHOT = "/data/vote", "/data/snapshot"
VOTERS = {1: ("a", 9192), 2: ("b", 9192)}


def test_an_unreadable_vote_keeps_the_node_from_voting() -> None:
    """pysyncobj takes it for an empty one: the vote is forgotten, and given again in the same term."""
    with World(seed=1) as world:
        env = world.node("a")
        VoteFile(env, VOTE).store(4, 2)
        for position in range(env.disk.size(VOTE)):
            world.disk("a").files.file(VOTE).flip(position, 0)
            with pytest.raises(LogDamaged, match=f"{VOTE} is damaged"):
                VoteFile(env, VOTE)
            world.disk("a").files.file(VOTE).flip(position, 0)
        assert (VoteFile(env, VOTE).term, VoteFile(env, VOTE).voted_for) == (4, 2)


def test_an_empty_or_cut_vote_keeps_the_node_from_voting() -> None:
    with World(seed=1) as world:
        env = world.node("a")
        VoteFile(env, VOTE).store(4, 2)
        for size in range(env.disk.size(VOTE) - 1, -1, -1):
            env.disk.open(VOTE).truncate(size)
            with pytest.raises(LogDamaged):
                VoteFile(env, VOTE)


@pytest.mark.parametrize("operation", range(1, 14))
def test_a_vote_is_durable_when_store_returns_and_never_half(operation: int) -> None:
    for seed in range(10):
        with World(seed=seed) as world:
            env, stored = world.node("a"), [(0, None)]

            async def votes(env: SimEnv = env, stored: list = stored) -> None:
                vote = VoteFile(env, VOTE)
                for term, voted_for in ((1, None), (1, 3), (2, 1)):
                    stored.append((term, voted_for))
                    vote.store(term, voted_for)
                    stored[:] = stored[-1:]

            world.crash_at_disk_op("a", operation)
            try:
                world.run(world.on(env, votes()))
            except NodeLost:
                pass
            found = VoteFile(world.restart("a"), VOTE)
            assert (found.term, found.voted_for) in stored


def test_a_second_vote_in_one_term_is_a_broken_invariant() -> None:
    with World(seed=1) as world:
        vote = VoteFile(world.node("a"), VOTE)
        vote.store(4, 2)
        vote.store(4, 2)
        with pytest.raises(AssertionError, match="second vote"):
            vote.store(4, 3)
        with pytest.raises(AssertionError, match="went backwards"):
            vote.store(3, None)


def test_a_vote_that_knows_less_than_the_journal_is_refused() -> None:
    """A backup of the one beside the other: the votes in between are forgotten."""
    with World(seed=1) as world:
        vote = VoteFile(world.node("a"), VOTE)
        vote.check(None)
        vote.check(0)
        with pytest.raises(LogDamaged, match="entries of term 5, and /data/vote knows of term 0"):
            vote.check(5)
        vote.store(5, 1)
        vote.check(5)
        with pytest.raises(LogDamaged, match="no metadata journal beside"):
            vote.check(None)


def test_files_of_a_later_format_are_refused_by_it() -> None:
    with World(seed=1) as world:
        env = world.node("a")
        content = msgpack.packb([9, []])
        env.disk.replace(VOTE, content + crc32c(content).to_bytes(4, "big"))
        with pytest.raises(LogDamaged, match="has format 9"):
            VoteFile(env, VOTE)


@given(st.binary(max_size=30))
def test_garbage_is_no_vote(garbage: bytes) -> None:
    with World(seed=1) as world:
        env = world.node("a")
        env.disk.replace(VOTE, garbage)
        with pytest.raises(LogDamaged):
            VoteFile(env, VOTE)


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
