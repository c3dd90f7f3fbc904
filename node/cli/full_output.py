"""What a command prints is all there, or it says why not. Nothing heavy is imported.

INVARIANT  exit code 0 means that standard output took all of it, or that its reader had seen enough.
PREVENTS   a report cut short by a full disk that looks whole; a traceback where a sentence is due.
PROVED BY  tests/node/test_full_output.py::test_an_output_that_takes_no_more_is_one_sentence
"""

import os
import sys
from collections.abc import Callable
from typing import Final

from fencepost.cluster.base.errors import DISK_FULL_ERRNOS

FAILED: Final = 1


def written_whole(command: Callable[[], int], *, unread: int = 0, no_room: int = FAILED) -> int:
    """The command's exit code; `unread` when who reads it went away, as `| head` does; else `no_room`, and a sentence."""
    try:
        code = command()
        sys.stdout.flush()
    except BrokenPipeError:
        _write_no_more()
        return unread
    except OSError as full:
        if full.errno not in DISK_FULL_ERRNOS:
            raise
        _write_no_more()
        print(
            f"fencepost: standard output takes no more ({full.strerror}): what this command tells is not all there. Make room,"
            " or send it elsewhere; then look again, as what it was to change may be done.",
            file=sys.stderr,
        )
        return no_room
    return code


def _write_no_more() -> None:
    """What Python would flush at its end goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
