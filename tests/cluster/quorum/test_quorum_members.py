"""Members that only read, and voters that come and go one at a time."""

import asyncio

import pytest
from fencepost.chaos.sim.quorum_links import host_of
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import ErrorCode, Outcome, Trouble
from fencepost.cluster.quorum import store
from fencepost.cluster.quorum.voters import VoterChangeRefused
from support.quorum_nodes import Nodes, setting


async def change(nodes: Nodes, **what: object) -> None:
    leader = await nodes.leader()
    quorum = nodes.quorums[leader]
    await nodes.world.on(nodes.env(leader), quorum.change_voters(**what))


# --- members that only read -----------------------------------------------------------------------


def test_members_that_only_read_follow_through_a_change_of_leader(world: World) -> None:
    nodes = Nodes(world, voters=3, observers=5)

    async def scenario() -> None:
        await nodes.start()
        leader = await nodes.leader()
        await nodes.agree("first")
        await nodes.alike()
        nodes.kill(leader)
        await nodes.leader()
        await nodes.agree("second")
        await nodes.alike()
        await asyncio.sleep(1)
        leader = await nodes.leader()
        view = nodes.quorums[leader].view()
        now_ms = nodes.env(leader).clock.now_ms()
        assert sorted(view.voters) == [1, 2, 3]
        assert sorted(view.observers) == [4, 5, 6, 7, 8]
        for seen in view.observers.values():
            assert seen.end_offset == view.high_watermark
            assert now_ms - 500 < seen.last_caught_up_ms <= seen.last_fetch_ms <= now_ms

    world.run(scenario())


def test_members_that_only_read_are_counted_for_nothing(world: World) -> None:
    """Neither to elect nor to commit, however many they are."""
    nodes = Nodes(world, voters=3, observers=3)

    async def scenario() -> None:
        await nodes.start()
        leader = await nodes.leader()
        await nodes.agree("first")
        await nodes.alike()
        for each in (1, 2, 3):
            if each != leader:
                nodes.kill(each)
        with pytest.raises(Trouble) as trouble:
            await nodes.propose(leader, "lost")
        assert trouble.value.outcome is Outcome.UNKNOWN
        await asyncio.sleep(10)
        assert nodes.leaders() == []

    world.run(scenario())


