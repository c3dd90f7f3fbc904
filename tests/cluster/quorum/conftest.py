"""A simulated world, and in it the one Raft that `raft_peers.py` speaks to."""

from collections.abc import Iterator

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.quorum.election_machine import ELECTION_S
from raft_peers import Peers


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=1) as world:
        yield world


@pytest.fixture
def one(world: World) -> Peers:
    """It began a while ago: what the process before it may have promised a leader is over."""
    peers = Peers(world)
    peers.sleep(ELECTION_S)
    return peers
