"""What a kill loop comes to, and its run folder (`--out DIR`), as `chaos/runs` has it: history, faults and leaders as they come.

Without a folder nothing is written, so that a loop has one way through.

INVARIANT  one word is said of a run, in run.json and by whoever ends it, and the exit code is that of the word.
PREVENTS   a loop that proved nothing, and whose run.json says so, ending with 0 or as INVALID.
PROVED BY  tests/chaos/test_loop_ended.py::test_the_word_the_exit_code_and_the_folder_say_the_same
"""

import argparse
import json
import shlex
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ..checkers.availability import Availability
from ..checkers.history import OPEN, Anomaly
from ..checkers.txn_history import Sent, Txn
from ..checkers.verdict import MEANWHILE, Verdict
from ..runs.folder import (
    ANOMALIES,
    EXIT_CODES,
    FAULTS,
    HISTORY,
    INVALID,
    UNKNOWN,
    VALID,
    RunFolder,
)
from ..runs.judging import BROKEN, NOTHING_SHOWN
from ..runs.plan import Plan, machine, versions
from ..runs.plan_words import ANOTHER
from ..runs.watch import Watch
from .asking import NobodyAnswers
from .growing import Growing, New
from .local_cluster import LocalCluster

TIMES: Final = ("began_s", "ended_s")
NOT_AGAIN: Final = frozenset({"data", "history", "out", "port"})  # where it went, not what it was
IS_OPEN: Final = {"f": OPEN, "type": "info", "process": "all"}


@dataclass(frozen=True, slots=True)
class Conclusion:
    verdict: str
    why: str

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    def __str__(self) -> str:
        word = self.verdict.upper()
        return word if self.verdict == VALID else f"{word}: {self.why}"


class KeptRun:
    """Times are seconds since `begin`."""

    def __init__(self, path: Path | None = None) -> None:
        self._folder = RunFolder(path) if path is not None else None
        self._summary: dict[str, Any] = {}
        self._began_s = time.monotonic()
        self._faults = 0
        self._open: dict[str, Any] | None = None
        self._told: list[dict[str, Any]] = []  # what is in faults.jsonl

    @property
    def now_s(self) -> float:
        return round(time.monotonic() - self._began_s, 3)

    def create(self, name: str, chosen: argparse.Namespace) -> None:
        """Before anything else: whoever is killed now leaves a run of which nothing is known."""
        if self._folder is None:
            return
        command = getattr(chosen, "command", None)
        self._summary = {
            "name": f"{name}-{chosen.seed}",
            "workload": name,
            "target": ANOTHER if command else "processes",
            "nodes": getattr(chosen, "nodes", 1),
            "seed": chosen.seed,
            "faults": list(getattr(chosen, "fault", None) or ["all"]),
            "command": command_of(name, chosen),
            "began": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": chosen.seconds,
            "versions": versions(Plan(), {"broker": command} if command else {}),
            "machine": machine(),
            "verdict": UNKNOWN,
            "why": "the run has not come to its end",
            "unknown": ["the harness was ended before the run was"],
            "counts": {},
            "recovery_ms": {},
        }
        self._folder.create(self._summary)

    def begin(self) -> None:
        """The load begins."""
        self._began_s = time.monotonic()

    # -- meanwhile ---------------------------------------------------------------------------------

    @contextmanager
    def fault(self, name: str) -> Iterator[None]:
        """One fault, from its first `hit` until healed."""
        before, self._open = self._open, {"fault": name, "nodes": []}
        try:
            yield
        finally:
            line, self._open = self._open, before
            if "id" in line:
                self._tell({**line, "until_s": self.now_s})

    def hit(self, *nodes: int, what: str = "") -> None:
        """Now, these nodes; or `what` is no node."""
        line = self._open
        if line is None:
            return
        line["nodes"] += [node for node in nodes if node not in line["nodes"]]
        if "id" not in line:
            self._faults += 1
            line |= {"id": str(self._faults), "at_s": self.now_s, "until_s": None}
            whom = what or f"node {', '.join(map(str, line['nodes']))}"
            line["what"] = f"{line['fault']}: {whom}"
            self._tell({**line})

    def _tell(self, line: dict[str, Any]) -> None:
        self._told.append(line)
        if self._folder is not None:
            self._folder.append(FAULTS, [line])

    @contextmanager
    def watch(
        self, cluster: LocalCluster, topics: Sequence[str], acknowledged: Callable[[], int]
    ) -> Iterator[None]:
        """Who leads and what was acknowledged, about each second."""
        if self._folder is None:
            yield
            return
        watch = Watch(
            self._folder,
            lambda: seen_of(cluster, topics),
            lambda: {"acked": acknowledged()},
            lambda: self.now_s,
        )
        watch.start()
        try:
            yield
        finally:
            watch.stop()

    @contextmanager
    def growing(self, new: New) -> Iterator[None]:
        """What `new` comes to goes into the history about each second."""
        folder = self._folder
        if folder is None:
            yield
            return
        folder.append(HISTORY, [IS_OPEN])

        def write(lines: Iterable[str]) -> None:
            folder.append(HISTORY, [shifted(json.loads(line), self._began_s) for line in lines])

        with Growing(new, write):
            yield

    # -- the end -----------------------------------------------------------------------------------

    def unknown(self, why: str) -> Conclusion:
        self._summary["unknown"] = [why]
        return self._conclude(UNKNOWN, why)

    def unforeseen(self, error: Exception) -> Conclusion:
        self._summary["trace"] = traceback.format_exc()
        return self.unknown(f"{type(error).__name__}: {error}")

    def broken(self, why: str) -> Conclusion:
        self._summary |= {"unknown": [], "broken": [why]}
        return self._conclude(INVALID, why)

    def judged(
        self,
        verdict: Verdict,
        broken: Sequence[str],
        history: Iterable[str],
        lacks: Sequence[str] = (),
    ) -> Conclusion:
        """`lacks` are sentences of what was not done, and should have been (`checkers/worked.py`)."""
        if self._folder is not None:
            self._keep(self._folder, verdict, broken, history)
        if broken or verdict.anomalies:
            rules = sorted({each.rule for each in verdict.anomalies})
            return self._conclude(INVALID, "; ".join([*broken, *rules]))
        if not verdict.proves_something:
            return self._conclude(UNKNOWN, "nothing was acknowledged, or nothing read at the end")
        if not verdict.counts[MEANWHILE]:
            return self._conclude(UNKNOWN, NOTHING_SHOWN)
        if lacks:
            return self._conclude(UNKNOWN, "; ".join(lacks))
        if not self._faults:
            return self._conclude(UNKNOWN, "no fault struck")
        return self._conclude(VALID, "no checker has found anything")

    def _keep(
        self, folder: RunFolder, verdict: Verdict, broken: Sequence[str], history: Iterable[str]
    ) -> None:
        recovery = Availability(self._told, self._summary["nodes"])
        folder.replace(HISTORY, self._seen(history, recovery))
        # As data: who judges the history again knows of it.
        self._summary |= {"unknown": [], "broken": [*broken]}
        seen = [Anomaly(BROKEN, "all", each) for each in broken]
        folder.append(ANOMALIES, map(line_of, [*verdict.anomalies, *seen]))
        self._summary["counts"] = {**verdict.counts, "faults": self._faults}
        self._summary["recovery_ms"] = recovery.recovery_ms()

    def _seen(self, history: Iterable[str], recovery: Availability) -> Iterator[dict[str, Any]]:
        for line in history:
            op = shifted(json.loads(line), self._began_s)
            recovery.see(writes_of(op))
            yield op

    def _conclude(self, verdict: str, why: str) -> Conclusion:
        if self._folder is not None:
            self._summary |= self._folder.written
            self._folder.write(self._summary | {"verdict": verdict, "why": why})
            _write_page(self._folder.path)
        return Conclusion(verdict, why)


