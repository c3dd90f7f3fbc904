"""Structured events on standard error: JSON lines for machines, short lines for a person at a terminal."""

import contextlib
import json
import sys
import time
import traceback
from typing import Final, TextIO

LEVELS: Final = {"debug": 10, "info": 20, "warn": 30, "error": 40}


def reason_of(error: BaseException) -> str:
    """An exception with its traceback, for the one log line that explains a death."""
    return "".join(traceback.format_exception(error)).rstrip()


class StreamLog:
    """Writes each event as a line at once. Nothing that can go wrong here may hurt the node."""

    def __init__(
        self, stream: TextIO | None = None, *, level: str = "info", human: bool | None = None
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._level = LEVELS[level]
        self._human = self._stream.isatty() if human is None else human

    def info(self, event: str, **fields: object) -> None:
        self._line("info", event, fields)

    def warn(self, event: str, **fields: object) -> None:
        self._line("warn", event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._line("error", event, fields)

    def _line(self, level: str, event: str, fields: dict[str, object]) -> None:
        if LEVELS[level] < self._level:
            return
        render = self._for_people if self._human else self._for_machines
        # A closed or full standard error must not end a node that serves.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(render(level, event, fields) + "\n")
            self._stream.flush()

    @staticmethod
    def _for_machines(level: str, event: str, fields: dict[str, object]) -> str:
        at = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03d}Z"
        return json.dumps({"at": stamp, "level": level, "event": event, **fields}, default=str)

    @staticmethod
    def _for_people(level: str, event: str, fields: dict[str, object]) -> str:
        stamp = time.strftime("%H:%M:%S")
        rest = " ".join(f"{name}={value}" for name, value in fields.items())
        return f"{stamp} {level:5} {event} {rest}".rstrip()
