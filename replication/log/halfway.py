"""Steps between which nobody can tell what the log is.

INVARIANT  what breaks off between them fails the log: nothing is written to it, or served from it, until it is opened anew.
PREVENTS   a log that goes on with half of its old segments and half of its new ones, because what was raised was none of the
           errors that its caller expects.
PROVED BY  tests/replication/test_given_up.py::test_a_fault_while_files_are_exchanged_takes_that_partition_offline
"""

from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .log import Log


class Halfway:
    """`harmless`: what is only raised while all is as it was."""

    __slots__ = ("_harmless", "_log")

    def __init__(self, log: "Log", harmless: tuple[type[Exception], ...] = ()) -> None:
        self._log = log
        self._harmless = harmless

    def __enter__(self) -> None:
        return

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, self._harmless):
            self._log.fail(error)
