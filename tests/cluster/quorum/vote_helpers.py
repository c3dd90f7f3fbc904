"""The files of a vote on the simulated disk: read, written twice, rotten."""

import asyncio

from fencepost.chaos.sim.node import SimEnv
from fencepost.chaos.sim.world import World
from fencepost.cluster.quorum.vote_file import VoteFile

VOTE, COPY = "/data/vote", "/data/vote-copy"


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
