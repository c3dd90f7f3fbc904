"""Three voters on the simulated network: they elect, replicate, commit, and go on without one of them."""

import asyncio

import pytest
from fencepost.chaos.sim.quorum_links import host_of
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import Outcome, Trouble
from fencepost.cluster.quorum.transport import QuorumTransport
from support.quorum_nodes import Nodes


def test_three_voters_elect_replicate_and_answer_on_the_leader(world: World) -> None:
    nodes = Nodes(world, voters=3)

    async def scenario() -> None:
        await nodes.start()
        leader = await nodes.leader()
        assert world.loop.time() < 1.0
        for number in range(20):
            await nodes.propose(leader, f"s{number}")
        assert len(nodes.settings(leader)) == 20
        await nodes.alike()
        assert {nodes.quorums[each].leader_id for each in nodes.ids} == {leader}
        for each in nodes.ids:
            if each != leader:
                with pytest.raises(Trouble) as refused:
                    await nodes.propose(each, "no")
                assert refused.value.outcome is Outcome.REFUSED

    world.run(scenario())


def test_when_the_leaders_process_dies_another_leads_in_under_400_ms(world: World) -> None:
    nodes = Nodes(world, voters=3)

    async def scenario() -> None:
        await nodes.start()
        for _ in range(5):
            leader = await nodes.leader()
            await nodes.propose(leader, f"by {leader}")
            await nodes.alike()
            nodes.kill(leader)
            killed = world.loop.time()
            nxt = await nodes.leader()
            assert nxt != leader
            assert world.loop.time() - killed < 0.4
            nodes.restart(leader)
            await nodes.start(leader)
            await nodes.alike()

    world.run(scenario())


