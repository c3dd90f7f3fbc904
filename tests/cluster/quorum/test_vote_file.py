"""A vote is durable when it is told, never half, and never forgotten; one that can't be read keeps the node from voting."""

import asyncio
import errno
import functools
import random
from collections.abc import Callable

import pytest
from fencepost.chaos.sim.disk import MachineDisk
from fencepost.chaos.sim.node import SimEnv
from fencepost.chaos.sim.world import NodeLost, World
from fencepost.cluster.base.errors import LogDamaged
from fencepost.cluster.quorum.raft_files import read_packed
from fencepost.cluster.quorum.vote_file import SIZE, Vote, VoteFile
from hypothesis import given
from hypothesis import strategies as st
from vote_helpers import COPY, VOTE, flip, read, store_twice, votes


def test_an_unreadable_vote_keeps_the_node_from_voting() -> None:
    """pysyncobj takes it for an empty one: the vote is forgotten, and given again in the same term."""
    with World(seed=1) as world:
        env = world.node("a")
        store_twice(world, VoteFile(env, VOTE), 4, 2)
        for position in range(SIZE):
            flip(world, position, VOTE, COPY)
            with pytest.raises(LogDamaged, match=f"{VOTE} is damaged"):
                VoteFile(env, VOTE)
            flip(world, position, VOTE, COPY)
        assert read(env) == (4, 2, True)


@pytest.mark.parametrize("stored", [1, 2, 3])
def test_one_copy_that_rots_is_made_anew_from_the_other(stored: int) -> None:
    """Whichever of the two, and whichever was written first."""
    with World(seed=1) as world:
        env = world.node("a")
        vote = VoteFile(env, VOTE)
        for term in range(1, stored + 1):
            store_twice(world, vote, term, 2, fresh=False)
        for position in range(SIZE):
            for path in (VOTE, COPY):
                flip(world, position, path)
                assert read(env) == (stored, 2, False)
                assert not world.disk("a").files.file(path).flips  # mended
        assert {event for _, event, _ in env.log.events} == {"quorum_vote_copy_damaged"}


@pytest.mark.parametrize("path", [VOTE, COPY])
def test_an_empty_or_cut_vote_keeps_the_node_from_voting(path: str) -> None:
    """Also if the other one is well: this one was never so short, unless an older build wrote it, after the other one."""
    with World(seed=1) as world:
        env = world.node("a")
        VoteFile(env, VOTE).store(4, 2)
        for size in range(env.disk.size(path) - 1, -1, -1):
            env.disk.open(path).truncate(size)
            with pytest.raises(LogDamaged):
                VoteFile(env, VOTE)


@pytest.mark.parametrize(
    "vote", [Vote(), Vote(3), Vote(2**40, 2**31 - 1, fresh=False), Vote(7, 0, fresh=True)]
)
def test_a_vote_is_always_as_long_and_older_builds_read_it(vote: Vote) -> None:
    with World(seed=1) as world:
        env = world.node("a")
        stored = VoteFile(env, VOTE)
        store_twice(world, stored, vote.term, vote.voted_for, fresh=vote.fresh)
        if vote == Vote():
            assert not env.disk.exists(VOTE)  # nothing was voted
            return
        data = env.disk.read_all(VOTE)
        assert data == env.disk.read_all(COPY)
        assert len(data) == SIZE
        term, voted_for, *rest = read_packed(VOTE, data)
        assert (term, voted_for, rest == [True]) == vote


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("operation", range(1, 14))
def test_a_vote_is_durable_when_store_returns_and_never_half(operation: int, before: bool) -> None:
    for seed in range(10):
        with World(seed=seed) as world:
            env, stored = world.node("a"), [(0, None)]
            if before:
                world.run(world.on(env, votes(env, stored)))
            world.crash_at_disk_op("a", operation)
            try:
                world.run(world.on(env, votes(env, stored)))
            except NodeLost:
                pass
            world.disk("a").on_operation = None
            assert read(world.restart("a"))[:2] in stored


