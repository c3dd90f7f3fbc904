"""Votes of older builds, which know of one file only, and files of later ones."""

import msgpack
import pytest
from crc32c import crc32c
from fencepost.chaos.sim.node import SimEnv
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import LogDamaged
from fencepost.cluster.quorum import vote_file
from fencepost.cluster.quorum.raft_files import write_packed
from fencepost.cluster.quorum.vote_file import Vote, VoteFile
from vote_helpers import COPY, VOTE, flip, read


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
