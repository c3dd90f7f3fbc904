"""What a run has left in its folder, read as it is: cut short, damaged or hostile, it is never taken for more than it says.

INVARIANT  a file is read once, a line at a time; what cannot be read is counted and named, and ends nothing.
PREVENTS   a page that is missing, or that says less than was measured, because the harness was killed in a line.
PROVED BY  tests/chaos/test_report_page.py::test_a_line_that_was_cut_off_is_named_and_the_rest_is_told
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ..runs.plan import LOAD_OPTIONS

RUN: Final = "run.json"
HISTORY: Final = "history.jsonl"
FAULTS: Final = "faults.jsonl"
SEEN: Final = "seen.jsonl"
ANOMALIES: Final = "anomalies.jsonl"
VALID, INVALID, UNKNOWN = "valid", "invalid", "unknown"
VERDICTS: Final = (VALID, INVALID, UNKNOWN)

SEEN_BY_IT: Final = ("seen", "left_out")  # sentences of the harness, in lists

LINE_BYTES_MAX: Final = 4 << 20  # a line is held in memory whole
LOAD, CORES = "load at the beginning", "cores"  # in `machine`
BUSY: Final = 1.5  # processes that want to run, for each core
NUMBER_MAX: Final = 1e15
TEXT_MAX: Final = 2_000  # characters of any one text that is shown


class NoRun(Exception):
    """A folder that holds no run."""


@dataclass(slots=True)
class Run:
    """run.json. What it does not say is empty; what it says wrongly is in `problems`."""

    folder: Path
    name: str = ""
    workload: str = ""
    target: str = ""
    nodes: int = 0
    seed: str = ""
    faults: tuple[str, ...] = ()
    command: str = ""
    began: str = ""
    seconds: float = 0.0  # as long as it took, or was to take
    asked_s: float = 0.0  # of load, where that is said
    options: dict[str, str] = field(default_factory=dict)  # of the load (`plan.LOAD_OPTIONS`)
    unknown: tuple[str, ...] = ()  # what the harness says why no more is known
    said: tuple[str, ...] = ()  # what else it has seen
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, str] = field(default_factory=dict)
    verdict: str = UNKNOWN
    why: str = ""
    counts: dict[str, float] = field(default_factory=dict)
    history_lines: int | None = None  # that it was judged by, where that is said
    recovery_ms: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        return self.name or self.folder.name

    @property
    def load(self) -> str:
        """Of a machine that had other things to do; empty when it had not, or nobody looked."""
        try:
            load, cores = float(self.machine[LOAD]), float(self.machine[CORES])
        except (KeyError, ValueError):
            return ""
        busy = cores > 0 and load > BUSY * cores
        return f"load {load:.0f} on {cores:.0f} cores" if busy else ""

    @property
    def commit(self) -> str:
        return self.versions.get("commit", "")


def read_run(folder: Path) -> Run:
    """NoRun when there is no run.json; a damaged one is a run of which little is known."""
    file = folder / RUN
    if not file.is_file():
        raise NoRun(f"{folder} holds no run: there is no {RUN} in it")
    run = Run(folder)
    try:
        found = json.loads(file.read_text(errors="surrogateescape"))
    except (ValueError, RecursionError) as error:
        run.problems.append(f"{RUN} is damaged: {error}")
        return run
    if not isinstance(found, dict):
        run.problems.append(f"{RUN} holds no object")
        return run
    for name in ("name", "workload", "target", "command", "began", "why", "seed"):
        setattr(run, name, text_of(found.get(name)))
    run.nodes = int(number_of(found.get("nodes")) or 0)
    run.seconds = number_of(found.get("seconds")) or 0.0
    options = found.get("options")
    if isinstance(options, dict):
        run.asked_s = number_of(options.get("seconds")) or 0.0
        run.options = {name: option_of(options[name]) for name in LOAD_OPTIONS if name in options}
    figures = found.get("history")
    if isinstance(figures, dict) and (lines := number_of(figures.get("lines"))) is not None:
        run.history_lines = int(lines)
    run.faults = words_of(found.get("faults"))
    run.unknown = words_of(found.get("unknown"))
    run.said = tuple(each for name in SEEN_BY_IT for each in words_of(found.get(name)))
    run.versions = texts_of(found.get("versions"))
    run.machine = texts_of(found.get("machine"))
    run.counts = numbers_of(found.get("counts"))
    run.recovery_ms = numbers_of(found.get("recovery_ms"))
    verdict = text_of(found.get("verdict"))
    if verdict in VERDICTS:
        run.verdict = verdict
    else:
        said = f"{verdict!r}" if verdict else "none"
        run.problems.append(f"{RUN} has {said} for a verdict; there are {', '.join(VERDICTS)}")
    return run


class JsonLines:
    """The objects of a file of JSON lines, each with its number (from 1). Afterwards: what could not be read."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.there = file.is_file()
        self.lines = 0
        self.unreadable = 0
        self.first_unreadable = 0
        self.cut = False  # the last line has no end

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        if not self.there:
            return
        with self.file.open("rb") as source:
            while line := source.readline(LINE_BYTES_MAX):
                whole = line.endswith(b"\n")
                if not whole and len(line) == LINE_BYTES_MAX:
                    whole, line = _skip_line(source), b""
                self.lines += 1
                found = _object(line) if whole else None
                if found is not None:
                    yield self.lines, found
                elif not whole:
                    self.cut = True  # however sound it looks
                else:
                    self.unreadable += 1
                    self.first_unreadable = self.first_unreadable or self.lines

    @property
    def problems(self) -> list[str]:
        found = []
        if self.unreadable:
            found.append(
                f"{self.unreadable:,} of {self.lines:,} lines of {self.file.name} could not be read,"
                f" the first of them line {self.first_unreadable:,}"
            )
        if self.cut:
            found.append(
                f"the last line of {self.file.name} (line {self.lines:,}) is cut off in the middle"
            )
        return found


def _skip_line(source: Any) -> bool:
    """Whether the overlong line had an end."""
    while piece := source.readline(LINE_BYTES_MAX):
        if piece.endswith(b"\n"):
            return True
    return False


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


# -- values of any kind, as what they should be ----------------------------------------------------


def number_of(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return float(value) if -NUMBER_MAX < value < NUMBER_MAX else None


def text_of(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…"


def option_of(value: Any) -> str:
    """As it is typed: 60 for 60.0, a list with commas."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if (number := number_of(value)) is not None:
        return f"{number:.10g}"
    return text_of(",".join(words_of(value)) if isinstance(value, list) else value)


def words_of(value: Any) -> tuple[str, ...]:
    return tuple(map(text_of, value[:200])) if isinstance(value, list) else ()


def texts_of(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        return {}
    return {text_of(name): text_of(each) for name, each in list(value.items())[:200]}


def numbers_of(value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping):
        return {}
    found = {text_of(name): number_of(each) for name, each in list(value.items())[:200]}
    return {name: each for name, each in found.items() if each is not None}
