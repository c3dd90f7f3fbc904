"""What an index and the record need of a run, in a small file beside it: the history is read once.

A digest names the sizes of the files that it was made of, and of run.json, where `unknown` may turn into `invalid`, its sum;
when they have changed it is made anew.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from ..checkers.availability import NOT_SERVED
from ..runs.asked import ASKED
from .counted import counted
from .measured import Measured
from .run_folder import ANOMALIES, FAULTS, HISTORY, RUN, SEEN, UNKNOWN, VALID, read_run
from .verdict import Judgement

DIGEST: Final = "report.json"
FORM: Final = 6  # raised when what is counted changes
RECOVERIES_MIN: Final = 10  # below it a p99 is the slowest of a few, and a p50 one of them
MOST: Final = "max"


@dataclass(slots=True)
class Digest:
    name: str = ""
    workload: str = ""
    target: str = ""
    nodes: int = 0
    seed: str = ""
    faults: list[str] = field(default_factory=list)
    # How much clients were asked for (`plan.LOAD_OPTIONS`); empty where nobody has kept it.
    options: dict[str, str] = field(default_factory=dict)
    command: str = ""
    began: str = ""
    commit: str = ""
    load: str = ""  # of a machine that was busy
    versions: dict[str, str] = field(default_factory=dict)
    verdict: str = UNKNOWN
    headline: str = ""
    why: str = ""
    seconds: float = 0.0  # that were measured
    operations: dict[str, int] = field(default_factory=dict)
    acknowledged: int = 0
    a_second: float | None = None
    latency_ms: dict[str, float | None] = field(default_factory=dict)
    gaps: int = 0
    longest_gap_s: float | None = None
    recovery_ms: dict[str, float] = field(default_factory=dict)
    struck: dict[str, int] = field(default_factory=dict)
    whom: dict[str, int] = field(default_factory=dict)  # by target; empty where nobody has kept it
    # Of how many faults progress was asked while they went on; None where nobody has counted.
    asked_meanwhile: int | None = None
    anomalies: dict[str, int] = field(default_factory=dict)
    allowed: dict[str, int] = field(default_factory=dict)
    form: int = FORM
    of: dict[str, int] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The same run again is the same run, wherever its folder is."""
        return f"{self.began} {self.name} {self.target} {self.seed}"

    @property
    def faults_struck(self) -> int:
        return sum(self.struck.values())

    def recovery(self, name: str) -> float | None:
        """None where it is not known, or rests on too few: each fault that was recovered from gives one time at most."""
        times = self.faults_struck - self.recovery_ms.get(NOT_SERVED, 0)
        known = name == MOST or times >= RECOVERIES_MIN
        return self.recovery_ms.get(name) if known else None


def of(found: Measured, judgement: Judgement, signs: dict[str, int]) -> Digest:
    """`signs` are those of before it was measured: a run that is under way goes on meanwhile."""
    run = found.run
    return Digest(
        name=run.title,
        workload=run.workload,
        target=run.target,
        nodes=run.nodes,
        seed=run.seed,
        faults=list(run.faults),
        options=dict(run.options),
        command=run.command,
        began=run.began,
        commit=run.commit,
        load=run.load,
        versions=run.versions,
        verdict=judgement.verdict,
        headline=judgement.headline,
        why=run.why,
        seconds=round(found.end_s, 1),
        operations=counted(found).operations,
        acknowledged=found.acknowledged,
        a_second=found.a_second,
        latency_ms={"p50": found.latency_ms(0.5), "p99": found.latency_ms(0.99)},
        gaps=len(found.gaps),
        longest_gap_s=found.longest_gap_s,
        recovery_ms=run.recovery_ms,
        struck=dict(found.fault_counts),
        whom=dict(found.whom_counts),
        asked_meanwhile=None if (asked := run.counts.get(ASKED)) is None else int(asked),
        anomalies=dict(found.anomaly_counts),
        allowed=dict(found.allowed_counts),
        of=signs,
    )


def write(folder: Path, digest: Digest) -> None:
    (folder / DIGEST).write_text(json.dumps(asdict(digest), indent=1), encoding="utf-8")


def is_pruned(folder: Path) -> bool:
    """Its history was counted, and is gone: what was written of it then is all that there is."""
    made = last(folder)
    return made is not None and HISTORY in made.of and not (folder / HISTORY).exists()


def stands(folder: Path) -> Digest | None:
    """Of a valid run that was pruned, what was found. None when that says nothing: something is left to judge, or has gone in
    another way, or its run.json is not as it was."""
    made = last(folder) if is_pruned(folder) else None
    if made is None or made.verdict != VALID:
        return None
    return made if signs_of(folder) == {RUN: made.of.get(RUN)} else None


def read(folder: Path) -> Digest | None:
    """None when there is none, or when it is not of these files. What was pruned does not make it wrong."""
    made = last(folder)
    if made is None:
        return None
    if is_pruned(folder):
        if not made.options:  # before they were kept here
            made.options = read_run(folder).options if (folder / RUN).is_file() else {}
        return made
    same = all(made.of.get(name) == sign for name, sign in signs_of(folder).items())
    return made if made.form == FORM and same else None


def last(folder: Path) -> Digest | None:
    """Though the run may have gone on since."""
    try:
        found = json.loads((folder / DIGEST).read_text())
        return from_dict(found)
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def from_dict(found: Mapping[str, Any]) -> Digest:
    """Fields of a later form are left out."""
    known = {each.name for each in fields(Digest)}
    return Digest(**{name: value for name, value in found.items() if name in known})


def signs_of(folder: Path) -> dict[str, int]:
    files = (folder / name for name in (HISTORY, FAULTS, SEEN, ANOMALIES))
    sizes = {file.name: file.stat().st_size for file in files if file.is_file()}
    run = folder / RUN
    return sizes | ({RUN: zlib.crc32(run.read_bytes())} if run.is_file() else {})