@pytest.mark.parametrize("sync_fails", [False, True])
@pytest.mark.parametrize("operation", range(1, 14))
def test_what_a_node_read_of_a_killed_one_is_durable(operation: int, sync_fails: bool) -> None:
    """It may tell others of it at once, and vote no more in that term; the killed process had not synced it."""
    for seed in range(10):
        with World(seed=seed) as world:
            env, stored = world.node("a"), [(0, None)]
            world.run(world.on(env, votes(env, stored)))
            world.crash_at_disk_op("a", operation, kill=True)
            if sync_fails:
                world.disk("a").faults.fail("sync", path=f"{VOTE}*")
            try:
                world.run(world.on(env, votes(env, stored)))
            except (NodeLost, OSError):
                pass
            world.disk("a").on_operation = None
            world.disk("a").faults.heal()
            found = read(world.restart("a"))
            assert found[:2] in stored
            world.crash("a", torn=True)
            assert read(world.restart("a")) == found


def test_a_full_disk_takes_votes() -> None:
    with World(seed=1) as world:
        env = world.node("a")
        vote = VoteFile(env, VOTE)
        vote.store(1, None)
        files = world.disk("a").files
        files.capacity = files.used
        for term in range(2, 5):
            store_twice(world, vote, term, 3)
            assert not vote._owed
            assert read(world.restart("a"))[:2] == (term, 3)
            vote = VoteFile(world.node("a"), VOTE)


def test_a_vote_whose_first_copy_could_not_be_synced_is_not_given() -> None:
    """A disk on which even writing over takes room. Nobody was told of it: the next may be another vote."""
    with World(seed=1) as world:
        env = world.node("a")
        vote = VoteFile(env, VOTE)
        vote.store(1, None)
        vote.store(2, None)
        world.disk("a").faults.fail("sync", number=errno.ENOSPC)
        with pytest.raises(OSError, match="No space"):
            vote.store(2, 3)
        assert (vote.term, vote.voted_for) == (2, None)
        vote.store(2, 1)
        world.crash("a", torn=True)
        assert read(world.restart("a"))[:2] == (2, 1)


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


@given(st.binary(max_size=30))
def test_garbage_is_no_vote(garbage: bytes) -> None:
    with World(seed=1) as world:
        env = world.node("a")
        env.disk.replace(VOTE, garbage)
        with pytest.raises(LogDamaged):
            VoteFile(env, VOTE)


async def lives(env: SimEnv, dice: random.Random, told: list[Vote]) -> None:
    """A node starts, and votes some times. `told` is what others know of last."""
    vote = VoteFile(env, VOTE)
    vote.settle()
    assert (vote.term, not vote.fresh) >= (told[0].term, not told[0].fresh)
    if told[0].voted_for is not None and vote.term == told[0].term:
        assert vote.voted_for == told[0].voted_for
    told[0] = Vote(vote.term, vote.voted_for, vote.fresh)
    for _ in range(dice.randint(0, 4)):
        term = vote.term + (0 if vote.voted_for is None and dice.random() < 0.6 else 1)
        fresh = vote.fresh and dice.random() < 0.8
        try:
            vote.store(term, dice.choice((None, 1, 2, 3)), fresh=fresh)
        except OSError:
            continue  # nobody is told; the next may be another one
        told[0] = Vote(vote.term, vote.voted_for, vote.fresh)
        copying = asyncio.ensure_future(vote.copy())
        await asyncio.sleep(0)
        if dice.random() < 0.7:
            await copying


@pytest.mark.parametrize("first_seed", range(0, 400, 50))
def test_whatever_happens_no_vote_that_was_told_is_forgotten_or_given_again(
    first_seed: int,
) -> None:
    """Kills, power cuts that tear, syncs that say that the disk is full, at any operation, a start's too."""
    for seed in range(first_seed, first_seed + 50):
        with World(seed=seed) as world:
            dice, told = random.Random(seed), [Vote()]
            for _ in range(12):
                env = world.node("a")
                disk, strike, operation = world.disk("a"), dice.random(), dice.randint(1, 12)
                crash = functools.partial(
                    world.crash_at_disk_op, "a", operation, kill=dice.random() < 0.3
                )

                def full(disk: MachineDisk = disk, crash: Callable[[], None] = crash) -> None:
                    disk.faults.fail("sync", number=errno.ENOSPC)
                    crash()

                if strike < 0.5:
                    crash()
                elif strike < 0.9:
                    world.at_disk_op("a", dice.randint(1, 12), full)

                try:
                    world.run(world.on(env, lives(env, dice, told)))
                    world.kill("a")
                except (NodeLost, OSError):
                    if world.is_up("a"):
                        world.kill("a")
                disk.on_operation = None
                disk.faults.heal()