def test_a_member_that_only_reads_and_was_away_for_long_gets_a_snapshot(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SNAPSHOT_ENTRIES", 15)
    nodes = Nodes(world, voters=3, observers=1)

    async def scenario() -> None:
        await nodes.start(1, 2, 3)
        for number in range(60):
            await nodes.agree(f"s{number}")
        await nodes.start(4)
        await nodes.alike()
        names = [event for _, event, _ in world.machine(host_of(4)).events]
        assert "metadata_snapshot_installed" in names

    world.run(scenario())


def test_a_dead_member_that_only_reads_is_forgotten_and_known_again_when_it_is_back(
    world: World,
) -> None:
    nodes = Nodes(world, voters=3, observers=1)

    async def scenario() -> None:
        await nodes.start()
        leader = await nodes.leader()
        await asyncio.sleep(1)
        nodes.kill(4)
        await asyncio.sleep(15)
        assert list(nodes.quorums[leader].view().observers) == []
        nodes.restart(4)
        await nodes.start(4)
        await nodes.agree("after")
        await nodes.alike()
        assert list(nodes.quorums[leader].view().observers) == [4]

    world.run(scenario())


def test_one_voter_with_members_that_only_read_sends_heartbeats_to_them(world: World) -> None:
    nodes = Nodes(world, voters=1, observers=2)

    async def scenario() -> None:
        await nodes.start()
        await nodes.agree("first")
        await nodes.alike()
        await asyncio.sleep(5)
        assert {nodes.quorums[each].leader_id for each in nodes.ids} == {1}

    world.run(scenario())


# --- voters come and go ---------------------------------------------------------------------------


def test_a_voter_is_added_and_counts_from_then_on(world: World) -> None:
    nodes = Nodes(world, voters=3, observers=2)

    async def scenario() -> None:
        await nodes.start()
        await change(nodes, add=(4, nodes.peers[4]))
        await change(nodes, add=(5, nodes.peers[5]))
        await nodes.alike()
        await asyncio.sleep(0.5)
        assert all(sorted(quorum.voters) == [1, 2, 3, 4, 5] for quorum in nodes.quorums.values())
        leader = await nodes.leader()
        for each in [each for each in (1, 2, 3) if each != leader][:2]:
            nodes.kill(each)
        await nodes.propose(leader, "three of five")
        nodes.kill(leader)
        await asyncio.sleep(5)
        assert nodes.leaders() == []

    world.run(scenario())


def test_a_voter_is_replaced_and_all_of_it_is_remembered_in_snapshots(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SNAPSHOT_ENTRIES", 15)
    nodes = Nodes(world, voters=3, observers=1)

    async def scenario() -> None:
        await nodes.start()
        leader = await nodes.leader()
        old = next(each for each in (1, 2, 3) if each != leader)
        await change(nodes, add=(4, nodes.peers[4]))
        await change(nodes, remove=old)
        nodes.kill(old)
        for number in range(60):
            await nodes.agree(f"s{number}")
        await nodes.alike()
        alive = nodes.up()
        for each in alive:
            nodes.restart(each)
        await nodes.start(*alive)
        await nodes.agree("after")
        wanted = sorted({1, 2, 3, 4} - {old})
        assert all(sorted(nodes.quorums[each].voters) == wanted for each in wanted)
        # One that comes back with the old set in its configuration and its log deposes nobody, and learns.
        term = nodes.quorums[await nodes.leader(among=wanted)].term
        nodes.restart(old)
        await nodes.start(old)
        await nodes.alike()
        assert sorted(nodes.quorums[old].voters) == wanted
        assert nodes.quorums[await nodes.leader()].term == term

    world.run(scenario())


def test_a_former_voter_with_an_empty_disk_learns_that_it_votes_no_more(world: World) -> None:
    """Its configuration still says that it votes: it asked for votes for ever, and nobody sent it the log."""
    nodes = Nodes(world, voters=3)

    async def scenario() -> None:
        await nodes.start()
        leader = await nodes.leader()
        old = next(each for each in (1, 2, 3) if each != leader)
        await nodes.agree("first")
        await change(nodes, remove=old)
        for away_s in (0.1, 15):  # the leader still knows it, and has forgotten it
            nodes.kill(old)
            await asyncio.sleep(away_s)
            world.restart(host_of(old)).disk.remove_tree("/data/quorum")
            await nodes.start(old)
            await nodes.alike()
            assert sorted(nodes.quorums[old].voters) == sorted({1, 2, 3} - {old})

    world.run(scenario())


def test_a_member_that_knows_none_but_former_voters_finds_the_leader_through_them(
    world: World,
) -> None:
    """Its log is empty and its configuration old: whom it asks sends it on."""
    nodes = Nodes(world, voters=2, observers=2)

    async def scenario() -> None:
        await nodes.start(1, 2, 3)
        await nodes.agree("first")
        await change(nodes, add=(3, nodes.peers[3]))
        await nodes.alike()
        for former in (1, 2):
            await change(nodes, remove=former)
            await asyncio.sleep(1)
        assert await nodes.leader() == 3
        await nodes.start(4)
        await nodes.alike()
        assert sorted(nodes.quorums[4].voters) == [3]

    world.run(scenario())


def test_a_leader_that_removes_itself_goes_when_the_others_have_agreed(world: World) -> None:
    nodes = Nodes(world, voters=3)

    async def scenario() -> None:
        await nodes.start()
        await nodes.agree("first")
        await nodes.alike()
        old = await nodes.leader()
        start = world.loop.time()
        await change(nodes, remove=old)
        others = [each for each in nodes.ids if each != old]
        await nodes.leader(among=others)
        assert world.loop.time() - start < 0.5
        await nodes.agree("after")
        await nodes.alike()
        assert nodes.settings(old)["after"] == "1"
        events = world.machine(host_of(old)).events
        causes = [fields["cause"] for _, event, fields in events if event == "quorum_lead_lost"]
        assert causes == ["it was removed from the voters"]

    world.run(scenario())


def test_a_voter_that_does_not_follow_yet_is_not_added(world: World) -> None:
    nodes = Nodes(world, voters=3, observers=1)

    async def scenario() -> None:
        await nodes.start(1, 2, 3)
        with pytest.raises(Trouble, match="Node 4 does not follow") as trouble:
            await change(nodes, add=(4, nodes.peers[4]))
        assert trouble.value.outcome is Outcome.REFUSED
        with pytest.raises(Trouble, match="Node 9 is no voter"):
            await change(nodes, remove=9)
        with pytest.raises(Trouble, match="Node 2 is a voter already"):
            await change(nodes, add=(2, nodes.peers[2]))

    world.run(scenario())


def test_a_change_waits_for_the_one_before(world: World) -> None:
    nodes = Nodes(world, voters=3, observers=2)

    async def scenario() -> None:
        await nodes.start()
        await nodes.leader()
        await asyncio.sleep(0.5)
        both = await asyncio.gather(
            change(nodes, add=(4, nodes.peers[4])),
            change(nodes, add=(5, nodes.peers[5])),
            return_exceptions=True,
        )
        assert [type(each) for each in both] == [type(None), VoterChangeRefused]

    world.run(scenario())


def test_a_change_that_nobody_waits_for_any_more_still_holds_up_the_next(world: World) -> None:
    """Two sets that differ in two voters may have majorities with nobody in common."""
    nodes = Nodes(world, voters=3)

    async def scenario() -> None:
        await nodes.start()
        leader = await nodes.leader()
        await nodes.agree("first")
        first, second = [each for each in nodes.ids if each != leader]
        world.net.isolate(host_of(leader))
        quorum = nodes.quorums[leader]
        removing = world.on(nodes.env(leader), quorum.change_voters(remove=first))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(removing, 0.1)
        with pytest.raises(Trouble, match="not committed") as trouble:
            await world.on(nodes.env(leader), quorum.change_voters(remove=second))
        assert trouble.value.outcome is Outcome.REFUSED
        world.net.heal_all()
        await nodes.agree("after")
        await nodes.alike()

    world.run(scenario())


def test_a_voter_that_is_needed_is_not_removed(world: World) -> None:
    """Of three voters one is dead: without another one nobody could agree on anything, the change itself included."""
    nodes = Nodes(world, voters=3)

    async def scenario() -> None:
        await nodes.start()
        leader = await nodes.leader()
        await nodes.agree("first")
        dead, needed = [each for each in nodes.ids if each != leader]
        nodes.kill(dead)
        await asyncio.sleep(2)
        for each in (needed, leader):
            with pytest.raises(VoterChangeRefused, match=f"node {dead} does not answer") as refused:
                await change(nodes, remove=each)
            assert refused.value.error_code is ErrorCode.invalid_request
        await change(nodes, remove=dead)
        await nodes.agree("after")
        assert set(nodes.quorums[leader].view().voters) == {leader, needed}

    world.run(scenario())


def test_nor_right_after_the_dead_one_has_led(world: World) -> None:
    """A new leader has heard nobody yet: it believed for a second that all live."""
    nodes = Nodes(world, voters=3)

    async def scenario() -> None:
        await nodes.start()
        await nodes.agree("first")
        dead = await nodes.leader()
        nodes.kill(dead)
        leader = await nodes.leader()
        needed = next(each for each in nodes.ids if each not in (dead, leader))
        with pytest.raises(VoterChangeRefused, match=f"node {dead} does not answer"):
            await change(nodes, remove=needed)
        await change(nodes, remove=dead)
        assert set(nodes.quorums[leader].view().voters) == {leader, needed}

    world.run(scenario())


def test_a_change_that_is_not_in_the_log_yet_holds_up_the_next(world: World) -> None:
    """The leader's disk is slow, and whoever asked has gone: both sets were made of the same one."""
    nodes = Nodes(world, voters=4)

    async def scenario() -> None:
        await nodes.start()
        leader = await nodes.leader()
        await nodes.agree("first")
        await nodes.alike()
        first, second, third = [each for each in nodes.ids if each != leader]
        quorum = nodes.quorums[leader]
        world.disk(host_of(leader)).faults.sync_s = (0.7, 0.7)

        async def ask() -> None:
            slow = asyncio.ensure_future(quorum.propose(setting("slow")))
            await asyncio.sleep(0.05)  # its journal is being synced
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(quorum.change_voters(remove=first), 0.1)
            with pytest.raises(VoterChangeRefused):
                await quorum.change_voters(remove=second)
            await slow

        await world.on(nodes.env(leader), ask())
        await nodes.agree("after")
        assert set(quorum.view().voters) == {leader, second, third}

    world.run(scenario())


def test_one_voter_becomes_three(world: World) -> None:
    nodes = Nodes(world, voters=1, observers=2)

    async def scenario() -> None:
        await nodes.start()
        await nodes.agree("alone")
        await nodes.alike()
        await change(nodes, add=(2, nodes.peers[2]))
        await change(nodes, add=(3, nodes.peers[3]))
        nodes.kill(1)
        await nodes.agree("without the first")
        await nodes.alike()

    world.run(scenario())
