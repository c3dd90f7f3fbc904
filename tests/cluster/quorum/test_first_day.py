"""A voter alone by its settings with an empty folder: the first day of a cluster, or a disk that was lost."""

import asyncio

import pytest
from fencepost.chaos.sim.quorum_links import PORT, host_of
from fencepost.cluster.quorum.first_day import LISTEN_S
from fencepost.cluster.quorum.redirected import in_world
from raft_peers import VOTERS, Peers
from support.quorum_nodes import Nodes

ALONE = {1: VOTERS[1]}


async def grown(world, nodes: Nodes) -> None:
    await nodes.start()
    await asyncio.sleep(LISTEN_S)
    for each in (2, 3):
        leader = await nodes.leader()
        add = each, (host_of(each), PORT)
        await world.on(nodes.env(leader), nodes.quorums[leader].change_voters(add=add))
    await nodes.agree("a")
    await nodes.alike()
    await asyncio.sleep(2)


def lose_disk(world, nodes: Nodes, node_id: int) -> None:
    nodes.quorums.pop(node_id)
    world.restart(host_of(node_id)).disk.remove_tree("/data/quorum")


def test_a_lone_first_voter_whose_disk_was_lost_is_fresh(world) -> None:
    """It led term 1 of the cluster; with an empty disk it led term 1 again, and its logs had other entries there."""
    nodes = Nodes(world, voters=1, observers=2)

    async def scenario() -> None:
        await grown(world, nodes)
        nodes.kill(2)
        await asyncio.sleep(1)
        await nodes.agree("acknowledged")
        await nodes.alike()
        nodes.kill(1)
        nodes.kill(3)
        lose_disk(world, nodes, 1)
        await nodes.start(1)
        await asyncio.sleep(0.5)
        nodes.restart(2)
        await nodes.start(2)
        await asyncio.sleep(2 * LISTEN_S)
        assert not any(nodes.quorums[each].is_leader for each in (1, 2))
        nodes.restart(3)
        await nodes.start(3)
        await asyncio.sleep(5)
        assert all("acknowledged" in nodes.settings(each) for each in nodes.ids)

    world.run(scenario())


@pytest.mark.parametrize("again", [False, True])
def test_a_first_voter_that_listens_in_vain_leads_and_is_not_kept_waiting_again(
    world, again
) -> None:
    nodes = Nodes(world, voters=1, observers=1)

    async def scenario() -> None:
        await nodes.start()
        await asyncio.sleep(LISTEN_S - 0.1)
        assert not nodes.quorums[1].is_leader
        await asyncio.sleep(0.2)
        assert nodes.quorums[1].is_leader
        if again:
            nodes.kill(1)
            nodes.restart(1)
            await nodes.start(1)
            await asyncio.sleep(0.1)
            assert nodes.quorums[1].is_leader
        await nodes.agree("a")
        await nodes.alike()

    world.run(scenario())


def test_a_fresh_first_voter_with_some_of_the_log_of_others_does_not_stand_by_its_settings(
    world,
) -> None:
    """It ended in the middle of it. Nobody is there who could show it that there is a cluster, but its own log does."""
    one = Peers(world, fresh=True, voters=ALONE)
    assert one.raft.is_alone and one.raft.may_stand
    one.append(3, (1, 0), 3, 3, commit=2)
    one.sync()
    with in_world(one.env):
        one.raft.destroy()
    world.run(world.on(one.env, one.journal.close()))
    again = Peers(world, fresh=True, voters=ALONE, env=world.restart("a"))
    assert again.raft.is_another_day
    again.sleep(2 * LISTEN_S)
    assert not again.raft.elects_itself(world.loop.time())
    assert not again.raft.may_stand


def test_who_has_a_leader_and_settings_that_name_no_other_voter_stays_fresh(world) -> None:
    """Those of the others name more, and the log says nothing: grown up, it would lead when they are silent."""
    one = Peers(world, fresh=True, voters=ALONE)
    one.append(3, (1, 0), 3, commit=2)
    one.sync()
    one.tick()
    one.append(3, (2, 3), commit=2)
    with in_world(one.env):
        one.raft.maybe_grow_up()
    assert one.raft.has_begun_term and one.journal.vote.fresh
    one.sleep(2 * LISTEN_S)
    assert not one.raft.elects_itself(world.loop.time())
    three = Peers(world, fresh=True, env=world.node("b"))
    three.append(3, (1, 0), 3, commit=2)
    three.sync()
    three.tick()
    with in_world(three.env):
        three.raft.maybe_grow_up()
    assert not three.journal.vote.fresh, "with its voters in the settings it has all that there is"


def test_voters_that_it_does_not_know_show_that_there_is_a_cluster(world) -> None:
    nodes = Nodes(world, voters=1, observers=1)

    async def scenario() -> None:
        await nodes.start(1)
        quorum = nodes.quorums[1]
        quorum.on_voters_named(2, {1: ("node-1", 1)})
        assert quorum.view().of_others == []
        quorum.on_voters_named(2, {1: ("node-1", 1), 3: ("node-3", 1)})
        assert quorum.view().of_others == [2]
        await asyncio.sleep(2 * LISTEN_S)
        assert quorum.leader_id is None

    world.run(scenario())
