"""A node that was away for so long that the log it needs is gone gets a snapshot, in pieces."""

import asyncio

import pytest
from fencepost.chaos.sim.quorum_links import host_of
from fencepost.chaos.sim.world import World
from fencepost.cluster.metadata import levels, snapshot
from fencepost.cluster.quorum import progress, store
from fencepost.cluster.quorum.raft_files import Snapshot, SnapshotFile
from fencepost.cluster.quorum.transport import QuorumTransport
from support.quorum_nodes import FOLDER, Nodes


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SNAPSHOT_ENTRIES", 15)
    monkeypatch.setattr(progress, "CHUNK_BYTES", 64)
    monkeypatch.setattr("fencepost.cluster.quorum.progress.CHUNK_BYTES", 64)
    monkeypatch.setattr("fencepost.cluster.quorum.journal.SEGMENT_BYTES_MAX", 900)


async def leave_one_behind(nodes: Nodes) -> int:
    """Its name; the others have dropped what it lacks."""
    await nodes.start()
    leader = await nodes.leader()
    await nodes.agree("first")
    await nodes.alike()
    await asyncio.sleep(1)
    behind = next(each for each in nodes.ids if each != leader)
    nodes.kill(behind)
    for number in range(60):
        await nodes.agree(f"s{number}")
    assert nodes.quorums[leader]._journal[0].idx > 20
    return behind


def test_a_node_that_is_far_behind_gets_a_snapshot_in_pieces_and_goes_on_from_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []
    say = QuorumTransport.say

    def watched(self: QuorumTransport, node_id: int, message: dict) -> None:
        if message["type"] == "snapshot":
            sizes.append(len(message["data"]))
        say(self, node_id, message)

    monkeypatch.setattr(QuorumTransport, "say", watched)
    with World(seed=1) as world:
        nodes = Nodes(world, voters=3)

        async def scenario() -> None:
            behind = await leave_one_behind(nodes)
            nodes.restart(behind)
            await nodes.start(behind)
            await nodes.alike()
            assert max(sizes) <= 64 and len([size for size in sizes if size]) > 5
            await nodes.agree("after")
            await nodes.alike()
            # And it is on its disk.
            nodes.crash(behind)
            nodes.restart(behind)
            await nodes.start(behind)
            await nodes.alike()
            assert nodes.settings(behind)["after"] == "1"

        world.run(scenario())


def test_a_follower_does_not_put_its_own_snapshot_in_the_place_of_a_newer_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its disk stood still: its own was due while the leader's was being written, and after a kill it knew no more."""
    monkeypatch.setattr(store, "SNAPSHOT_ENTRIES", 50)
    for module in ("progress", "raft_leader"):
        monkeypatch.setattr(f"fencepost.cluster.quorum.{module}.UNDER_WAY_ENTRIES_MAX", 80)
    with World(seed=1) as world:
        nodes = Nodes(world, voters=3)

        async def scenario() -> None:
            await nodes.start()
            leader = await nodes.leader()
            await nodes.agree("first")
            await nodes.alike()
            slow, away = [each for each in nodes.ids if each != leader]
            faults = world.disk(host_of(slow)).faults
            usual, faults.sync_s = faults.sync_s, (6.0, 6.0)
            for number in range(112):
                await nodes.agree(f"s{number % 20}", str(number))
            faults.sync_s = usual
            await nodes.alike()
            nodes.kill(away)
            for number in range(8):
                await nodes.agree(f"late{number}")
            await asyncio.sleep(1)
            nodes.kill(leader)
            nodes.kill(slow)
            for each in (slow, away):
                nodes.restart(each)
                await nodes.start(each)
            again = await nodes.leader(among=[slow, away])
            await asyncio.sleep(2)
            assert {f"late{number}" for number in range(8)} <= nodes.settings(again).keys()

        world.run(scenario())


def test_a_node_with_much_that_is_not_committed_writes_one_snapshot_and_not_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A snapshot makes the log no shorter than what is applied: until that grows the next one would be the same."""
    written: list[int] = []
    keep = SnapshotFile.store

    async def counted(self: SnapshotFile, taken: Snapshot) -> None:
        written.append(taken.last.idx)
        await keep(self, taken)

    monkeypatch.setattr(SnapshotFile, "store", counted)
    with World(seed=1) as world:
        nodes = Nodes(world, voters=3)

        async def scenario() -> None:
            await nodes.start()
            leader = await nodes.leader()
            for number in range(10):
                await nodes.agree(f"s{number}")
            world.net.isolate(host_of(leader))
            lost = [nodes.propose(leader, f"lost{number}") for number in range(30)]
            await asyncio.gather(*lost, return_exceptions=True)
            await asyncio.sleep(10)
            assert len(written) == len(set(written))
            world.net.heal_all()
            await nodes.alike()

        world.run(scenario())


def test_a_follower_that_is_a_little_behind_is_sent_entries_and_no_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one is that is down for a moment in which the leader cuts its log."""
    monkeypatch.setattr(store, "SNAPSHOT_ENTRIES", 100)
    with World(seed=2) as world:
        nodes = Nodes(world, voters=3)

        async def scenario() -> None:
            await nodes.start()
            leader = await nodes.leader()
            other = next(each for each in nodes.ids if each != leader)
            for number in range(320):
                if number % 100 == 93:
                    nodes.kill(other)
                if number > 1 and number % 100 == 1:
                    nodes.restart(other)
                    await nodes.start(other)
                await nodes.agree(f"s{number}")
            await nodes.alike()
            assert len(nodes.quorums[leader]._journal) < 200
            events = [event for _, event, _ in world.machine(host_of(other)).events]
            assert "metadata_snapshot_installed" not in events

        world.run(scenario())


