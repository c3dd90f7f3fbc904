"""What is wrong with a machine's disk: plans ("the next sync of *.log fails") and odds ("one read in a thousand").

Operations have Kafka-neutral names: open, append, write_at, truncate, read, sync, remove, rename, sync_folder.
"""

import errno
import fnmatch
import os
import random
from dataclasses import dataclass, field
from typing import Final

CHANGES: Final = frozenset(
    {"create", "append", "write_at", "truncate", "sync", "remove", "rename", "sync_folder"}
)
Range = tuple[float, float]


@dataclass(slots=True)
class Planned:
    """The next `times` operations of this kind on paths that match fail."""

    kind: str
    path: str
    number: int
    times: int


@dataclass(slots=True)
class DiskFaults:
    """Change any of it at any time; a new disk has no faults, only delays."""

    read_error_odds: float = 0.0
    write_error_odds: float = 0.0
    sync_error_odds: float = 0.0
    # How long a sync takes, and how often and how long it hangs.
    sync_s: Range = (0.000_2, 0.003)
    slow_sync_odds: float = 0.0
    slow_sync_s: Range = (0.5, 5.0)
    # How long `Disk.run` takes: a read that goes to the disk.
    run_s: Range = (0.000_1, 0.002)
    # How often a range that could be in the page cache is not.
    cold_odds: float = 0.0
    planned: list[Planned] = field(default_factory=list)

    def fail(self, kind: str, *, path: str = "*", number: int = errno.EIO, times: int = 1) -> None:
        """Plan: the next `times` operations of `kind` ("*" for any) on a path like `path` fail."""
        self.planned.append(Planned(kind, path, number, times))

    def planned_error(self, kind: str, path: str) -> OSError | None:
        for plan in self.planned:
            if plan.kind in (kind, "*") and fnmatch.fnmatchcase(path, plan.path):
                plan.times -= 1
                if plan.times <= 0:
                    self.planned.remove(plan)
                return OSError(plan.number, os.strerror(plan.number), path)
        return None

    def error_of(self, kind: str, path: str, rng: random.Random) -> OSError | None:
        if (error := self.planned_error(kind, path)) is not None:
            return error
        odds = self._odds(kind)
        if odds and rng.random() < odds:
            return OSError(errno.EIO, os.strerror(errno.EIO), path)
        return None

    def _odds(self, kind: str) -> float:
        if kind == "read":
            return self.read_error_odds
        if kind in ("sync", "sync_folder"):
            return self.sync_error_odds
        return self.write_error_odds

    def sync_delay(self, rng: random.Random) -> float:
        slow = self.slow_sync_odds and rng.random() < self.slow_sync_odds
        return rng.uniform(*(self.slow_sync_s if slow else self.sync_s))

    def heal(self) -> None:
        """As new, except for what is already damaged."""
        new = DiskFaults()
        for name in self.__slots__:
            setattr(self, name, getattr(new, name))
