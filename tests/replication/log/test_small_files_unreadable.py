"""A bad sector under a small file beside the logs, which the disk does not read any more."""

import pytest
from fencepost.chaos.sim.world import World
from fencepost.replication.log import damage, hints
from fencepost.replication.log.checkpoint import FILE_NAME
from log_helpers import FOLDER, Node, produce, read_all, run


@pytest.mark.parametrize("name", [hints.FILE_NAME, damage.FILE_NAME])
def test_what_a_clean_stop_left_and_the_disk_can_not_read_keeps_no_node_from_starting(
    name: str,
) -> None:
    """A file of which a bit has flipped is no marker, and no list; one that the disk refuses to read ended every start."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 3)
        await node.settle()
        before = read_all(log)
        await node.stop()
        file = world.node("n1").disk.open(f"{FOLDER}/{name}", create=True)
        file.close()
        node.env = world.restart("n1")
        world.disk("n1").faults.fail("read", path=f"*/{name}", times=1_000)
        log = await node.start()
        assert read_all(log) == before

    run(scenario)


@pytest.mark.parametrize("how", ["clean", "kill", "crash"])
def test_a_checkpoint_that_the_disk_can_not_read_is_as_good_as_damaged(how: str) -> None:
    """All logs are checked, as they are where a bit of it has flipped; the file is made anew."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 3)
        await node.settle()
        before = read_all(log)
        world.disk("n1").faults.fail("read", path=f"*/{FILE_NAME}", times=2)
        log = await node.restart(how)
        assert read_all(log) == before
        events = node.env.log.events  # type: ignore[attr-defined]
        assert [event for _, event, _ in events if event == "partition_offsets_damaged"]
        log = await node.restart("kill")
        assert node.store.offsets.intact and read_all(log) == before

    run(scenario)


def test_one_bad_read_of_a_checkpoint_is_read_again() -> None:
    """What it knew of deleted records nobody else knows."""

    async def scenario(world: World) -> None:
        node = Node(world)
        log = await node.start()
        produce(log, 3)
        await node.sync()
        log.delete_records_before(2)
        await node.settle()
        world.disk("n1").faults.fail("read", path=f"*/{FILE_NAME}")
        log = await node.restart("kill")
        assert node.store.offsets.intact
        assert log.log_start_offset == 2

    run(scenario)
