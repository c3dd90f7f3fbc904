"""On a full disk a person removes what is named `…-delete`, before the node has done so."""

from fencepost.chaos.sim.world import World
from fencepost.replication.log.removal import UNFORGOTTEN
from log_helpers import FOLDER, PARTITION, TOPIC_ID, Node, produce, run
from test_logs_on_a_full_disk import fill, fill_disk


async def deleted_on_a_full_disk(world: World) -> tuple[Node, str]:
    node = Node(world)
    await fill(node)
    fill_disk(world)
    node.store.delete([node.log])
    (grave,) = [name for name in node.env.disk.list(FOLDER) if name.endswith(UNFORGOTTEN)]
    return node, f"{FOLDER}/{grave}"


def test_checkpoints_go_on_where_a_person_has_made_the_room() -> None:
    async def scenario(world: World) -> None:
        node, grave = await deleted_on_a_full_disk(world)
        node.env.disk.remove_tree(grave)
        for _ in range(2):
            await node.store.checkpoint()
        assert not [name for name in node.env.disk.list(FOLDER) if name.endswith("-delete")]

    run(scenario)


def test_a_topic_that_is_made_again_where_a_person_has_made_the_room_is_written() -> None:
    async def scenario(world: World) -> None:
        node, grave = await deleted_on_a_full_disk(world)
        node.env.disk.remove_tree(grave)
        node.log = node.store.open(PARTITION, TOPIC_ID, node.config)
        produce(node.log, 3)
        await node.settle()
        found = await node.restart("crash")
        assert (found.log_start_offset, found.log_end_offset) == (0, 3)

    run(scenario)
