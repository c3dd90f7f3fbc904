"""A voter alone: what it has agreed to is there after a stop, a kill, an end of power, and from snapshots."""

import asyncio
import errno

import pytest
from fencepost.chaos.sim.world import NodeLost, World
from fencepost.cluster.metadata.codec import encode
from fencepost.cluster.metadata.machine import Applied
from fencepost.cluster.metadata.records import FeatureChanged
from fencepost.cluster.metadata.refusal import Refused
from fencepost.cluster.quorum import store
from shell_node import Node, syncs
from support.metadata_commands import created
from support.quorum_nodes import FOLDER, setting

# --- life -----------------------------------------------------------------------------------------


def test_a_voter_alone_elects_itself_at_once(world: World) -> None:
    node = Node(world)
    node.run(node.start())
    assert (node.quorum.is_leader, node.quorum.term, node.quorum.leader_id) == (True, 1, 1)
    assert node.machine.image.controller_id == 1
    assert world.loop.time() < 0.02


def test_what_was_agreed_is_there_after_a_stop_a_kill_and_an_end_of_power(world: World) -> None:
    node = Node(world)
    node.run(node.start())
    ends = [lambda: node.run(node.quorum.stop()), lambda: world.kill("a"), lambda: world.crash("a")]
    for number, end in enumerate(ends):
        node.run(node.quorum.propose(setting(f"s{number}")))
        end()
        world.restart("a")
        node.run(node.start())
        assert node.settings() == {f"s{each}": "1" for each in range(number + 1)}
        assert node.quorum.term == number + 2


def test_one_proposal_costs_one_sync(world: World) -> None:
    node = Node(world)
    node.run(node.start())
    node.run(node.quorum.propose(setting("first")))
    before = syncs(world)
    assert isinstance(node.run(node.quorum.propose(setting("second"))), Applied)
    assert syncs(world) == before + 1


def test_many_proposals_at_once_share_a_sync(world: World) -> None:
    node = Node(world)
    node.run(node.start())
    node.run(node.quorum.propose(setting("first")))
    before = syncs(world)

    async def many() -> None:
        results = await asyncio.gather(
            *(node.quorum.propose(setting(f"s{number}")) for number in range(500))
        )
        assert len({result.version for result in results}) == 500

    node.run(many())
    assert syncs(world) <= before + 2


def test_an_answer_never_comes_before_its_sync(world: World) -> None:
    """With a slow disk: at the time of the answer the entry survives an end of power."""
    world.node("a").machine.disk.faults.sync_s = (0.5, 0.5)
    node = Node(world)
    node.run(node.start())
    started = world.loop.time()
    node.run(node.quorum.propose(setting("slow")))
    assert world.loop.time() - started >= 0.5
    world.crash("a")
    world.restart("a")
    node.run(node.start())
    assert node.settings() == {"slow": "1"}


def test_a_refusal_is_an_answer_like_any_other(world: World) -> None:
    node = Node(world)
    node.run(node.start())
    stale = encode([FeatureChanged(name="f", level=2, expects_level=1)])
    assert isinstance(node.run(node.quorum.propose(stale)), Refused)
    assert isinstance(node.run(node.quorum.propose(setting("after"))), Applied)


def test_an_idle_voter_alone_does_nothing_at_all(world: World) -> None:
    node = Node(world)
    node.run(node.start())
    node.run(node.quorum.propose(setting("last")))
    ticks = []
    node.quorum._raft.doTick = ticks.append

    async def hours() -> None:
        await node.env.clock.sleep(36_000)

    before = world.trace.tail(10_000)
    node.run(hours())
    assert ticks == []
    assert world.trace.tail(10_000) == before


