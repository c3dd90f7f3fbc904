"""What a command tells of runs is all there, or it says why not; and an output that takes no more ends no run.

INVARIANT  exit code 0 means that standard output took all of it; and nothing is raised while brokers run because it did not.
PREVENTS   a run that is broken off because its log's disk was full, and one that was valid and ends with the code of `invalid`.
PROVED BY  tests/chaos/test_told.py::test_a_full_output_ends_no_work_and_is_never_valid
"""

import os
import sys
from collections.abc import Callable
from typing import Any, Final, TextIO

from fencepost.cluster.base.errors import DISK_FULL_ERRNOS

EXIT_UNKNOWN: Final = 2


class _Told:
    """Standard output; from its first failure on nothing is written any more."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.failed: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._do(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._do(self._stream.flush)

    def _do(self, what: Callable[[], object]) -> None:
        try:
            what()
        except OSError as error:
            if not isinstance(error, BrokenPipeError) and error.errno not in DISK_FULL_ERRNOS:
                raise
            self.failed = error
            write_no_more(self._stream)


def told_whole(command: Callable[[], int]) -> int:
    """The command's exit code; what was not all told is unknown, if it is nothing worse."""
    stream = sys.stdout
    told = _Told(stream)
    sys.stdout = told
    try:
        code = command()
        told.flush()
    finally:
        sys.stdout = stream
    if told.failed is None:
        return code
    if not isinstance(told.failed, BrokenPipeError):
        print(
            f"fencepost chaos: standard output takes no more ({told.failed.strerror}): what was found is not all told."
            " Make room, or send it elsewhere; a run's folder has it, and `fencepost chaos check DIR` tells it again.",
            file=sys.stderr,
        )
    return code or EXIT_UNKNOWN


def write_no_more(stream: TextIO) -> None:
    """What Python would flush at its end goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
