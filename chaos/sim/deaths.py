"""What may end a node: what was done to its own disk, and what its own build can't read. Nothing else may, at any time.

INVARIANT  an error ends a node only if its disk has failed with that number before.
PREVENTS   a race of a deletion with a read, a closed file or a wrong path passing for a disk that is broken, on whichever node, and
           whatever the faults of the run.
PROVED BY  tests/sim/test_deaths.py::test_an_error_that_no_disk_has_made_ends_the_run,
           tests/sim/test_deaths.py::test_what_becomes_of_a_log_is_its_disks_doing_if_that_file_has_rotted
"""

from collections.abc import Mapping

from fencepost.cluster.base.errors import LogDamaged, Trouble
from fencepost.cluster.base.exit_codes import CannotRun
from fencepost.cluster.metadata.codec import CommandUnreadable
from fencepost.cluster.metadata.snapshot import SnapshotUnreadable

from .disk import MachineDisk


def may_end_a_node(
    disk: MachineDisk, reason: BaseException, *, rotten: bool = False, older: bool = False
) -> bool:
    """`rotten`: bits of this disk have flipped, or what it had long ago was put back; `older`: the node is of a build that does
    not know all."""
    if isinstance(reason, LogDamaged):
        return rotten
    if isinstance(reason, CommandUnreadable | SnapshotUnreadable):
        return older
    if isinstance(
        reason, CannotRun
    ):  # its build is refused, or a folder of before that was put back
        return older or rotten
    if isinstance(reason, OSError):
        return reason.errno in disk.failed
    return isinstance(reason, Trouble) and bool(disk.failed)


def has_made(disk: MachineDisk, told: Mapping[str, object]) -> bool:
    """Whether an event's cause may be this disk's: it has failed, or the file that is named has rotted."""
    cause = str(told["cause"])
    return bool(disk.failed) or any(
        node.flips and path in cause for path, node in disk.files.files()
    )
