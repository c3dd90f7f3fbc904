"""What may end a simulated node, and what may not; and what the watch itself meets ends the run."""

import errno
import os
from collections.abc import Callable

import pytest
from fencepost.chaos.campaigns.campaign import run_plan
from fencepost.chaos.sim.cluster_watch import ClusterWatch
from fencepost.chaos.sim.deaths import has_made, may_end_a_node
from fencepost.chaos.sim.disk import MachineDisk
from fencepost.chaos.sim.file_node import Write
from fencepost.chaos.sim.plan import Plan
from fencepost.chaos.sim.world import World
from fencepost.cluster.base.errors import DiskFull, LogDamaged, Trouble
from fencepost.cluster.metadata.codec import CommandUnreadable
from fencepost.replication.log import rolling
from fencepost.replication.log.log import Log

EIO, GONE = OSError(errno.EIO, "x"), FileNotFoundError(errno.ENOENT, "x")
FAULTS = ("kill", "pause", "isolate")


@pytest.fixture
def disk() -> MachineDisk:
    with World(1) as world:
        world.node("n1")
        return world.disk("n1")


def test_an_error_may_end_a_node_whose_disk_has_failed_with_it(disk: MachineDisk) -> None:
    assert not may_end_a_node(disk, EIO)
    assert not may_end_a_node(disk, DiskFull("x"))
    disk.fails_with(EIO)
    assert may_end_a_node(disk, EIO)
    assert may_end_a_node(disk, Trouble("of that"))
    for other in (GONE, OSError(errno.EBADF, "closed"), TimeoutError(), AssertionError()):
        assert not may_end_a_node(disk, other)


def test_what_has_rotted_or_is_unknown_may_end_the_node_that_it_is_on(disk: MachineDisk) -> None:
    rotten, unknown = LogDamaged("x"), CommandUnreadable("x")
    disk.fails_with(EIO)
    assert not may_end_a_node(disk, rotten)
    assert may_end_a_node(disk, rotten, rotten=True)
    assert not may_end_a_node(disk, unknown)
    assert may_end_a_node(disk, unknown, older=True)


def test_what_becomes_of_a_log_is_its_disks_doing_if_that_file_has_rotted(
    disk: MachineDisk,
) -> None:
    cause = {"cause": "/data/t-0/0.log is damaged at position 3"}
    disk.files.make_folder("/data/t-0")
    for name in ("/data/t-0/0.log", "/data/t-0/1.log"):
        disk.files.create(name).change(Write(0, b"abcdef"))
    assert not has_made(disk, cause)
    disk.files.file("/data/t-0/1.log").flip(3, 1)
    assert not has_made(disk, cause), "another file has"
    disk.files.file("/data/t-0/0.log").flip(3, 1)
    assert has_made(disk, cause)
    assert not has_made(disk, {"cause": "the file is closed"})
    disk.fails_with(EIO)
    assert has_made(disk, {"cause": "the file is closed"})


@pytest.mark.parametrize("fails", ["append", "create"])
def test_a_disk_notes_what_it_has_failed_with(fails: str) -> None:
    with World(1) as world:
        disk = world.node("n1").disk
        machine = world.disk("n1")
        file = disk.open("/data/x", create=True)
        assert machine.failed == set()
        if fails == "append":
            machine.files.capacity = machine.files.used
            with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
                file.append((b"more",))
            assert machine.failed == {errno.ENOSPC}
        else:
            machine.faults.fail("create", number=errno.EMFILE)
            with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
                disk.open("/data/y", create=True)
            assert machine.failed == {errno.EMFILE}
        file.close()


def run(seed: int, campaign: str = "cluster") -> str:
    return run_plan(Plan(campaign=campaign, seed=seed, faults=FAULTS)).failure


@pytest.mark.slow
def test_an_error_that_no_disk_has_made_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others led, and at the end a person restarted it: a race of a deletion with a read would have passed."""
    right, rolls = rolling.roll, [0]

    def roll(log: Log, *others: int) -> object:
        rolls[0] += 1
        if rolls[0] % 20 == 0:
            log.fail(GONE)
            raise GONE
        return right(log, *others)

    assert run(4) == ""
    monkeypatch.setattr(rolling, "roll", roll)
    said = run(4)
    assert "log_failed" in said
    assert "its disk has never failed" in said


@pytest.mark.slow
@pytest.mark.parametrize("campaign", ["cluster", "transactions"])
def test_a_sweep_that_raises_ends_the_run(monkeypatch: pytest.MonkeyPatch, campaign: str) -> None:
    """The watch met what it did not expect, and nobody looked any more for the rest of the run."""
    right: Callable[..., None] = ClusterWatch.sweep

    def sweep(self: ClusterWatch, **how: bool) -> None:
        assert self.sweeps < 5 or how, "/data/stream-0/0.log is gone"
        right(self, **how)

    monkeypatch.setattr(ClusterWatch, "sweep", sweep)
    assert "0.log is gone" in run(1, campaign)
