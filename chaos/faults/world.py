"""The page through which one node's world lies to it (world.c): its clocks, its disk, and what a power cut leaves.

INVARIANT  the steady clock that a node sees never goes back, however often its rate is changed.
PREVENTS   a fault that no machine has: CLOCK_MONOTONIC running backwards.
PROVED BY  tests/chaos/test_faults_world.py::test_the_steady_clock_never_goes_back_whatever_its_rate

A library that is preloaded before libc, compiled here, was chosen because it works for every program with a libc, Kafka's
JVM too, while it runs, and needs neither root nor FUSE; see README.md for what was tried.
"""

import contextlib
import hashlib
import mmap
import os
import shutil
import struct
import subprocess
import time
import uuid
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Final

from ..harness.processes import DidNotStart

HEADER: Final = Path(__file__).with_name("world.h")
SOURCES: Final = sorted(HEADER.parent.glob("world*.c"))
MILLION: Final = 1_000_000
PAGE: Final = 4096


class Slot(IntEnum):
    """As in world.c."""

    VERSION = 0
    WALL_OFFSET = 1  # ns
    WALL_BASE = 2
    WALL_RATE = 3  # parts of a million; 0 is as it should be
    STEADY_OFFSET = 4
    STEADY_BASE = 5
    STEADY_RATE = 6
    FULL = 7
    WRITE_ERROR = 8  # errno
    SYNC_ERROR = 9
    READ_ERROR = 10
    ONE_IN = 11  # of so many calls one fails; 0 or 1: all do
    SLOW_SYNC_US = 12
    SLOW_WRITE_US = 13
    TRACKING = 14


DISK: Final = (
    Slot.FULL,
    Slot.WRITE_ERROR,
    Slot.SYNC_ERROR,
    Slot.READ_ERROR,
    Slot.ONE_IN,
    Slot.SLOW_SYNC_US,
    Slot.SLOW_WRITE_US,
)


def compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("cc")


def library(folder: Path) -> Path:
    """All of world*.c, compiled in `folder` once. DidNotStart where it can't be."""
    texts = [source.read_bytes() for source in (HEADER, *SOURCES)]
    name = hashlib.sha256(b"".join(texts)).hexdigest()[:12]
    found = folder / f"world-{name}.so"
    if found.exists():
        return found
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = found.with_suffix(f".{os.getpid()}")
    command = [compiler() or "gcc", "-shared", "-fPIC", "-O2", "-Wall", "-o", str(unfinished)]
    done = subprocess.run(
        [*command, *map(str, SOURCES)], capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode != 0:
        raise DidNotStart(f"{command[0]} can't compile {SOURCES[0]}: {done.stderr[-2_000:]}")
    unfinished.replace(found)
    return found


class World:
    """One node's; `around` is its data. It survives the node's process, as a machine does."""

    def __init__(self, folder: Path, around: Path, compiled: Path) -> None:
        self.folder = folder
        self.around = around
        self._compiled = compiled
        self.graves = folder / "graves"
        self.journal = folder / "journal"
        self.graves.mkdir(parents=True, exist_ok=True)
        page = folder / "control"
        page.write_bytes(bytes(PAGE))
        with page.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), PAGE)
        self.new_boot_id()

    def environment(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(self._compiled),
            "CHAOS_CONTROL": str(self.folder / "control"),
            "CHAOS_FOLDER": f"{self.around}/",
            "CHAOS_JOURNAL": str(self.journal),
            "CHAOS_GRAVES": str(self.graves),
            "CHAOS_BOOT_ID": str(self.folder / "boot_id"),
        }

    def new_boot_id(self) -> None:
        """The next process finds another boot of the machine: what was not synced may be gone."""
        (self.folder / "boot_id").write_text(f"{uuid.uuid4()}\n")

    def get(self, slot: Slot) -> int:
        found: int = struct.unpack_from("<q", self._page, slot * 8)[0]
        return found

    def set(self, **told: int) -> None:
        """By names of `Slot` in small letters; all at once."""
        with self._changing():
            for name, value in told.items():
                self._put(Slot[name.upper()], value)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Who reads a clock meanwhile waits."""
        version = self.get(Slot.VERSION)
        self._put(Slot.VERSION, version + 1)
        try:
            yield
        finally:
            self._put(Slot.VERSION, version + 2)

    def _put(self, slot: Slot, value: int) -> None:
        struct.pack_into("<q", self._page, slot * 8, value)

    # -- clocks ----------------------------------------------------------------------------------

    def jump(self, seconds: float) -> None:
        """The wall clock is off by so much from now on, and runs as it should."""
        self.set(wall_offset=int(seconds * 1e9), wall_rate=0)

    def drift(self, *, wall: float = 1.0, steady: float = 1.0) -> None:
        """From now on the clocks run so many times as fast. The steady one goes on from where it is."""
        with self._changing():
            now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            gained = self.get(Slot.STEADY_OFFSET)
            if rate := self.get(Slot.STEADY_RATE):
                gained += (now - self.get(Slot.STEADY_BASE)) * (rate - MILLION) // MILLION
            self._put(Slot.WALL_BASE, time.time_ns())
            self._put(Slot.WALL_RATE, _rate(wall))
            self._put(Slot.STEADY_BASE, now)
            self._put(Slot.STEADY_OFFSET, gained + 1)  # C rounds to zero, Python down
            self._put(Slot.STEADY_RATE, _rate(steady))

    def right_clocks(self) -> None:
        self.drift()
        self.jump(0)

    # -- disk ------------------------------------------------------------------------------------

    def sound_disk(self) -> None:
        self.set(**{slot.name.lower(): 0 for slot in DISK})

    def track(self, *, on: bool) -> None:
        """Whether what is written from now on is noted, so that power can be lost."""
        self.set(tracking=int(on))

    def forget(self) -> None:
        """All that was noted; while the node is down."""
        self.journal.unlink(missing_ok=True)
        for grave in self.graves.iterdir():
            grave.unlink()

    def close(self) -> None:
        self._page.close()


def _rate(rate: float) -> int:
    return 0 if rate == 1.0 else round(rate * MILLION)
