"""What a library says by Python's `logging`, said as an event: nothing else stands on standard error."""

import logging
from typing import Final

from .ports import Log

SAID_CHARS_MAX: Final = 1_000  # it may hand on what a stranger has answered


class _Told(logging.Handler):
    """May be called on a library's own thread; a line is one write."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.warn(
            "library_warns", library=record.name, cause=record.getMessage()[:SAID_CHARS_MAX]
        )


def take_over(library: str, log: Log) -> None:
    logger = logging.getLogger(library)
    logger.handlers = [_Told(log)]
    logger.propagate = False
