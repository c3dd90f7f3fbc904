import asyncio
import errno
import functools
import random
from collections.abc import Callable

import msgpack
import pytest
from crc32c import crc32c
from fencepost.chaos.sim.disk import MachineDisk
from fencepost.chaos.sim.node import SimEnv
from fencepost.chaos.sim.quorum_links import host_of
from fencepost.chaos.sim.world import NodeLost, World
from fencepost.cluster.base.errors import LogDamaged
from fencepost.cluster.quorum import vote_file
from fencepost.cluster.quorum.raft_files import read_packed, write_packed
from fencepost.cluster.quorum.vote_file import SIZE, Vote, VoteFile
from hypothesis import given
from hypothesis import strategies as st
from support.quorum_nodes import FOLDER, Nodes

VOTE, COPY = "/data/vote", "/data/vote-copy"


@pytest.fixture
def voting():
    with World(seed=1) as world:
        yield Nodes(world, voters=3)


def read(env: SimEnv) -> tuple[int, int | None, bool]:
    """As a node that starts, and may tell it to others then."""
    vote = VoteFile(env, VOTE)
    vote.settle()
    return vote.term, vote.voted_for, vote.fresh


def store_twice(world: World, vote: VoteFile, *what: int | None, **how: bool) -> None:
    """And the second copy, as the task makes it that writes the journal."""

    async def stores() -> None:
        vote.store(*what, **how)
        await vote.copy()

    world.run(world.on(vote._env, stores()))


def flip(world: World, position: int, *paths: str) -> None:
    for each in paths:
        world.disk("a").files.file(each).flip(position, 0)


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


async def votes(env: SimEnv, stored: list[tuple[int, int | None]]) -> None:
    """What `stored` holds in the end: the last that is known to be durable, and what was under way."""
    vote = VoteFile(env, VOTE)
    copying = asyncio.ensure_future(vote.copy())
    for term, voted_for in ((vote.term + 1, None), (vote.term + 1, 3), (vote.term + 2, 1)):
        stored.append((term, voted_for))
        vote.store(term, voted_for)
        stored[:] = stored[-1:]
        await copying
        copying = asyncio.ensure_future(vote.copy())
        if voted_for is None:
            await copying
        await asyncio.sleep(0)  # it is under way
    await copying
    vote.close()


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


def test_a_vote_whose_second_copy_could_not_be_synced_is_given_and_the_copy_owed() -> None:
    """Raised, Raft would go on as if it had not voted, and give another one in the same term."""
    with World(seed=1) as world:
        env = world.node("a")
        vote = VoteFile(env, VOTE)
        vote.store(1, None)
        faults = world.disk("a").faults
        vote.store(2, 3)
        faults.fail("sync", number=errno.ENOSPC)
        world.run(world.on(env, vote.copy()))
        assert vote._owed
        assert not vote.to_copy  # with the next vote
        world.crash("a", torn=True)
        faults.heal()
        assert read(world.restart("a"))[:2] == (2, 3)
        env = world.node("a")
        vote = VoteFile(env, VOTE)
        world.at_disk_op("a", 3, lambda: faults.fail("sync", number=errno.ENOSPC))
        vote.settle()
        assert vote._owed
        faults.heal()
        vote.store(2, 3)  # nothing is stored for what is known
        assert vote._owed
        store_twice(world, vote, 3, 3)
        assert not vote._owed
        vote.store(3, 3)
        vote.store(4, 3)
        faults.fail("sync", number=errno.EIO)
        with pytest.raises(OSError, match="Input"):  # its node ends for that
            world.run(world.on(env, vote.copy()))


def test_a_vote_is_stored_while_the_copy_of_the_last_one_is_synced() -> None:
    with World(seed=1) as world:
        env = world.node("a")
        world.disk("a").faults.sync_s = (0.4, 0.4)
        vote = VoteFile(env, VOTE)

        async def copies() -> None:
            vote.store(1, None)
            copying = asyncio.ensure_future(vote.copy())
            await asyncio.sleep(0.1)
            vote.store(1, 3)
            await copying
            assert vote.to_copy, "the copy that was under way is of before"
            await vote.copy()

        world.run(world.on(env, copies()))
        assert env.disk.read_all(VOTE) == env.disk.read_all(COPY) == vote_file._pack(Vote(1, 3))


@pytest.mark.parametrize("is_copying", [True, False])
def test_what_a_vote_that_was_not_given_has_left_in_a_file_is_written_over(
    is_copying: bool,
) -> None:
    """The file counted as the second copy, and had another vote, or half of one: when the first rots there is none left."""
    with World(seed=1) as world:
        env = world.node("a")
        faults = world.disk("a").faults
        vote = VoteFile(env, VOTE)

        async def scenario() -> None:
            vote.store(1, 3)
            copying = asyncio.ensure_future(vote.copy())
            if not is_copying:
                await copying
            await asyncio.sleep(0)
            faults.fail("sync", number=errno.ENOSPC)
            with pytest.raises(OSError, match="No space"):
                vote.store(2, 2)
            await copying
            assert vote.to_copy
            assert await vote.copy()

        world.run(world.on(env, scenario()))
        assert not vote._owed
        assert env.disk.read_all(VOTE) == env.disk.read_all(COPY) == vote_file._pack(Vote(1, 3))


