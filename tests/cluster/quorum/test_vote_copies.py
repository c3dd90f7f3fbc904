"""The second copy of a vote: made while the next is stored, owed where it could not be, and never older than what counts."""

import asyncio
import errno

import pytest
from fencepost.chaos.sim.quorum_links import host_of
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import LogDamaged
from fencepost.cluster.quorum import vote_file
from fencepost.cluster.quorum.vote_file import Vote, VoteFile
from support.quorum_nodes import FOLDER, Nodes
from vote_helpers import COPY, VOTE, read, store_twice


@pytest.fixture
def voting():
    with World(seed=1) as world:
        yield Nodes(world, voters=3)


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
