"""A voter alone in trouble: disks that are full, slow or fail, commands that nobody can read, files that are lost."""

import asyncio

import pytest
from fencepost.chaos.sim.world import NodeLost, World
from fencepost.cluster.base.errors import ConfigRefused, LogDamaged, Outcome, Trouble
from fencepost.cluster.metadata.machine import Applied, MetadataMachine
from fencepost.cluster.quorum import raft_shell, store
from fencepost.cluster.quorum.raft_shell import Quorum
from shell_node import Node
from support.quorum_nodes import FOLDER, setting


def test_a_full_disk_refuses_changes_clearly_and_goes_on_when_there_is_room(world: World) -> None:
    node = Node(world)
    node.run(node.start())
    files = world.disk("a").files
    files.capacity = files.used + 10

    async def full() -> None:
        stuck = asyncio.ensure_future(node.quorum.propose(setting("stuck")))
        await node.env.clock.sleep(1)
        assert not stuck.done()  # it may happen yet
        with pytest.raises(Trouble, match=r"can't be written: .*No space left") as refused:
            await node.quorum.propose(setting("refused"))
        assert refused.value.outcome is Outcome.REFUSED
        files.capacity = None
        assert isinstance(await stuck, Applied)
        assert isinstance(await node.quorum.propose(setting("after")), Applied)

    node.run(full())
    assert node.settings() == {"stuck": "1", "after": "1"}


def test_a_voter_alone_goes_on_leading_however_slow_its_disk_is(world: World) -> None:
    """There is nobody who could take its place: what it was asked waits."""
    node = Node(world)
    node.run(node.start())
    world.node("a").machine.disk.faults.sync_s = (3.0, 3.0)

    async def slow() -> None:
        first = asyncio.ensure_future(node.quorum.propose(setting("first")))
        await node.env.clock.sleep(2)
        second = asyncio.ensure_future(node.quorum.propose(setting("second")))
        assert isinstance(await first, Applied)
        assert isinstance(await second, Applied)

    node.run(slow())
    assert node.quorum.term == 1


def test_a_node_that_starts_on_a_full_disk_waits_for_room(world: World) -> None:
    """It can't store its vote, so it can't lead; what it knows is not touched."""
    node = Node(world)
    node.run(node.start())
    node.run(node.quorum.propose(setting("before")))
    files = world.disk("a").files
    files.capacity = files.used
    world.kill("a")
    world.restart("a")

    async def start_later() -> None:
        starting = asyncio.ensure_future(node.start())
        await node.env.clock.sleep(5)
        assert not starting.done()
        files.capacity = None
        await starting

    node.run(start_later())
    assert node.quorum.is_leader
    assert node.settings() == {"before": "1"}
    assert isinstance(node.run(node.quorum.propose(setting("after"))), Applied)


def test_a_sync_that_fails_ends_the_node() -> None:
    with World(seed=1, deaths_allowed=True) as world:
        node = Node(world)
        node.run(node.start())
        world.disk("a").faults.fail("sync", path="*.journal")
        with pytest.raises(NodeLost):
            node.run(node.quorum.propose(setting("lost")))
        ((_, reason),) = world.deaths
        assert "could not be synced" in str(reason)


def test_a_command_that_this_version_can_not_read_ends_the_node_and_says_why() -> None:
    """pysyncobj would apply it again for ever, and nothing behind it (field.md §5.2.4)."""
    import msgpack

    with World(seed=1, deaths_allowed=True) as world:
        node = Node(world)
        node.run(node.start())
        with pytest.raises(NodeLost):
            node.run(node.quorum.propose(msgpack.packb([[999, 1, []]])))
        ((_, reason),) = world.deaths
        assert "command 999 is not known to this version" in str(reason)
        world.restart("a")
        with pytest.raises(NodeLost):
            node.run(node.start())
        assert len(world.deaths) == 2


def test_a_proposal_under_way_at_a_stop_may_have_happened(world: World) -> None:
    node = Node(world)
    node.run(node.start())

    async def stops() -> None:
        asked = asyncio.ensure_future(node.quorum.propose(setting("asked")))
        await node.env.clock.sleep(0)
        await node.quorum.stop()
        with pytest.raises(Trouble) as trouble:
            await asked
        assert trouble.value.outcome is Outcome.UNKNOWN
        with pytest.raises(Trouble) as refused:
            await node.quorum.propose(setting("late"))
        assert refused.value.outcome is Outcome.REFUSED

    node.run(stops())


def test_whoever_gives_up_waiting_does_not_stop_the_others(world: World) -> None:
    node = Node(world)
    node.run(node.start())

    async def gives_up() -> None:
        given_up = asyncio.ensure_future(node.quorum.propose(setting("given up")))
        other = asyncio.ensure_future(node.quorum.propose(setting("other")))
        await node.env.clock.sleep(0)
        given_up.cancel()
        assert isinstance(await other, Applied)

    node.run(gives_up())
    assert node.settings() == {"given up": "1", "other": "1"}


def test_no_more_proposals_wait_than_have_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raft_shell, "PROPOSALS_MAX", 3)
    node = Node(world)
    node.run(node.start())

    async def flood() -> None:
        results = await asyncio.gather(
            *(node.quorum.propose(setting(f"s{number}")) for number in range(5)),
            return_exceptions=True,
        )
        refused = [result for result in results if isinstance(result, Trouble)]
        assert [each.outcome for each in refused] == [Outcome.REFUSED] * 2

    node.run(flood())


def test_a_lost_vote_a_lost_journal_and_a_lost_snapshot_each_stop_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "SNAPSHOT_ENTRIES", 10)
    monkeypatch.setattr("fencepost.cluster.quorum.journal.SEGMENT_BYTES_MAX", 300)
    for lost in ("vote", "snapshot", "journal"):
        with World(seed=1) as world:
            node = Node(world)

            async def life(node: Node = node) -> None:
                await node.start()
                for number in range(30):
                    await node.quorum.propose(setting(f"s{number}"))
                await node.quorum.stop()

            node.run(life())
            env = world.restart("a")
            for name in env.disk.list(FOLDER):
                if name.endswith(lost):
                    env.disk.remove(f"{FOLDER}/{name}")
            with pytest.raises(LogDamaged):
                node.run(node.start())


def test_more_than_one_voter_is_refused_by_name(world: World) -> None:
    with pytest.raises(ConfigRefused, match=r"controller\.quorum\.voters"):
        Quorum(world.node("a"), FOLDER, MetadataMachine(), 1, {1: ("a", 1), 2: ("b", 2)})
