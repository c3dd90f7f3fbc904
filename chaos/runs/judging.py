"""What can be said of a run, from what its folder holds: at its end, and again whenever somebody asks.

INVARIANT  `valid` is said only of a run that came to its end, whose history is whole, in which some record was acknowledged and
           read, and read again after all faults, in which some fault struck if any was asked for, and of which no rule was broken. What
           whoever ran it saw to be broken stays so (`broken`, `missed` in run.json), however often its history is judged, and
           when it can't be, or is not there.
PREVENTS   a run that proves nothing counting as one that went well; a verdict that is better the second time.
PROVED BY  tests/chaos/test_queue_judging.py::test_a_run_that_did_not_come_to_its_end_is_unknown,
           tests/chaos/test_queue_judging.py::test_what_was_seen_to_be_broken_stays_so_when_it_is_judged_again,
           tests/chaos/test_queue_exits.py::test_what_was_seen_to_be_broken_stays_so_when_its_history_says_nothing
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from ..checkers import exactly_once, history, settings, told, txn_history, txn_verdict, verdict
from ..checkers.availability import NOT_SERVED
from ..checkers.away import STRUCK
from ..checkers.busy import Machine
from ..checkers.final_positions import FinalPositions
from ..checkers.history import Anomaly
from ..checkers.promised import promise_of
from ..checkers.queue_verdict import ALLOWED, Checker, Judged
from ..checkers.queue_verdict import judge as judge_history
from ..checkers.worked import Worked, counted, lacking
from .asked import with_asked
from .folder import ANOMALIES, FAULTS, INVALID, SEEN, UNKNOWN, VALID, RunFolder

KEPT_PER_NAME: Final = 1_000
SAID_PER_NAME: Final = 3
BROKEN: Final = "broken"
LEFT_OUT: Final = "left-out"
NOTHING_SHOWN: Final = "no consumer was shown anything while the load went on"
TRANSACTIONS_LOOP: Final = "transactions-kill-loop"
NO_COUNTS: Final = ("operations", "ok", "records", "records read", "read at the end")
TOLD_MAX: Final = 600  # characters
NO_KINDS: Final = frozenset({"none", "all"})  # among the faults that a run was asked for


def judge(folder: RunFolder, say: Callable[[str], None]) -> dict[str, Any]:
    """The summary, as it is in run.json afterwards."""
    summary = folder.read()
    why = "there is no history"
    if folder.history.is_file():
        try:
            if lacks := folder.lacks(summary):
                return _undecided(folder, summary, lacks, say)
            judged, anomalies = _whole(folder, {**summary})
        except Exception as unforeseen:  # noqa: BLE001 - a traceback would end with the code of `invalid`
            why = f"it could not be judged: {type(unforeseen).__name__} {unforeseen}".rstrip()
        else:
            _tell(judged, anomalies, say)
            return judged
    return _undecided(folder, summary, why, say)


def _whole(folder: RunFolder, summary: dict[str, Any]) -> tuple[dict[str, Any], list[Anomaly]]:
    judged = _judged(folder, summary)
    anomalies = [each for each in judged.anomalies if _counts(each, summary)]
    anomalies += _seen_by_the_harness(summary)
    folder.replace(ANOMALIES, map(_line, _kept(anomalies)))
    counts = dict(summary.get("counts", {})) | judged.counts
    names = Counter(each.rule for each in anomalies)
    counts["anomalies"] = sum(n for name, n in names.items() if name not in ALLOWED)
    summary["counts"] = counts | {f"allowed {n}": names[n] for n in names if n in ALLOWED}
    summary["recovery_ms"] = judged.recovery_ms or summary.get("recovery_ms", {})
    struck = {
        str(line.get("fault")) for line in folder.lines(FAULTS) if line.get(STRUCK) is not False
    }
    summary["verdict"], why = _said(summary, judged, names, struck)
    summary["why"] = with_asked(why, summary["counts"])
    folder.write(summary)
    return summary, anomalies


def _undecided(
    folder: RunFolder, summary: dict[str, Any], why: str, say: Callable[[str], None]
) -> dict[str, Any]:
    """What the history has to say nobody knows; what the harness itself saw stays, and so does what was found before."""
    anomalies = _seen_by_the_harness(summary)
    found = _found(summary, Counter(each.rule for each in anomalies))
    reasons = [found] if found else _sentences(summary.get("unknown"))
    why = "; ".join([*reasons, why])
    if folder.history.is_file():
        why = with_asked(why, summary.get("counts"))
    summary |= {"verdict": INVALID if found else UNKNOWN, "why": why}
    try:
        if not folder.lines(ANOMALIES):
            folder.replace(ANOMALIES, map(_line, anomalies))
        folder.write(summary)
    except OSError as full:  # no room for that either
        say(f"{folder.path} keeps what it said before: {full}")
    for each in anomalies:
        say(str(each))
    say(f"{summary['verdict'].upper()}: {summary['why']}")
    return summary


def _judged(folder: RunFolder, summary: dict[str, Any]) -> Judged:
    """By the rules of its workload: the kill loops have histories and checkers of their own."""
    workload = str(summary.get("workload", ""))
    if workload in LOOPS:
        try:
            return LOOPS[workload](folder.history)
        except (ValueError, TypeError, KeyError) as error:
            nothing = dict.fromkeys(NO_COUNTS, 0)
            return Judged(counts=nothing, cut=f"it can't be read: {error}")
    worked = Worked()
    judged = judge_history(
        folder.history,
        folder.lines(FAULTS),
        int(summary.get("nodes", 3)),
        healed_s=summary.get("healed_s"),
        stopped_s=summary.get("stopped_s"),
        promise=promise_of(
            str(summary.get("target", "")), summary.get("options", {}).get("settings", ()), workload
        ),
        machine=Machine(loads(folder)),
        more=MORE_RULES.get(workload, ()),
        instead=OWN_RULES.get(workload, ()),
        also=worked.see,
    )
    judged.counts |= worked.counts(workload)
    return judged


MORE_RULES: Final[dict[str, Sequence[Checker]]] = {
    "pipeline": (exactly_once.check,),
    "added": (told.check,),
    "tuned": (settings.check_noted,),
}
# Of what may go, and be owed by nobody, all other rules would be broken.
OWN_RULES: Final[dict[str, Sequence[Checker]]] = {
    "compacted": txn_verdict.told_once(txn_verdict.OF_TABLES),
    "churn": (txn_verdict.check_lives,),
}


def _of_loop(found: verdict.Verdict, untold: str = "") -> Judged:
    acknowledged = found.counts["acknowledged"]
    all_of_them = acknowledged + found.counts["failed"] + found.counts["unknown"]
    counts = {"operations": all_of_them, "ok": acknowledged, "records": acknowledged}
    counts["records read"] = found.counts[verdict.MEANWHILE]
    return Judged(found.anomalies, counts | found.counts, untold=untold)


def _stream(file: Path) -> Judged:
    with file.open() as lines:
        return _of_loop(verdict.judge(history.from_lines(lines)))


def _transactions(file: Path) -> Judged:
    with file.open() as lines:
        found = txn_history.from_lines(lines)
    positions = FinalPositions()
    for op in found:
        positions.see(op)
    judged = _of_loop(txn_verdict.judge(found), positions.untold)
    judged.counts["records"] = sum(len(op.sends) for op in found if op.type == "ok")
    judged.counts |= counted(TRANSACTIONS_LOOP, found)
    return judged


LOOPS: Final[dict[str, Callable[[Path], Judged]]] = {
    "kill-loop": _stream,
    "cluster-kill-loop": _stream,
    TRANSACTIONS_LOOP: _transactions,
}


def _counts(anomaly: Anomaly, summary: dict[str, Any]) -> bool:
    """What was left proves nothing where nobody saw to it that it was worked off."""
    return anomaly.rule != LEFT_OUT or summary.get("left", "") is not None


def _seen_by_the_harness(summary: dict[str, Any]) -> list[Anomaly]:
    """What must not be, and no history tells."""
    if summary.get("workload") in LOOPS and summary.get("verdict") == INVALID:
        # Of one that was kept before this was written down, only a sentence is known.
        summary.setdefault(BROKEN, [str(summary.get("why"))])
    found = [Anomaly(BROKEN, "all", each) for each in _sentences(summary.get(BROKEN))]
    if missed := summary.get("missed"):
        found.append(Anomaly("unseen", "all", str(missed)))
    return found


def _sentences(found: object) -> list[str]:
    """What run.json holds where sentences are to be, whatever it is."""
    return [str(each) for each in found] if isinstance(found, list) else [str(found)] * bool(found)


def _found(summary: dict[str, Any], names: Counter[str]) -> str:
    """Empty when nothing was found that must not be."""
    broken = {name: count for name, count in names.items() if name not in ALLOWED}
    if not broken:
        return ""
    found = ", ".join(f"{count:,} {name}" for name, count in sorted(broken.items()))
    told = "".join(f"; {each}" for each in _sentences(summary.get(BROKEN)))
    return f"found: {found}{told[:TOLD_MAX]}"


def loads(folder: RunFolder) -> Iterator[tuple[float, float]]:
    """What the machine had to do while the run went on: when, and processes a core."""
    for line in folder.lines(SEEN):
        if "load" in line:
            yield float(line["at_s"]), float(line["load"])


def _said(
    summary: dict[str, Any], judged: Judged, names: Counter[str], struck: set[str]
) -> tuple[str, str]:
    if found := _found(summary, names):
        return INVALID, found
    reasons = _sentences(summary.get("unknown"))
    if judged.cut:
        reasons.append(f"the history is cut short: {judged.cut}")
    if not judged.counts["records"]:  # reads that came to nothing are ok, too
        reasons.append("nothing was acknowledged")
    if not judged.counts["records read"]:
        reasons.append(NOTHING_SHOWN)
    if not judged.counts["read at the end"]:
        reasons.append("nothing was read after the faults")
    elif judged.untold:
        reasons.append(judged.untold)
    if "left" in summary and (left := summary["left"]) != "":
        reasons.append(f"not all was worked off in the end: {left or 'nobody has looked'}")
    reasons += _few(judged.unanswered)
    via = summary.get("options", {}).get("via", ())
    reasons += lacking(str(summary.get("workload", "")), via, judged.counts)
    asked = [str(kind) for kind in summary.get("faults", ())]
    never = [kind for kind in asked if kind not in struck | NO_KINDS]
    if asked and not struck and asked != ["none"]:
        reasons.append(f"no fault struck ({', '.join(asked)})")
    if reasons:
        return UNKNOWN, "; ".join(reasons)
    counts = judged.counts
    what = f"{counts['operations']:,} operations, {counts['records']:,} records acknowledged"
    but = f"; never struck: {', '.join(never)}" if never else ""
    return VALID, f"{what}: nothing lost, doubled, torn or out of order{but}"


def _few(sentences: Sequence[str]) -> list[str]:
    more = len(sentences) - SAID_PER_NAME
    return [*sentences[:SAID_PER_NAME], *([f"and {more} more"] if more > 0 else [])]


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
    say(f"{counts}\n{_recovered(summary['recovery_ms'])}")
    say(f"{summary['verdict'].upper()}: {summary['why']}")


def _recovered(times_ms: object) -> str:
    """What is in run.json, as a sentence."""
    found = times_ms if isinstance(times_ms, dict) else {}
    known = {name: each for name, each in found.items() if isinstance(each, int | float)}
    never = known.pop(NOT_SERVED, 0)
    times = ", ".join(f"{name} {each / 1000:,.2f} s" for name, each in known.items())
    parts = [f"{times} from a fault until all were served again"] if times else []
    if never:
        faults = "fault" if never == 1 else "faults"
        parts.append(f"after {never:,} {faults} somebody was never served again")
    return f"recovery: {'; '.join(parts) or 'there is no fault of which it was measured'}"
