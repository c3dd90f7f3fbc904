"""A file of recovery points that gave itself up: half a frame was written, and could not be cut off again."""

import errno

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.ids import TopicPartition
from fencepost.replication.log.checkpoint import FILE_NAME, Kind, PartitionOffsets

A = TopicPartition("orders", 0)
PATH = f"/data/{FILE_NAME}"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_checkpoints_go_on_in_a_new_file_where_half_a_frame_could_not_be_cut_off(
    number: int,
) -> None:
    """Each of them met the closed file again: no recovery point, log start or deletion reached the disk for as long as the node ran."""
    with World(1) as world:

        async def scenario() -> None:
            env = world.node("n1")
            offsets = PartitionOffsets(env, PATH)
            offsets.put(Kind.RECOVERY_POINT, A, 1)
            await offsets.flush()
            faults = world.disk("n1").faults
            faults.fail("append", path=PATH, number=number)
            faults.fail("truncate", path=PATH)
            offsets.put(Kind.RECOVERY_POINT, A, 2)
            with pytest.raises(OSError):
                await offsets.flush()
            assert not faults.planned
            for point in (3, 4):  # the first one may find out
                offsets.put(Kind.RECOVERY_POINT, A, point)
                try:
                    await offsets.flush()
                except OSError:
                    assert point == 3
            assert offsets.is_durable(Kind.RECOVERY_POINT, A, 4)
            world.crash("n1")
            again = PartitionOffsets(world.restart("n1"), PATH)
            again.load()
            assert again.intact
            assert again.get(Kind.RECOVERY_POINT, A) == 4

        world.run(scenario())
