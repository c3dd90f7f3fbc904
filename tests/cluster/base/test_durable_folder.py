"""What a killed process made is synced by the next one."""

import errno

import pytest
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.durable_folder import make_durable_folder
from fencepost.cluster.base.ports import Disk


@pytest.mark.parametrize("made", ["/srv", "/srv/fencepost", "/srv/fencepost/data"])
def test_a_folder_that_a_killed_process_made_outlives_the_power(made: str) -> None:
    for seed in range(10):
        with World(seed) as world:
            world.node("n1").disk.make_folders(made)
            world.kill("n1")
            disk = world.restart("n1").disk
            make_durable_folder(disk, "/srv/fencepost/data")
            disk.replace("/srv/fencepost/data/kept", b"acknowledged")
            world.crash("n1", torn=True)
            assert world.restart("n1").disk.read_all("/srv/fencepost/data/kept") == b"acknowledged"


def test_folders_above_that_are_not_ours_are_passed_over_and_a_failing_disk_is_not() -> None:
    with World(1) as world:
        disk: Disk = world.node("n1").disk
        faults = world.disk("n1").faults
        faults.fail("sync_folder", path="/srv", number=errno.EACCES)
        make_durable_folder(disk, "/srv/data")
        faults.fail("sync_folder", path="/srv", number=errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            make_durable_folder(disk, "/srv/data")
