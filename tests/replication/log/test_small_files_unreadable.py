"""A bad sector under a small file beside the logs, which the disk does not read any more."""

import pytest
from fencepost.chaos.sim.world import World
from fencepost.replication.log import damage, hints
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
