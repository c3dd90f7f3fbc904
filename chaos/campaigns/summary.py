"""One line of JSON for each campaign that was run: what the record counts seeds, hours and faults by.

INVARIANT  a line is appended whole or not at all, and says which commit ran, with which options and seeds, and what failed.
           Whether that can be done is tried before the first seed.
PREVENTS   counts in a record that somebody made by hand; a night of seeds whose counts are gone with their file.
PROVED BY  tests/sim/test_sim_summary.py::test_each_campaign_of_a_run_appends_one_line,
           tests/sim/test_sim_summary.py::test_a_summary_that_can_not_be_written_is_refused_before_the_first_seed,
           tests/sim/test_sim_summary.py::test_a_disk_that_has_no_room_left_in_the_end_costs_no_count
"""

import errno
import json
import os
import time
from collections import Counter
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from ..harness.checkout import commit
from ..sim.aimed_faults import PLAYED, SCENES
from .campaign import Outcome

FAILURE_SHOWN: Final = 500
SEEDS_MIN: Final = 20
_HOW: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT


class Summary:
    """Of one campaign: `add` each outcome, then `line`."""

    def __init__(self, campaign: str) -> None:
        self.campaign = campaign
        self._asked = ""
        self._wanted: set[str] = set()  # faults that were asked for
        self._began = datetime.now(UTC)
        self._began_s = time.monotonic()
        self._seeds: list[int] = []
        self._faults: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._digests: dict[int, str] = {}
        self._failures: list[dict[str, Any]] = []
        self._sums: Counter[str] = Counter()
        self._different = 0
        self._virtual_s = self._cpu_s = 0.0

    def add(self, outcome: Outcome) -> None:
        plan = outcome.plan
        self._asked = plan.asked
        self._wanted.update(plan.faults)
        self._seeds.append(plan.seed)
        self._digests[plan.seed] = outcome.digest
        self._faults.update(each.name for each in outcome.struck)
        self._counts.update(outcome.counts)
        self._virtual_s += outcome.virtual_s
        self._cpu_s += outcome.cpu_s
        self._sums["acknowledged"] += outcome.acknowledged
        self._sums["events"] += outcome.events
        self._sums["beginnings_run_twice"] += outcome.twice_s > 0
        self._different += bool(outcome.differs)
        if outcome.failure:
            what = outcome.failure[:FAILURE_SHOWN]
            failed = {"seed": plan.seed, "kind": outcome.kind, "what": what}
            self._failures.append({**failed, "command": plan.command, "shrunk": ""})

    def shrunk(self, seed: int, command: str) -> None:
        """The smallest plan that was found to fail as this seed did."""
        for each in self._failures:
            if each["seed"] == seed:
                each["shrunk"] = command

    @property
    def is_empty(self) -> bool:
        """In no seed was anything acknowledged: it proves nothing."""
        return not self._sums["acknowledged"]

    @property
    def never_played(self) -> list[str]:
        """Scenes that were asked for and came to no end in so many seeds: who struck found nobody to play with."""
        if len(self._seeds) < SEEDS_MIN:
            return []
        wanted = sorted(self._wanted & SCENES)
        return [name for name in wanted if not self._counts[f"{PLAYED}{name}"]]

    @property
    def traces(self) -> str:
        """The digest of all digests: the same for the same seeds of the same commit."""
        all_of_them = blake2b(digest_size=16)
        for seed, digest in sorted(self._digests.items()):
            all_of_them.update(f"{seed} {digest}\n".encode())
        return all_of_them.hexdigest()

    def line(self, *, run_twice: int, different: int, interrupted: bool) -> dict[str, Any]:
        return {
            "campaign": self.campaign,
            "commit": commit(),
            "began": self._began.isoformat(timespec="seconds"),
            "asked": self._asked,
            "seeds": spans(self._seeds),
            "runs": len(self._seeds),
            "virtual_s": round(self._virtual_s, 1),
            "cpu_s": round(self._cpu_s, 1),
            "real_s": round(time.monotonic() - self._began_s, 1),
            "acknowledged": self._sums["acknowledged"],
            "events": self._sums["events"],
            "faults": dict(sorted(self._faults.items())),
            "counts": dict(sorted(self._counts.items())),
            "beginnings_run_twice": self._sums["beginnings_run_twice"],
            "run_twice": run_twice,
            "different": different + self._different,
            "traces": self.traces,
            "failures": self._failures,
            "interrupted": interrupted,
        }


def why_not(path: Path) -> str:
    """Why no line can be appended; empty when one can. A file that is not there yet is there afterwards, and empty."""
    try:
        is_special = path.exists() and not path.is_file() and not path.is_dir()
        if is_special and os.access(path, os.W_OK):
            return ""  # who reads a pipe would take an open and a close for its end
        os.close(os.open(path, _HOW, 0o644))
    except OSError as error:
        return (
            f"--summary {path} can't be appended to: {error.strerror}; name a file in a folder that is there"
            " and that you may write in"
        )
    return ""


def append(path: Path, line: dict[str, Any]) -> None:
    """In one write, so that runs side by side can share the file. OSError when there is no room for all of it."""
    data = (json.dumps(line, ensure_ascii=False) + "\n").encode()
    handle = os.open(path, _HOW, 0o644)
    try:
        written = os.write(handle, data)
        if written < len(data):
            if os.fstat(handle).st_size == (end := os.lseek(handle, 0, os.SEEK_CUR)):
                os.ftruncate(handle, end - written)  # or the next line would be one with this
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    finally:
        os.close(handle)


def spans(seeds: list[int]) -> str:
    """`0..100,117` for 0 to 99 and 117, as `--seeds` has it."""
    found: list[list[int]] = []
    for seed in sorted(set(seeds)):
        if found and found[-1][1] == seed:
            found[-1][1] += 1
        else:
            found.append([seed, seed + 1])
    return ",".join(f"{a}..{b}" if b > a + 1 else f"{a}" for a, b in found)