def _write_page(folder: Path) -> None:
    from ..report.page import write_page

    try:
        print(f"page: {write_page(folder)}")
    except Exception as unforeseen:  # noqa: BLE001 - the verdict stands, and its exit code
        print(f"there is no page: {type(unforeseen).__name__}: {unforeseen}")


def command_of(name: str, chosen: argparse.Namespace) -> str:
    """All that the run was told, said again."""
    said = ["python", "-m", f"fencepost.chaos.harness.{name.replace('-', '_')}"]
    for option, value in sorted(vars(chosen).items()):
        if option in NOT_AGAIN or value in (None, []):
            continue
        for word in value if isinstance(value, list) else [value]:
            said += [
                f"--{option.replace('_', '-')}",
                f"{word:g}" if isinstance(word, float) else str(word),
            ]
    return shlex.join(said)


def shifted(op: dict[str, Any], began_s: float) -> dict[str, Any]:
    """With times since the run began; 0.0 stands for one that nobody took."""
    times = {name: round(op[name] - began_s, 6) for name in TIMES if op.get(name)}
    return op | times


def writes_of(op: dict[str, Any]) -> Txn:
    """What either kind of history tells of writes, as the one that is asked for."""
    f = op["f"]
    sends = [[op["key"], op["value"]]] if f == "send" else op.get("sends", [])
    began_s, ended_s = op.get("began_s") or 0.0, op.get("ended_s") or 0.0
    written = [Sent(key, value) for key, value, *_ in sends]
    found = Txn("txn", op["type"], str(op["process"]), sends=written, why=op.get("why") or "")
    found.began_s, found.ended_s = began_s, ended_s
    return found


def line_of(anomaly: Anomaly) -> dict[str, Any]:
    said = {"name": anomaly.rule, "key": anomaly.key, "what": anomaly.what}
    return {**said, "operations": list(anomaly.operations)}


def seen_of(cluster: LocalCluster, topics: Sequence[str]) -> dict[str, Any]:
    """Empty while nobody answers."""
    try:
        found = [each for topic in topics for each in cluster.partitions(topic)]
        controller = cluster.quorum_leader()
    except NobodyAnswers:
        return {}
    return {
        "leaders": {f"{each.topic}-{each.partition}": each.leader for each in found},
        "isr": {f"{each.topic}-{each.partition}": list(each.isr) for each in found},
        "controller": controller,
    }
