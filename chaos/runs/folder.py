"""The folder of one run: what it is, what clients saw, what was done to the nodes, what was found.

INVARIANT  run.json says `unknown` from the first moment on, and says more only when more is known; it is replaced whole.
           Files of lines are written line by line, each as soon as it is known. A history of which a run that came to its end
           has written down how many lines it has, and their digest, is that history or none; so is what was done to the nodes.
PREVENTS   a harness that was killed passing for one that found nothing; a measurement that is lost with it; a history whose
           last lines are lost passing for one in which there was nothing to find; and with a fault's line its question.
PROVED BY  tests/chaos/test_queue_folder.py::test_a_run_whose_harness_was_killed_is_unknown_and_keeps_its_lines,
           tests/chaos/test_queue_folder.py::test_a_history_that_lacks_whole_lines_is_cut_wherever_they_were,
           tests/chaos/test_queue_folder.py::test_of_a_run_that_has_lost_a_fault_nothing_is_said
"""

import json
import os
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

RUN: Final = "run.json"
HISTORY: Final = "history.jsonl"
FAULTS: Final = "faults.jsonl"
SEEN: Final = "seen.jsonl"
ANOMALIES: Final = "anomalies.jsonl"
# In run.json: of the history, and of what was done to the nodes, as they were written; and how a sentence names them.
FIGURES: Final[Mapping[str, tuple[str, str]]] = {
    HISTORY: ("history", "the history"),
    FAULTS: ("fault lines", "the list of faults"),
}
AT_ONCE: Final = 1 << 20  # bytes
VALID, INVALID, UNKNOWN = "valid", "invalid", "unknown"
EXIT_CODES: Final = {VALID: 0, INVALID: 1, UNKNOWN: 2}


class NoRun(Exception):
    """The folder holds no run, or may not hold a new one; the sentence says what to do."""


class Figures:
    """Of all bytes that were taken: how many lines, and a digest."""

    def __init__(self) -> None:
        self.lines = 0
        self._digest = blake2b(digest_size=16)

    def take(self, data: bytes) -> None:
        self.lines += data.count(b"\n")
        self._digest.update(data)

    def as_kept(self) -> dict[str, Any]:
        return {"lines": self.lines, "blake2b": self._digest.hexdigest()}


class RunFolder:
    """`append` may be called from several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._figures = {name: Figures() for name in FIGURES}  # of what this one was told to write

    def create(self, summary: Mapping[str, Any]) -> None:
        if self.path.exists() and any(self.path.iterdir()):
            raise NoRun(f"{self.path} is not empty: name a folder that is not there yet with --out")
        self.path.mkdir(parents=True, exist_ok=True)
        self.write(summary)
        for name in (HISTORY, FAULTS, SEEN, ANOMALIES):
            (self.path / name).touch()

    def write(self, summary: Mapping[str, Any]) -> None:
        fresh = self.path / f"{RUN}.new"
        fresh.write_text(json.dumps(summary, indent=1) + "\n")
        fresh.rename(self.path / RUN)

    def read(self) -> dict[str, Any]:
        file = self.path / RUN
        if not file.is_file():
            raise NoRun(f"{self.path} holds no run: there is no {RUN} in it")
        try:
            found = json.loads(file.read_text())
        except ValueError as damaged:
            raise NoRun(f"{file} is damaged ({damaged}): nothing can be said of this run") from None
        if not isinstance(found, dict):
            raise NoRun(f"{file} holds no object: nothing can be said of this run")
        return found

    def append(self, name: str, lines: Iterable[Mapping[str, Any]]) -> None:
        self.append_text(name, (json.dumps(line) for line in lines))

    def append_text(self, name: str, lines: Iterable[str]) -> None:
        data = "".join(f"{line}\n" for line in lines).encode()
        if not data:
            return
        with self._lock:
            if name in self._figures:
                self._figures[name].take(data)
            with (self.path / name).open("ab") as file:
                file.write(data)

    @property
    def written(self) -> dict[str, Any]:
        """For run.json, of a run whose files were written through this one alone."""
        return {FIGURES[name][0]: figures.as_kept() for name, figures in self._figures.items()}

    def lacks(self, summary: Mapping[str, Any]) -> str:
        """What is not as it was written, in a sentence; empty when all is, or where no figures are kept."""
        for name, (figures, said) in FIGURES.items():
            if figures in summary and (missing := self._missing(name, summary[figures])):
                return f"{said} is cut: {missing}"
        return ""

    def _missing(self, name: str, kept: Any) -> str:
        found, file = Figures(), self.path / name
        if file.is_file():
            with file.open("rb") as source:
                while data := source.read(AT_ONCE):
                    found.take(data)
        if found.as_kept() == kept:
            return ""
        lines = kept.get("lines") if isinstance(kept, dict) else None
        if lines != found.lines:
            return f"{found.lines} lines of {lines} are there"
        return f"they are not the {lines} lines that were written"

    def replace(self, name: str, lines: Iterable[Mapping[str, Any]]) -> None:
        """Whole, or not at all."""
        fresh = self.path / f"{name}.new"
        figures = Figures()
        with fresh.open("wb") as file:
            for line in lines:
                data = f"{json.dumps(line)}\n".encode()
                figures.take(data)
                file.write(data)
        fresh.rename(self.path / name)
        if name in self._figures:
            self._figures[name] = figures

    def lines(self, name: str) -> list[dict[str, Any]]:
        """The whole ones, of a file that is short."""
        found = []
        file = self.path / name
        text = file.read_text() if file.exists() else ""
        for line in text[: text.rfind("\n") + 1].splitlines():
            with suppress(ValueError):
                found.append(json.loads(line))
        return found

    @property
    def history(self) -> Path:
        return self.path / HISTORY


def where_by_default(name: str, seed: int, at: str) -> Path:
    """Runs that nobody has named lie beside one another."""
    return (
        Path("chaos-runs") / f"{name}-{at.replace(':', '').replace('-', '')}-{seed}-{os.getpid()}"
    )
