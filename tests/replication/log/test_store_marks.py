"""What a kill or an end of power leaves of the small files beside the logs: topic ids, the marker of a clean stop, snapshots."""

import errno
from uuid import UUID

import pytest
from fencepost.chaos.sim.world import World
from fencepost.replication.log import hints, snapshots
from fencepost.replication.log.checkpoint import Kind
from fencepost.replication.log.metadata_file import read_topic_id
from fencepost.replication.log.store import LogStore
from log_helpers import (
    FOLDER,
    PARTITION,
    TOPIC_ID,
    Node,
    produce,
    run,
)


@pytest.mark.parametrize("when", ["before it is written", "before the first sync"])
def test_a_folder_whose_first_process_was_killed_has_its_topic_id_all_the_same(when: str) -> None:
    """Else it is any topic's that gets the name, with the records of the one that was deleted."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        if when == "before it is written":
            path = "*partition.metadata"
            world.disk("n1").faults.fail("append", path=path, number=errno.ENOSPC)
            with pytest.raises(OSError, match="No space"):
                produce(log)
        else:
            produce(log)
        log = await node.restart("kill")
        produce(log, 2)
        await node.settle()
        log = await node.restart("crash")
        path = f"{FOLDER}/{PARTITION}/partition.metadata"
        assert read_topic_id(node.env.disk, path) == TOPIC_ID
        node.down("kill")
        node.env = world.restart("n1")
        node.store = LogStore(node.env, FOLDER)
        node.store.start()
        log = node.store.open(PARTITION, UUID(int=0x9999), node.config)
        assert log.log_end_offset == 0

    for seed in range(20):
        run(scenario, seed)


@pytest.mark.parametrize("was_synced", [False, True])
def test_records_that_an_end_of_power_leaves_without_a_topic_id_are_nobodys(
    was_synced: bool,
) -> None:
    """Nothing of them was acknowledged; and the topic of that name may be the next one. Where something was synced the id was,
    too: whoever took it away since, the records are those that were acknowledged."""

    async def scenario(world: World) -> None:
        node = Node(world)
        produce(await node.start(), 3)
        if was_synced:
            await node.settle()
        node.down("kill")
        node.env = world.restart("n1")
        node.env.disk.remove(f"{FOLDER}/{PARTITION}/partition.metadata")
        node.store = LogStore(node.env, FOLDER)
        node.store.start()
        log = node.store.open(PARTITION, UUID(int=0x9999), node.config)
        strays = [name for name in node.env.disk.list(FOLDER) if name.endswith("-stray")]
        assert (log.log_end_offset, len(strays)) == ((3, 0) if was_synced else (0, 1))

    run(scenario)


def test_a_topic_id_that_finds_no_room_keeps_no_node_from_starting() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log)
        node.down("kill")
        world.disk("n1").faults.fail("append", path="*metadata.tmp", number=errno.ENOSPC)
        log = await node.restart("kill")
        assert log.log_end_offset == 1

    run(scenario)


def test_a_log_that_was_not_opened_on_this_boot_may_be_torn_whenever_it_is() -> None:
    """Its topic was deleted while the node was down, say, or moved away, and it comes back after one more kill."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 3)
        await node.settle()
        produce(log, 5)
        node.down("crash")
        for _ in range(2):
            node.env = world.restart("n1")
            store = LogStore(node.env, FOLDER)
            store.start()
            await store.opened([])
            node.down("kill")
        node.env = world.restart("n1")
        log = await node.start()
        assert node.store.same_boot
        assert 3 <= log.log_end_offset <= 8
        await node.settle()
        await node.restart("kill")  # from here on it is one like the others
        assert node.store.offsets.get(Kind.UNOPENED, PARTITION) is None

    for seed in range(10):
        run(scenario, seed)


def test_a_marker_that_a_killed_start_removed_does_not_come_back_with_the_power() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        await node.start()
        produce(node.log, 3)
        await node.stop()
        node.env = world.restart("n1")
        world.disk("n1").faults.fail("sync_folder", path=FOLDER, times=2)  # not the start's own
        with pytest.raises(OSError, match="Input/output"):
            hints.remove(node.env.disk, FOLDER)
        world.disk("n1").faults.heal()
        await node.restart("kill")
        assert not node.store.was_clean
        produce(node.log, 2)
        await node.restart("crash")
        assert not node.store.was_clean

    for seed in range(10):
        run(scenario, seed)


def test_a_dropped_snapshot_that_a_power_cut_brought_back_tells_of_nobody() -> None:
    """After a clean stop nothing looks for it; when the log was cut and grew again it was of another history."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        for producer_id in range(4):
            produce(log, 2, producer_id=producer_id, producer_epoch=0, base_sequence=-1)
            snapshots.write(log)
            log.committed = log.log_end_offset
            await node.settle()
        assert len(log.snapshots) == snapshots.KEEP
        await node.stop()
        log = await node.restart("crash")
        assert node.store.was_clean
        log.truncate_to(1)
        produce(log, 4, producer_id=9, producer_epoch=0, base_sequence=-1)
        await node.settle()
        assert [state.producer_id for state in log.producers.states()] == [0, 9]
        log = await node.restart("kill")
        assert [state.producer_id for state in log.producers.states()] == [0, 9]

    for seed in range(20):
        run(scenario, seed)