def test_a_snapshot_in_a_form_that_nobody_here_reads_is_not_asked_for_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its leader is of a later build. It was sent, refused and asked for again as fast as the network is."""
    monkeypatch.setattr(store, "SNAPSHOT_ENTRIES", 15)
    written = progress.write_snapshot
    with World(seed=1) as world:
        nodes = Nodes(world, voters=3)

        async def scenario() -> None:
            behind = await leave_one_behind(nodes)
            monkeypatch.setattr(progress, "write_snapshot", lambda it: b"?" + written(it))
            nodes.restart(behind)
            await nodes.start(behind)
            await asyncio.sleep(15)
            events = [event for _, event, _ in world.machine(host_of(behind)).events]
            assert 2 <= events.count("quorum_snapshot_refused") <= 8

        world.run(scenario())


@pytest.mark.slow
def test_a_crash_at_any_disk_operation_of_an_install_loses_nothing() -> None:
    finished = 0
    for operation in range(1, 40):
        with World(seed=operation) as world:
            nodes = Nodes(world, voters=3)

            async def scenario(nodes: Nodes = nodes, operation: int = operation) -> int:
                behind = await leave_one_behind(nodes)
                nodes.restart(behind)
                nodes.world.crash_at_disk_op(host_of(behind), operation)
                starting = asyncio.ensure_future(nodes.start(behind))
                await asyncio.wait([starting])
                await asyncio.sleep(3)
                ended = nodes.is_up(behind)
                nodes.world.disk(host_of(behind)).on_operation = None
                nodes.restart(behind)
                await nodes.start(behind)
                await nodes.agree("after")
                await nodes.alike()
                assert len(nodes.settings(behind)) == 62
                return ended

            finished += world.run(scenario())
        if finished:
            break
    assert finished and operation > 8


def test_a_piece_that_was_changed_on_the_way_is_asked_for_again() -> None:
    with World(seed=3) as world:
        nodes = Nodes(world, voters=3)

        async def scenario() -> None:
            behind = await leave_one_behind(nodes)
            nodes.restart(behind)
            await nodes.start(behind)
            raft = nodes.quorums[behind]._raft
            handler, spoilt = raft._handlers["snapshot"], []

            def spoil(node_id: int, message: dict) -> None:
                if message["position"] == 128 and not spoilt and message["data"]:
                    spoilt.append(message["data"])
                    message["data"] = bytes(len(message["data"]))
                handler(node_id, message)

            raft._handlers["snapshot"] = spoil
            await nodes.alike()
            assert spoilt
            events = [event for _, event, _ in world.machine(host_of(behind)).events]
            assert "quorum_snapshot_refused" in events

        world.run(scenario())


def test_a_full_disk_puts_an_install_off() -> None:
    with World(seed=4) as world:
        nodes = Nodes(world, voters=3)

        async def scenario() -> None:
            behind = await leave_one_behind(nodes)
            nodes.restart(behind)
            files = world.disk(host_of(behind)).files
            files.capacity = files.used + 100
            await nodes.start(behind)
            await asyncio.sleep(5)
            assert len(nodes.settings(behind)) <= 1
            files.capacity = None
            await nodes.alike()
            assert nodes.env(behind).disk.exists(f"{FOLDER}/snapshot")

        world.run(scenario())


def test_a_snapshot_of_a_later_version_is_refused_and_what_was_there_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It took the place of the one that this build can read, ended the node, and every start of it until it was upgraded."""
    with World(seed=4) as world:
        nodes = Nodes(world, voters=3)

        def told(node_id: int) -> list[str]:
            events = world.machine(host_of(node_id)).events
            return [str(of["cause"]) for _, event, of in events if event.endswith("_unreadable")]

        async def scenario() -> None:
            await nodes.start()
            leader = await nodes.leader()
            for number in range(40):
                await nodes.agree(f"before{number}")
            await nodes.alike()
            behind = next(each for each in nodes.ids if each != leader)
            known = nodes.settings(behind)
            nodes.kill(behind)
            monkeypatch.setattr(snapshot, "_version_of", lambda _image: 9)
            for number in range(60):
                await nodes.agree(f"s{number}")
            for _ in range(2):  # started by a supervisor, or by hand to look
                nodes.restart(behind)
                before = world.disk(host_of(behind)).files.file(f"{FOLDER}/snapshot").content
                await nodes.start(behind)
                await asyncio.sleep(25)
                assert nodes.is_up(behind)
                assert nodes.settings(behind).items() <= known.items()
                after = world.disk(host_of(behind)).files.file(f"{FOLDER}/snapshot").content
                assert after == before
                nodes.kill(behind)
            assert 4 <= len(told(behind)) <= 8, "not at each of the leader's heartbeats"
            assert "has version 9; this version of Fencepost reads 1 to 3" in told(behind)[0]
            monkeypatch.setattr(levels, "reads", lambda: 9)
            nodes.restart(behind)
            await nodes.start(behind)
            await nodes.alike()
            assert len(nodes.settings(behind)) == 100

        world.run(scenario())
