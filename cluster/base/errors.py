"""Errors come in three kinds, never mixed.

A *refusal* is a value (`ErrorCode` in a reply). *Trouble outside* (peer, disk, deadline) is an exception
that says whether the thing may have happened. A *broken invariant* is a bare `assert`, and ends the process.
"""

import enum
import errno
from typing import Final

from kio.schema.errors import ErrorCode

__all__ = [
    "DISK_FULL_ERRNOS",
    "NO_DESCRIPTOR_ERRNOS",
    "NO_ROOM_ERRNOS",
    "ConfigRefused",
    "ConnectionLost",
    "ConnectionRefused",
    "DiskFull",
    "ErrorCode",
]
__all__ += ["FrameRefused"]
__all__ += ["LogDamaged", "Outcome", "Trouble"]

# What a disk without room says: none is left, the user's share is, or the file may not grow (`ulimit -f`).
DISK_FULL_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# Nothing can be opened; of what is open these say nothing.
NO_DESCRIPTOR_ERRNOS: Final = frozenset({errno.EMFILE, errno.ENFILE})
# Nothing was written and nothing has failed: it may be tried again when there is room, or a file can be opened.
NO_ROOM_ERRNOS: Final = DISK_FULL_ERRNOS | NO_DESCRIPTOR_ERRNOS
# What a disk, a mount or a limit says that failed. Others, as a bad descriptor, are a mistake of this program.
MACHINE_ERRNOS: Final = (
    NO_ROOM_ERRNOS
    | {errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.EREMOTEIO}
    | {errno.EACCES, errno.EPERM, errno.ENOMEM, errno.ENOTCONN}
)


class Outcome(enum.Enum):
    """What is known of an operation that did not succeed (Jepsen's fail and info)."""

    REFUSED = "refused"  # it did not happen and will not
    UNKNOWN = "unknown"  # it may have happened, or happen yet


class Trouble(Exception):
    """Something outside this process failed; `outcome` says whether the operation may have happened."""

    def __init__(self, message: str, outcome: Outcome = Outcome.UNKNOWN) -> None:
        super().__init__(message)
        self.outcome = outcome


class ConnectionLost(Trouble):
    """The peer closed, reset or cut the connection."""


class ConnectionRefused(ConnectionLost):
    """The machine is there and says that nobody listens at that port: a process that did is dead."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Outcome.REFUSED)


class FrameRefused(Trouble):
    """A peer sent a frame that is over the limit or not a frame; the connection is closed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Outcome.REFUSED)


class DiskFull(Trouble):
    """There was no room to write it. It goes on by itself when there is."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Outcome.REFUSED)


class LogDamaged(Trouble):
    """A file is damaged where nothing may be damaged; names the file, the position and what a person can do."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Outcome.REFUSED)


class ConfigRefused(Exception):
    """A setting is unknown or impossible; names it, its value and what is allowed."""
