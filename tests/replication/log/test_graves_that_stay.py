"""A folder of a deleted partition that the disk does not let go: the node starts, and says so."""

import pytest
from fencepost.chaos.sim.world import World
from fencepost.replication.log.checkpoint import Kind
from fencepost.replication.log.removal import UNFORGOTTEN
from log_helpers import FOLDER, PARTITION, TOPIC_ID, Node, produce, read_all, run
from test_graves_removed_by_hand import deleted_on_a_full_disk
from test_logs_on_a_full_disk import fill


def graves(node: Node) -> list[str]:
    return [name for name in node.env.disk.list(FOLDER) if name.endswith("-delete")]


def start_again(world: World, node: Node, how: str) -> None:
    node.down(how)
    node.env = world.restart("n1")


def warned(node: Node) -> list[str]:
    events = node.env.log.events  # type: ignore[attr-defined]
    return [str(fields["cause"]) for _, event, fields in events if event == "folder_not_removed"]


@pytest.mark.parametrize("how", ["kill", "crash"])
def test_a_folder_that_is_not_removed_keeps_no_node_from_its_start(how: str) -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        await fill(node)
        node.store.delete([node.log])
        start_again(world, node, how)
        world.disk("n1").faults.fail("remove", path="*-delete/*.log")
        log = await node.start()
        (said,) = warned(node)
        assert "Input/output error" in said
        assert len(graves(node)) == 1
        produce(log, 3)
        await node.settle()
        log = await node.restart(how)
        assert graves(node) == []
        assert log.log_end_offset == 3

    run(scenario)


@pytest.mark.parametrize("path", ["*-delete/*.log", "*-delete/*.metadata", "*-delete"])
def test_one_that_is_forgotten_and_not_removed_is_not_forgotten_again(path: str) -> None:
    """The partition is back by then, with other records."""

    async def scenario(world: World) -> None:
        node, _ = await deleted_on_a_full_disk(world)
        start_again(world, node, "kill")
        faults = world.disk("n1").faults
        faults.fail("remove", path=path, times=2)
        world.disk("n1").files.capacity = 1 << 30
        await node.start()
        assert warned(node)
        assert not [name for name in graves(node) if name.endswith(UNFORGOTTEN)]
        produce(node.log, 3)
        await node.settle()
        before = read_all(node.log)
        faults.planned.clear()
        log = await node.restart("crash")
        assert node.store.offsets.get(Kind.RECOVERY_POINT, PARTITION) == 3
        assert read_all(log) == before and log.topic_id == TOPIC_ID
        assert graves(node) == []

    run(scenario)


def test_a_file_of_somebodys_that_is_named_so_keeps_no_node_from_its_start() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        node.env.disk.make_folders(FOLDER)
        node.env.disk.open(f"{FOLDER}/notes-delete", create=True).close()
        produce(await node.start(), 3)
        assert warned(node)

    run(scenario)
