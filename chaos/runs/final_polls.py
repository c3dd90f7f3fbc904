"""The pass after all faults: a process of its own, so that a client that hangs holds nothing up."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..checkers.consumed import GROUPS
from ..checkers.final_positions import ASKED_MAX
from ..checkers.history import FINAL
from ..checkers.txn_history import Txn
from ..harness.processes import Process
from ..workloads.queue_final import ALL_READ, MISSED
from ..workloads.txn_positions import COMMITTED_S
from .clients import Known
from .notes import Notes

MODULE: Final = "fencepost.chaos.workloads.queue_final"
CUT: Final = "cut-short"  # the process of final polls that did not come to their end
GROUPS_MAX: Final = ASKED_MAX  # each life that assigns has one of its own
SLACK_S: Final = 20.0
SAID_CHARACTERS: Final = 1_500
LOOK_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Polls:
    """What the pass has found. `whole`: everything known of was reached; else `why` says what was not.

    `missed`: nothing but the brokers kept it from finding all. Operations of `final` have read all; of a pass that did not
    come so far they are those of CUT, and prove nothing by what they lack.
    """

    operations: list[Txn]
    whole: bool
    why: str = ""
    missed: bool = False


def final_polls(
    folder: Path,
    known: Known,
    bootstrap: str,
    *,
    began_s: float,
    seconds: float,
    all_up: bool,
    stopping: Callable[[], bool],
    module: str = "",
    words: Sequence[str] = (),
) -> Polls:
    """`all_up`: nobody is away who could be to blame when something is not found. `words` are another `module`'s."""
    groups = {name: sorted(known.groups[name]) for name in asked_groups(known)}
    wanted = folder / "wanted.json"
    wanted.write_text(json.dumps({"keys": known.keys, "groups": groups}))
    file = folder / "clients" / f"{'final-hosted' if words else 'final'}.jsonl"
    command = [
        sys.executable,
        "-m",
        module or MODULE,
        "--bootstrap",
        bootstrap,
        "--wanted",
        str(wanted),
    ]
    command += [*words, "--notes", str(file), "--seconds", str(seconds)]
    process = Process(command, log=file.with_suffix(".log"))
    process.start()
    deadline = time.monotonic() + seconds + len(groups) * COMMITTED_S + SLACK_S
    try:
        while process.alive and time.monotonic() < deadline and not stopping():
            time.sleep(LOOK_S)
        code = process.exit_code
    finally:
        process.kill()
    found = Notes(file, began_s).left_open(time.monotonic())
    if code == 0:
        return Polls(found, whole=True)
    whole_said = process.said()
    said = whole_said[-SAID_CHARACTERS:].strip()
    if code == MISSED and all_up:
        why = f"all nodes served, and in {seconds:g} s the final polls found not all: {said}"
        return Polls(found, whole=False, why=why, missed=True)
    ended = "were stopped" if stopping() else f"ended with {code}"
    if ALL_READ in whole_said.splitlines():
        why = f"the final polls {ended}, having read all, before they knew what groups have committed: {said}"
        return Polls(found, whole=False, why=why)
    # Who did not come to the end has not seen what is there.
    for op in found:
        op.process = CUT if op.process == FINAL else op.process
    return Polls(
        found, whole=False, why=f"the final polls {ended} before they were through: {said}"
    )


def asked_groups(known: Known) -> list[str]:
    """Those that several share, however early they came; of those that one life each has had, the newest."""
    shared = [name for name in known.groups if name in GROUPS]
    others = [name for name in known.groups if name not in GROUPS]
    return [*shared, *others[len(shared) - GROUPS_MAX :]]
