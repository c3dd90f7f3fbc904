"""The run folder of a kill loop (`--out DIR`), as `chaos/runs` has it: faults and leaders as they come, the rest at the end.

Without a folder all of it does nothing, so that a loop has one way through.
"""

import argparse
import json
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ..checkers.availability import Availability
from ..checkers.history import Anomaly
from ..checkers.txn_history import Sent, Txn
from ..checkers.verdict import Verdict
from ..runs.folder import ANOMALIES, FAULTS, FIGURES, HISTORY, INVALID, UNKNOWN, VALID, RunFolder
from ..runs.judging import BROKEN
from ..runs.plan import Plan, machine, versions
from ..runs.watch import Watch
from .asking import NobodyAnswers
from .local_cluster import LocalCluster

TIMES: Final = ("began_s", "ended_s")
NOT_AGAIN: Final = frozenset({"data", "history", "out", "port"})  # where it went, not what it was
AT_ONCE: Final = 1_000  # lines


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
        self._summary = {
            "name": f"{name}-{chosen.seed}",
            "workload": name,
            "target": "another broker" if getattr(chosen, "command", None) else "processes",
            "nodes": getattr(chosen, "nodes", 1),
            "seed": chosen.seed,
            "faults": list(getattr(chosen, "fault", None) or ["all"]),
            "command": command_of(name, chosen),
            "began": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": chosen.seconds,
            "versions": versions(Plan()),
            "machine": machine(),
            "verdict": UNKNOWN,
            "why": "the run has not come to its end",
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
        if self._folder is None or line is None:
            return
        line["nodes"] += [node for node in nodes if node not in line["nodes"]]
        if "id" not in line:
            self._faults += 1
            line |= {"id": str(self._faults), "at_s": self.now_s, "until_s": None}
            whom = what or f"node {', '.join(map(str, line['nodes']))}"
            line["what"] = f"{line['fault']}: {whom}"
            self._tell({**line})

    def _tell(self, line: dict[str, Any]) -> None:
        assert self._folder is not None, "a fault is told only into a folder"
        self._told.append(line)
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

    # -- the end -----------------------------------------------------------------------------------

    def unknown(self, why: str) -> None:
        self._summary["unknown"] = [why]
        self._conclude(UNKNOWN, why)

    def broken(self, why: str) -> None:
        self._summary["broken"] = [why]
        self._conclude(INVALID, why)

    def judged(self, verdict: Verdict, broken: Sequence[str], history: Iterable[str]) -> None:
        if self._folder is None:
            return
        recovery = Availability(self._told, self._summary["nodes"])
        self._write_history(self._folder, history, recovery)
        self._summary[FIGURES] = self._folder.written
        self._summary["broken"] = [*broken]  # as data: who judges the history again knows of it
        seen = [Anomaly(BROKEN, "all", each) for each in broken]
        self._folder.append(ANOMALIES, map(line_of, [*verdict.anomalies, *seen]))
        self._summary["counts"] = {**verdict.counts, "faults": self._faults}
        self._summary["recovery_ms"] = recovery.recovery_ms()
        if broken or verdict.anomalies:
            rules = sorted({each.rule for each in verdict.anomalies})
            self._conclude(INVALID, "; ".join([*broken, *rules]))
        elif not verdict.proves_something:
            self._conclude(UNKNOWN, "nothing was acknowledged, or nothing read at the end")
        elif not self._faults:
            self._conclude(UNKNOWN, "no fault struck")
        else:
            self._conclude(VALID, "no checker has found anything")

    def _write_history(
        self, folder: RunFolder, history: Iterable[str], recovery: Availability
    ) -> None:
        some: list[str] = []
        for line in history:
            op = shifted(json.loads(line), self._began_s)
            recovery.see(writes_of(op))
            some.append(json.dumps(op))
            if len(some) >= AT_ONCE:
                folder.append_text(HISTORY, some)
                some.clear()
        folder.append_text(HISTORY, some)

    def _conclude(self, verdict: str, why: str) -> None:
        if self._folder is None:
            return
        self._folder.write(self._summary | {"verdict": verdict, "why": why})
        from ..report.page import write_page

        print(f"page: {write_page(self._folder.path)}")


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