def test_a_copy_that_could_not_be_made_is_tried_again(voting: Nodes) -> None:
    """A vote of which one copy is left is forgotten when that one rots: the other one is of before."""
    world, nodes = voting.world, voting

    async def scenario() -> None:
        await nodes.start()
        leader = await nodes.leader()
        others = [each for each in nodes.ids if each != leader]
        for each in others:
            faults = world.disk(host_of(each)).faults
            faults.fail("open", path="*vote*", number=errno.EMFILE, times=1000)
        votes = [nodes.quorums[each]._journal.vote for each in others]
        for vote in votes:
            vote._close(vote._copies)
        nodes.kill(leader)
        await nodes.leader(among=others)
        await asyncio.sleep(1)
        assert any(vote._owed for vote in votes)
        for each in others:
            world.disk(host_of(each)).faults.planned.clear()
        await asyncio.sleep(6)
        for each in others:
            disk = nodes.env(each).disk
            both = [disk.read_all(f"{FOLDER}/{name}") for name in ("vote", "vote-copy")]
            assert both[0] == both[1]

    world.run(scenario())


def test_a_copy_that_can_not_be_made_is_tried_no_more_often_the_more_is_agreed_on(
    voting: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each entry that was written began a try of its own, every five seconds, for ever."""
    world, nodes = voting.world, voting
    tries: list[VoteFile] = []
    copy = VoteFile.copy

    async def counted(self: VoteFile) -> bool:
        tries.append(self)
        return await copy(self)

    monkeypatch.setattr(VoteFile, "copy", counted)

    async def scenario() -> None:
        await nodes.start()
        leader = await nodes.leader()
        others = [each for each in nodes.ids if each != leader]
        for each in others:
            faults = world.disk(host_of(each)).faults
            faults.fail("open", path="*vote*", number=errno.EMFILE, times=1_000_000)
            nodes.quorums[each]._journal.vote._close(nodes.quorums[each]._journal.vote._copies)
        nodes.kill(leader)
        await nodes.leader(among=others)
        for number in range(40):
            await nodes.agree(f"s{number}")
        await asyncio.sleep(10)
        tries.clear()
        await asyncio.sleep(20)
        assert 3 <= len(tries) <= 5 * len(others)

    world.run(scenario())


def test_a_stop_goes_on_though_the_second_copy_can_not_be_made() -> None:
    with World(seed=1) as world:
        env = world.node("a")
        vote = VoteFile(env, VOTE)
        vote.store(1, 3)
        world.disk("a").faults.fail("sync", path="*vote*", number=errno.EIO)
        vote.close()
        assert [event for _, event, _ in env.log.events] == ["quorum_vote_copy_owed"]
        world.disk("a").faults.heal()
        assert read(env)[:2] == (1, 3)


def test_a_node_that_stops_leaves_both_copies() -> None:
    """The next one may be of an older build, which reads one of them."""
    with World(seed=1) as world:
        env = world.node("a")
        vote = VoteFile(env, VOTE)
        vote.store(1, 3)
        assert env.disk.read_all(VOTE) != env.disk.read_all(COPY)
        vote.close()
        assert env.disk.read_all(VOTE) == env.disk.read_all(COPY) == vote_file._pack(Vote(1, 3))


def test_a_lost_vote_beside_its_copy_keeps_the_node_from_voting() -> None:
    """It is made first: the copy may be of before an older build wrote the vote alone."""
    with World(seed=1) as world:
        env = world.node("a")
        store_twice(world, VoteFile(env, VOTE), 4, 2)
        env.disk.remove(VOTE)
        with pytest.raises(LogDamaged, match=f"no {VOTE} beside {COPY}"):
            VoteFile(env, VOTE)


def old_build_stores(env: SimEnv, *body: object) -> None:
    env.disk.replace(VOTE, write_packed(list(body)))


def test_a_vote_of_an_older_build_is_read_and_both_files_are_made_when_there_is_room() -> None:
    with World(seed=1) as world:
        env = world.node("a")
        files = world.disk("a").files
        for body, fresh in (([4, 2], False), ([4, 2, True], True)):
            files.capacity = None
            old_build_stores(env, *body)
            files.capacity = files.used
            assert read(env) == (4, 2, fresh)
            assert not env.disk.exists(COPY)
        vote = VoteFile(env, VOTE)
        with pytest.raises(OSError, match="No space"):
            vote.store(5, 1)
        assert (vote.term, vote.voted_for) == (4, 2)
        files.capacity = None
        vote.store(5, 1)
        files.capacity = files.used
        vote.store(6, 1)
        assert read(env) == (6, 1, True)


def test_what_an_older_build_voted_in_between_counts() -> None:
    """It knows of one file only: the other one is of before."""
    with World(seed=1) as world:
        env = world.node("a")
        VoteFile(env, VOTE).store(4, None)
        for body, found in (([4, 3], (4, 3)), ([9, None], (9, None))):
            old_build_stores(env, *body, False)
            assert read(env)[:2] == found
        # What this build had begun to vote and told nobody does not count beside it.
        env.disk.replace(COPY, vote_file._pack(Vote(9, 1, fresh=False)))
        old_build_stores(env, 9, 2, False)
        assert read(env)[:2] == (9, 2)
        env.disk.replace(COPY, vote_file._pack(Vote(9, 1, fresh=False)))
        old_build_stores(env, 9, 2, True)
        assert read(env)[:2] == (9, 2)
        # And if what it wrote has rotted nobody knows how it voted.
        old_build_stores(env, 12, 2, False)
        flip(world, 5, VOTE)
        with pytest.raises(LogDamaged, match=f"{VOTE} is damaged"):
            VoteFile(env, VOTE)


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


@pytest.mark.parametrize("path", [VOTE, COPY])
def test_files_of_a_later_format_are_refused_by_it(path: str) -> None:
    """Also if the other one is well: it is of before."""
    with World(seed=1) as world:
        env = world.node("a")
        VoteFile(env, VOTE).store(4, 2)
        packed = msgpack.packb([9, []])
        env.disk.replace(path, packed + crc32c(packed).to_bytes(4, "big"))
        with pytest.raises(LogDamaged, match="has format 9"):
            VoteFile(env, VOTE)


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