# --- crashes --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kill", [False, True])
def test_a_kill_at_any_disk_operation_loses_nothing_acknowledged(
    kill: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snapshots, rolls and dropped segments among them, the kill between rename and trim too."""
    monkeypatch.setattr(store, "SNAPSHOT_ENTRIES", 12)
    monkeypatch.setattr("fencepost.cluster.quorum.journal.SEGMENT_BYTES_MAX", 600)
    done = False
    for operation in range(1, 400):
        with World(seed=f"{kill}/{operation}") as world:
            node, acknowledged = Node(world), []

            async def life(node: Node = node, acknowledged: list = acknowledged) -> None:
                await node.start()
                for number in range(40):
                    await node.quorum.propose(setting(f"s{number}"))
                    acknowledged.append(f"s{number}")
                await node.quorum.stop()

            world.node("a")
            world.crash_at_disk_op("a", operation, kill=kill)
            try:
                node.run(life())
                done = True
            except NodeLost:
                pass
            world.disk("a").on_operation = None
            if world.is_up("a"):
                world.crash("a")
            world.restart("a")
            node.run(node.start())
            found = set(node.settings())
            under_way = {f"s{len(acknowledged)}"}
            assert set(acknowledged) <= found <= {*acknowledged, *under_way}, operation
            # And it goes on from there.
            assert isinstance(node.run(node.quorum.propose(setting("next"))), Applied)
        if done:
            break
    assert done and operation > 60


def test_a_kill_between_the_snapshots_rename_and_the_journals_trim_loses_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pysyncobj clears the whole journal then: 20 acknowledged entries came back as 15 (field.md §5.2.1)."""
    monkeypatch.setattr(store, "SNAPSHOT_ENTRIES", 20)
    node = Node(world)
    node.run(node.start())

    async def until_renamed() -> None:
        number = 0
        while not node.env.disk.exists(f"{FOLDER}/snapshot"):
            await node.quorum.propose(setting(f"s{number}"))
            number += 1

    node.run(until_renamed())
    acknowledged = node.settings()
    assert len(acknowledged) > 15
    world.kill("a")
    world.restart("a")
    node.run(node.start())
    assert node.settings() == acknowledged


# --- snapshots ------------------------------------------------------------------------------------


def test_a_long_log_becomes_a_snapshot_and_the_journal_stays_small(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SNAPSHOT_ENTRIES", 50)
    monkeypatch.setattr("fencepost.cluster.quorum.journal.SEGMENT_BYTES_MAX", 2000)
    node = Node(world)
    node.run(node.start())

    async def many() -> None:
        for number in range(400):
            await node.quorum.propose(setting("same", str(number)))

    node.run(many())
    assert len(node.quorum._journal) < 60
    assert len(node.env.disk.list(FOLDER)) <= 6
    version = node.machine.image.version
    node.run(node.quorum.stop())
    world.restart("a")
    node.run(node.start())
    assert (node.settings(), node.machine.image.version) == ({"same": "399"}, version)


def test_a_snapshot_that_can_not_be_written_is_tried_again_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SNAPSHOT_ENTRIES", 20)
    node = Node(world)
    node.run(node.start())
    world.disk("a").faults.fail("*", path="*/snapshot*", number=errno.ENOSPC)

    async def many() -> None:
        for number in range(40):
            await node.quorum.propose(setting(f"s{number}"))
        assert not node.env.disk.exists(f"{FOLDER}/snapshot")
        await node.env.clock.sleep(30)
        for number in range(3):
            await node.quorum.propose(setting(f"t{number}"))

    node.run(many())
    assert node.env.disk.exists(f"{FOLDER}/snapshot")
    assert len(node.quorum._journal) < 30
    said = [fields["message"] for _, event, fields in world.machine("a").events if event == "raft"]
    assert said == ["Failed to store full dump"]


def test_ten_thousand_partitions_are_back_in_well_under_a_second(world: World) -> None:
    """From the journal alone, and from a snapshot."""
    node = Node(world)
    node.run(node.start())
    node.run(node.quorum.propose(encode([created(count=10_000)])))
    world.kill("a")
    world.restart("a")
    node.run(node.start())
    assert node.machine.image.partition_count() == 10_000
