"""What happened in a run, one line an event, and a digest of all of it.

Two runs are the same run when their digests are equal; where they part, the lines tell. `marks` are the digests of what
happened up to each whole virtual second: two runs whose beginnings are compared need not both go to their end.
"""

import hashlib
import re
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from fencepost.cluster.base.request_scope import current_request_id

KEPT_DEFAULT: Final = 20_000
SMALL: Final = ("disk.", "net.", "raft.", "log.debug")
HASHED_AT_ONCE: Final = 256
# A second ends a hair before it is full, so that what happens on the stroke belongs to the next one.
HAIR_S: Final = 1e-6
_ADDRESS: Final = re.compile(r"0x[0-9a-f]{6,}")


class Trace:
    """Lines are `time node event name=value …`. The last `keep` are kept, the digest covers every one."""

    def __init__(self, now: Callable[[], float], keep: int = KEPT_DEFAULT) -> None:
        self._now = now
        self._digest = hashlib.blake2b(digest_size=16)
        self._unhashed: list[str] = []
        self._ended = ""
        self._second_ends = 1.0 - HAIR_S
        self.marks: list[str] = []  # at the end of each second of virtual time
        self.lines: deque[str] = deque(maxlen=keep)
        self.told: deque[str] = deque(maxlen=keep)  # without the many small ones
        self.counts: Counter[str] = Counter()
        self._is_small: dict[str, bool] = {}
        self.write_to: Callable[[str], object] | None = None  # every line, for who wants them all

    def event(self, node: str, kind: str, /, **fields: object) -> None:
        rest = ""
        for name, value in fields.items():
            rest += f" {name}={value}"
        self.add(node, kind, rest)

    def add(self, node: str, kind: str, rest: str) -> None:
        """An event whose fields are text already: ` name=value …`. What happens all the time says it so."""
        now = self._now()
        if now > self._second_ends:
            self._mark(now)
        line = f"{now:.9f} {node} {kind}{rest}"
        if "0x" in rest:
            # The address of an object says nothing and differs from run to run.
            line = _ADDRESS.sub("0x", line)
        self._unhashed.append(line)
        if len(self._unhashed) >= HASHED_AT_ONCE:
            self._hash()
        self.lines.append(line)
        if self.write_to is not None:
            self.write_to(line)
        count = self.counts[kind] = self.counts[kind] + 1
        if count == 1:
            self._is_small[kind] = kind.startswith(SMALL)
        if not self._is_small[kind]:
            self.told.append(line)

    def _hash(self) -> None:
        if self._unhashed:
            self._digest.update(("\n".join(self._unhashed) + "\n").encode())
            self._unhashed.clear()

    def _mark(self, now: float) -> None:
        digest = self.digest()
        while now > self._second_ends:
            self.marks.append(digest)
            self._second_ends = len(self.marks) + 1 - HAIR_S

    def digest(self) -> str:
        self._hash()
        return self._ended or self._digest.hexdigest()

    def end(self) -> None:
        """What comes now only tidies up: wherever a run is ended, its digest is that of what happened until then."""
        self._ended = self.digest()

    def tail(self, count: int = 50) -> str:
        return "\n".join(list(self.lines)[-count:])


def _nobody_hears(_event: str, _fields: dict[str, object]) -> None:
    return


class SimLog:
    """See `ports.Log`: events of one node, in the trace and in a list that tests look at."""

    def __init__(self, trace: Trace, node: str, events: "list[LogLine]") -> None:
        self._trace = trace
        self._node = node
        self.events = events
        self.of_requests: list[tuple[str, str]] = []  # request id and event
        self.on_event: Callable[[str, dict[str, object]], None] = _nobody_hears

    def debug(self, event: str, **fields: object) -> None:
        self._add("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._add("info", event, fields)

    def warn(self, event: str, **fields: object) -> None:
        self._add("warn", event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._add("error", event, fields)

    def _add(self, level: str, event: str, fields: dict[str, object]) -> None:
        self.events.append((level, event, fields))
        request_id = current_request_id()
        if request_id is not None:
            self.of_requests.append((request_id, event))
        self._trace.event(self._node, f"log.{level}", event=event, fields=fields)
        self.on_event(event, fields)


LogLine = tuple[str, str, dict[str, object]]

__all__ = ["HAIR_S", "KEPT_DEFAULT", "LogLine", "SimLog", "Trace"]
