"""Whose folder it is that a start finds: another topic's is set aside, one that was not all written is ours."""

from uuid import UUID

import pytest
from fencepost.chaos.sim.world import World
from fencepost.replication.log.store import LogStore
from log_helpers import FOLDER, LOG, PARTITION, TOPIC_ID, Node, fill, read_all, rewrite, run


def test_a_folder_of_a_topic_that_was_made_again_is_set_aside() -> None:
    async def scenario(world: World) -> None:
        node = Node(world)
        await fill(node)
        await node.stop()
        node.env = world.restart("n1")
        store = LogStore(node.env, FOLDER)
        store.start()
        log = store.open(PARTITION, UUID(int=77), node.config)
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)
        (stray,) = [name for name in node.env.disk.list(FOLDER) if name.endswith("-stray")]
        assert TOPIC_ID.hex in stray
        assert LOG in node.env.disk.list(f"{FOLDER}/{stray}")

    run(scenario)


KAFKAS = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAASNA\n"


@pytest.mark.parametrize("content", [b"", KAFKAS[:19], bytes(59), KAFKAS])
def test_a_folder_whose_topic_was_not_all_written_is_ours(content: bytes) -> None:
    """Before the first sync a power cut may take any of it; Kafka, and builds before 2026-11-21, write no checksum."""

    async def scenario(world: World) -> None:
        node = Node(world)
        data = await fill(node)
        node.down("kill")
        rewrite(node, "partition.metadata", content)
        await node.restart("kill")
        assert read_all(node.log) == data

    run(scenario)
