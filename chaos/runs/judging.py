"""What can be said of a run, from what its folder holds: at its end, and again whenever somebody asks.

INVARIANT  `valid` is said only of a run that came to its end, whose history is whole, in which something was acknowledged and
           read again after all faults, and of which no rule was broken.
PREVENTS   a run that proves nothing counting as one that went well.
PROVED BY  tests/chaos/test_queue_judging.py::test_a_run_that_did_not_come_to_its_end_is_unknown
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from ..checkers.history import Anomaly
from ..checkers.queue_verdict import ALLOWED, Judged
from ..checkers.queue_verdict import judge as judge_history
from .folder import ANOMALIES, FAULTS, INVALID, SEEN, UNKNOWN, VALID, RunFolder

KEPT_PER_NAME: Final = 1_000
SAID_PER_NAME: Final = 3
UNAVAILABLE: Final = "unavailable"
LOAD_MAX: Final = 6.0  # above it lateness is the machine's, as far as anybody knows


def judge(folder: RunFolder, say: Callable[[str], None]) -> dict[str, Any]:
    """The summary, as it is in run.json afterwards."""
    summary = folder.read()
    if not folder.history.is_file():
        summary |= {"verdict": UNKNOWN, "why": "there is no history"}
        folder.write(summary)
        return summary
    try:
        judged = judge_history(folder.history, folder.lines(FAULTS), int(summary.get("nodes", 3)))
    except (MemoryError, OSError) as lacking:  # no room for what it writes on the way
        why = f"it could not be judged: {type(lacking).__name__} {lacking}".rstrip()
        summary |= {"verdict": UNKNOWN, "why": why}
        folder.write(summary)
        say(f"UNKNOWN: {why}")
        return summary
    anomalies = [*judged.anomalies]
    if missed := summary.get("missed"):
        anomalies.append(Anomaly("unseen", "all", str(missed)))
    folder.replace(ANOMALIES, map(_line, _kept(anomalies)))
    counts = dict(summary.get("counts", {})) | judged.counts
    names = Counter(each.rule for each in anomalies)
    counts["anomalies"] = sum(n for name, n in names.items() if name not in ALLOWED)
    summary["counts"] = counts | {f"allowed {n}": names[n] for n in names if n in ALLOWED}
    summary["recovery_ms"] = judged.recovery_ms
    summary["verdict"], summary["why"] = _said(summary, judged, names, _load(folder))
    folder.write(summary)
    _tell(summary, anomalies, say)
    return summary


def _load(folder: RunFolder) -> float:
    """The most that the machine had to do while the run went on, in processes a core."""
    return max((float(line.get("load", 0.0)) for line in folder.lines(SEEN)), default=0.0)


def _said(
    summary: dict[str, Any], judged: Judged, names: Counter[str], load: float
) -> tuple[str, str]:
    broken = {name: count for name, count in names.items() if name not in ALLOWED}
    if set(broken) == {UNAVAILABLE} and load > LOAD_MAX:
        what = f"{broken[UNAVAILABLE]:,} times a key was not served in time"
        return UNKNOWN, f"{what}, on a machine with {load:g} processes waiting for each core"
    if broken:
        found = ", ".join(f"{count:,} {name}" for name, count in sorted(broken.items()))
        return INVALID, f"found: {found}"
    reasons = [str(each) for each in summary.get("unknown", ())]
    if judged.cut:
        reasons.append(f"the history is cut short: {judged.cut}")
    if not judged.counts["ok"]:
        reasons.append("nothing was acknowledged")
    if not judged.counts["read at the end"]:
        reasons.append("nothing was read after the faults")
    if reasons:
        return UNKNOWN, "; ".join(reasons)
    counts = judged.counts
    what = f"{counts['operations']:,} operations, {counts['records']:,} records acknowledged"
    return VALID, f"{what}: nothing lost, doubled, torn or out of order"


def _kept(anomalies: Sequence[Anomaly]) -> list[Anomaly]:
    so_far: Counter[str] = Counter()
    kept = []
    for each in anomalies:
        so_far[each.rule] += 1
        if so_far[each.rule] <= KEPT_PER_NAME:
            kept.append(each)
    return kept


def _line(anomaly: Anomaly) -> dict[str, Any]:
    return {
        "name": anomaly.rule,
        "key": anomaly.key,
        "what": anomaly.what,
        "operations": list(anomaly.operations),
        "allowed": anomaly.rule in ALLOWED,
    }


def _tell(
    summary: dict[str, Any], anomalies: Sequence[Anomaly], say: Callable[[str], None]
) -> None:
    shown: Counter[str] = Counter()
    for each in anomalies:
        shown[each.rule] += 1
        if each.rule not in ALLOWED and shown[each.rule] <= SAID_PER_NAME:
            say(f"{each} (lines {list(each.operations)})")
    counts = ", ".join(f"{name} {count:,}" for name, count in summary["counts"].items())
    say(f"{counts}\nrecovery {summary['recovery_ms']}")
    say(f"{summary['verdict'].upper()}: {summary['why']}")