def test_a_node_that_is_back_hears_the_leader_at_once_and_not_with_the_next_heartbeat(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = Nodes(world, voters=3)
    said: list[tuple[int, str]] = []
    say = QuorumTransport.say

    def watched(self: QuorumTransport, node_id: int, message: dict) -> None:
        said.append((node_id, message["type"]))
        say(self, node_id, message)

    async def scenario() -> None:
        await nodes.start()
        leader = await nodes.leader()
        follower = next(each for each in nodes.ids if each != leader)
        monkeypatch.setattr(QuorumTransport, "say", watched)
        nodes.quorums[leader].on_peer_up(follower)
        assert said == [(follower, "append_entries")]

    world.run(scenario())


def test_a_leader_that_goes_silently_is_followed_by_another_within_the_election_timeout(
    world: World,
) -> None:
    """The power goes: nobody refuses a connection."""
    nodes = Nodes(world, voters=3)

    async def scenario() -> None:
        await nodes.start()
        leader = await nodes.leader()
        await nodes.agree("before")
        await nodes.alike()
        nodes.crash(leader, silent=True)
        start = world.loop.time()
        await nodes.leader()
        assert 0.3 < world.loop.time() - start < 1.3

    world.run(scenario())


def test_a_voter_back_from_a_cut_deposes_nobody(world: World) -> None:
    """Its term does not grow while it is alone; without a pre-vote it comes back with a later one than all."""
    nodes = Nodes(world, voters=3)

    async def scenario() -> None:
        await nodes.start()
        leader = await nodes.leader()
        await nodes.agree("before")
        await nodes.alike()
        away = next(each for each in nodes.ids if each != leader)
        term = nodes.quorums[leader].term
        changes: list[str] = []
        nodes.quorums[leader].on_leader_change.append(lambda: changes.append("changed"))
        for _ in range(3):
            world.net.isolate(host_of(away))
            await asyncio.sleep(10)
            assert nodes.quorums[away].term == term
            assert nodes.quorums[away].leader_id is None
            await nodes.propose(leader, "meanwhile")
            world.net.heal_all()
            await asyncio.sleep(3)
        assert (nodes.leaders(), changes) == ([leader], [])
        assert {nodes.quorums[each].term for each in nodes.ids} == {term}
        await nodes.alike()

    world.run(scenario())


def test_a_leader_that_is_cut_off_leads_no_more_and_what_it_was_asked_is_unknown(
    world: World,
) -> None:
    """For 30 s as pysyncobj comes."""
    nodes = Nodes(world, voters=3)

    async def scenario() -> None:
        await nodes.start()
        old = await nodes.leader()
        await nodes.agree("before")
        others = [each for each in nodes.ids if each != old]
        world.net.isolate(host_of(old))
        asked = asyncio.ensure_future(nodes.propose(old, "lost"))
        cut = world.loop.time()
        while nodes.quorums[old].is_leader:
            await asyncio.sleep(0.01)
        assert world.loop.time() - cut < 0.6
        new = await nodes.leader(among=others)
        assert world.loop.time() - cut < 1.6
        with pytest.raises(Trouble) as trouble:
            await asked
        assert trouble.value.outcome is Outcome.UNKNOWN
        await nodes.propose(new, "kept")
        world.net.heal_all()
        await nodes.alike()
        assert nodes.settings(old) == {"before": "1", "kept": "1"}

    world.run(scenario())


def test_a_leader_whose_process_was_stopped_does_not_lead_when_it_wakes(world: World) -> None:
    """SIGSTOP: answers to what it said before are still in its socket, and prove nothing."""
    nodes = Nodes(world, voters=3)

    async def scenario() -> None:
        await nodes.start()
        old = await nodes.leader()
        await nodes.agree("before")
        world.pause(host_of(old))
        others = [each for each in nodes.ids if each != old]
        new = await nodes.leader(among=others)
        await nodes.propose(new, "after")
        assert not nodes.quorums[old].is_leader
        led: list[bool] = []
        nodes.quorums[old].on_leader_change.append(lambda: led.append(nodes.quorums[old].is_leader))
        world.resume(host_of(old))
        await nodes.alike()
        assert True not in led and nodes.leaders() == [new]

    world.run(scenario())


def test_a_leader_that_stood_still_for_a_moment_mostly_goes_on_leading() -> None:
    """A busy machine: nobody else has been elected yet, so there is no need to."""
    kept = 0
    for seed in range(20):
        with World(seed=seed) as world:
            nodes = Nodes(world, voters=3)

            async def scenario(nodes: Nodes = nodes) -> bool:
                await nodes.start()
                leader = await nodes.leader()
                await nodes.agree("before")
                await nodes.alike()
                await asyncio.sleep(0.5)
                term = nodes.quorums[leader].term
                nodes.world.pause(host_of(leader))
                await asyncio.sleep(0.5)
                nodes.world.resume(host_of(leader))
                await asyncio.sleep(2)
                return nodes.quorums[await nodes.leader()].term == term

            kept += world.run(scenario())
    assert kept > 12, kept


def test_a_follower_that_stood_still_for_long_does_not_ask_to_lead(world: World) -> None:
    """What the leader said meanwhile lies in its socket."""
    nodes = Nodes(world, voters=3)

    async def scenario() -> None:
        await nodes.start()
        leader = await nodes.leader()
        await nodes.agree("before")
        await nodes.alike()
        await asyncio.sleep(0.5)
        follower = next(each for each in nodes.ids if each != leader)
        heard: list[int | None] = []
        quorum = nodes.quorums[follower]
        quorum.on_leader_change.append(lambda: heard.append(quorum.leader_id))
        for pause_s in (0.6, 1.5, 5):
            world.pause(host_of(follower))
            await asyncio.sleep(pause_s)
            world.resume(host_of(follower))
            await asyncio.sleep(1)
        assert heard == []

    world.run(scenario())


def test_a_leader_whose_disk_stands_still_makes_room_for_another(world: World) -> None:
    nodes = Nodes(world, voters=3)

    async def scenario() -> None:
        await nodes.start()
        old = await nodes.leader()
        await nodes.agree("before")
        world.disk(host_of(old)).faults.sync_s = (30.0, 30.0)
        asked = asyncio.ensure_future(nodes.propose(old, "slow"))
        start = world.loop.time()
        others = [each for each in nodes.ids if each != old]
        await nodes.leader(among=others)
        assert world.loop.time() - start < 3
        with pytest.raises(Trouble):
            await asked

    world.run(scenario())


def test_a_leader_with_a_full_disk_makes_room_for_another_and_follows_when_there_is_space(
    world: World,
) -> None:
    nodes = Nodes(world, voters=3)

    async def scenario() -> None:
        await nodes.start()
        old = await nodes.leader()
        await nodes.agree("before")
        files = world.disk(host_of(old)).files
        files.capacity = files.used + 10
        with pytest.raises(Trouble) as trouble:
            await nodes.propose(old, "stuck")
        assert trouble.value.outcome is Outcome.UNKNOWN
        await nodes.agree("after")
        assert nodes.leaders() != [old]
        files.capacity = None
        await nodes.alike()

    world.run(scenario())


def test_a_leader_that_stops_hands_over(world: World) -> None:
    nodes = Nodes(world, voters=3)

    async def scenario() -> None:
        await nodes.start()
        old = await nodes.leader()
        await nodes.agree("before")
        await nodes.alike()
        await asyncio.sleep(0.3)
        start = world.loop.time()
        await world.on(nodes.env(old), nodes.quorums[old].stop())
        await nodes.leader(among=[each for each in nodes.ids if each != old])
        assert world.loop.time() - start < 0.2

    world.run(scenario())


def test_all_are_back_after_all_were_killed_and_after_a_power_cut(world: World) -> None:
    nodes = Nodes(world, voters=3)

    async def scenario() -> None:
        await nodes.start()
        for number, end in enumerate((nodes.kill, nodes.crash)):
            await nodes.agree(f"s{number}")
            for each in nodes.ids:
                end(each)
            for each in nodes.ids:
                nodes.restart(each)
            await nodes.start()
            leader = await nodes.leader()
            wanted = {f"s{each}": "1" for each in range(number + 1)}
            assert nodes.settings(leader) == wanted

    world.run(scenario())


def test_two_of_three_that_lost_a_third_with_its_disk_keep_what_only_it_had(world: World) -> None:
    """A voter that comes back empty elects nobody who may lack what it has forgotten, until all are there."""
    nodes = Nodes(world, voters=3)

    async def scenario() -> None:
        await nodes.start()
        leader = await nodes.leader()
        await nodes.agree("first")
        await nodes.alike()
        await asyncio.sleep(1)
        behind, wiped = [each for each in nodes.ids if each != leader]
        nodes.kill(behind)
        await nodes.propose(leader, "on two")
        nodes.kill(leader)
        nodes.kill(wiped)
        world.restart(host_of(wiped)).disk.remove_tree("/data/quorum")
        nodes.restart(behind)
        await nodes.start(behind, wiped)
        await asyncio.sleep(20)
        assert nodes.leaders() == []
        said = [
            fields["missing"]
            for each in (behind, wiped)
            for _, event, fields in world.machine(host_of(each)).events
            if event == "quorum_waits_for_all_voters"
        ]
        assert [leader] in said
        assert list(nodes.quorums[behind].view().waits_for) == [leader]
        nodes.restart(leader)
        await nodes.start(leader)
        await nodes.leader()
        await nodes.alike()
        assert nodes.settings(wiped) == {"first": "1", "on two": "1"}
        assert not any(nodes.quorums[each].view().waits_for for each in nodes.ids)

    world.run(scenario())
