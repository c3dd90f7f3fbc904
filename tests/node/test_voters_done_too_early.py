"""A change of voters that is answered as done, and is in no majority's log (node/voters.py: INVARIANT)."""

import asyncio

import pytest
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.cluster.base.errors import ErrorCode
from sim_cluster import Cluster
from test_voter_changes import add, remove, voters

E = ErrorCode


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
@pytest.mark.parametrize("change", ["remove", "add"])
def test_a_change_that_is_answered_as_done_is_committed(change: str, seed: int) -> None:
    cluster = Cluster(4, seed=seed)

    async def scenario() -> None:
        leader = cluster.nodes.controller()
        assert leader is not None
        asked, third = [each for each in (1, 2, 3) if each != leader]
        wanted = [leader, asked] if change == "remove" else [1, 2, 3, 4]
        # The others' disks are slow: they answer that they hear the leader, and hold nothing new yet.
        for each in (asked, third, 4):
            cluster.world.disk(node_name(each)).faults.sync_s = (1000.0, 1000.0)
        ask = remove(cluster, asked, third) if change == "remove" else add(cluster, asked, 4)
        asking = asyncio.ensure_future(ask)
        raft = cluster.nodes.broker(leader).quorum._raft
        assert raft is not None
        await cluster.until(lambda: sorted(raft.voters) == sorted(wanted))
        index = raft.sets.index
        await asyncio.sleep(2.0)
        assert not asking.done()
        # The leader stands still for as long as its lease: nobody else has a disk to lead with, and it goes on to lead.
        cluster.world.pause(node_name(leader))
        await asyncio.sleep(0.5)
        cluster.world.resume(node_name(leader))
        answer = await asking
        if answer[0] is not E.none:
            return  # fine: nobody was told that it is done
        is_committed = raft.commit_index >= index
        # What becomes of it when the power goes, and the leader's machine is gone for good.
        for each in (1, 2, 3, 4):
            cluster.world.crash(node_name(each), torn=False)
        for each in (asked, third, 4):
            cluster.world.disk(node_name(each)).faults.heal()
            cluster.nodes.start(each)
        await asyncio.sleep(15)
        then = {each: sorted(voters(cluster, each)) for each in (asked, third, 4)}
        assert is_committed, f"answered as done; of {wanted} there is left {then}"

    cluster.play(scenario)
