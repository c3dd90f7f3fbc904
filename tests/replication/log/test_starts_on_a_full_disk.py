"""A node starts on a disk that is full, and finishes the deletions that it finds when there is room."""

import pytest
from fencepost.chaos.sim.world import World
from fencepost.replication.log.removal import UNFORGOTTEN
from fencepost.replication.log.store import LogStore
from log_helpers import FOLDER, PARTITION, TOPIC_ID, Node, produce, run
from test_graves_removed_by_hand import deleted_on_a_full_disk
from test_logs_on_a_full_disk import checkpoints, fill_disk


async def started_full(world: World, how: str) -> Node:
    """What the deletion made room for was written by others before a checkpoint was; and the node is killed."""
    node, grave = await deleted_on_a_full_disk(world)
    for name in node.env.disk.list(grave):
        node.env.disk.remove(f"{grave}/{name}")
    fill_disk(world)
    getattr(world, how)("n1")
    node.env = world.restart("n1")
    node.store = LogStore(node.env, FOLDER)
    node.store.start()
    return node


def graves(node: Node) -> list[str]:
    return [name for name in node.env.disk.list(FOLDER) if name.endswith("-delete")]


@pytest.mark.parametrize("how", ["kill", "crash"])
def test_a_deletion_that_could_not_be_written_down_keeps_no_node_from_its_start(how: str) -> None:
    async def scenario(world: World) -> None:
        node = await started_full(world, how)
        assert graves(node)[0].endswith(UNFORGOTTEN)
        world.disk("n1").files.capacity = 1 << 30
        assert await checkpoints(node, 3) == 0
        assert graves(node) == []

    run(scenario)


@pytest.mark.parametrize("how", ["kill", "crash"])
def test_nothing_is_written_under_its_name_before_there_is_room_for_that(how: str) -> None:
    async def scenario(world: World) -> None:
        node = await started_full(world, how)
        node.log = node.store.open(PARTITION, TOPIC_ID, node.config)
        with pytest.raises(OSError, match="No space"):
            produce(node.log)
        assert not node.env.disk.exists(f"{FOLDER}/{PARTITION}")
        world.disk("n1").files.capacity = 1 << 30
        produce(node.log, 3)
        await node.settle()
        found = await node.restart(how)
        assert (found.log_start_offset, found.log_end_offset) == (0, 3)
        assert graves(node) == []

    run(scenario)
