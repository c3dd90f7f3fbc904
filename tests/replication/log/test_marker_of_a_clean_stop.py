"""The marker of a clean stop, where the disk is too full even to remove it: ZFS, btrfs, quotas."""

import errno

import pytest
from fencepost.chaos.sim.world import World
from log_helpers import FOLDER, Node, offsets_in, produce, read_all, run

MARKER = f"{FOLDER}/clean-shutdown"


async def stopped(world: World) -> Node:
    node = Node(world)
    await node.start()
    produce(node.log, 2)
    await node.stop()
    node.env = world.restart("n1")
    return node


def test_a_marker_that_finds_no_room_to_be_removed_is_not_believed_again() -> None:
    """1. A clean stop   2. the disk is full, and the start can't remove the marker, but goes on, as on any full disk   3. there is
    room, and batches are acknowledged   4. a kill: the next start took the marker's word for where the log ends.
    """

    async def scenario(world: World) -> None:
        node = await stopped(world)
        world.disk("n1").faults.fail("remove", path=MARKER, number=errno.ENOSPC)
        log = await node.start()
        produce(log, 2)
        await node.settle()
        log = await node.restart("kill")
        assert offsets_in(read_all(log)) == [0, 1, 2, 3]

    run(scenario)


@pytest.mark.parametrize(("kind", "path"), [("truncate", MARKER), ("sync_folder", FOLDER)])
def test_nothing_is_written_while_the_marker_of_a_clean_stop_may_be_there(
    kind: str, path: str
) -> None:
    """A node goes on with a disk that is full; not with this."""

    async def scenario(world: World) -> None:
        node = await stopped(world)
        faults = world.disk("n1").faults
        faults.fail("remove", path=MARKER, number=errno.ENOSPC)
        faults.fail(kind, path=path, number=errno.ENOSPC)
        with pytest.raises(OSError) as refused:
            await node.start()
        assert refused.value.errno == errno.EIO

    run(scenario)
