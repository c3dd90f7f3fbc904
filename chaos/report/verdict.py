"""The verdict in words, and what stands against it.

INVARIANT  a page says "valid" only of a run that says so of itself, in which something was acknowledged and read.
PREVENTS   a run that proved nothing, or was cut short, from passing for a good one.
PROVED BY  tests/chaos/test_report_page.py::test_a_run_that_proved_nothing_is_not_called_valid
"""

from dataclasses import dataclass

from . import words
from .measured import Measured
from .run_folder import HISTORY, INVALID, UNKNOWN, VALID

CUT_SHORT_PART = 0.98  # of the seconds that were asked for
NOTES_MAX = 12
HUNG = "hung clients"  # among the counts of run.json


@dataclass(frozen=True, slots=True)
class Judgement:
    verdict: str
    headline: str
    why: str
    notes: tuple[str, ...]


def judged(found: Measured) -> Judgement:
    run = found.run
    against = _against_valid(found)
    verdict = UNKNOWN if run.verdict == VALID and against else run.verdict
    more = [each for each in run.unknown if each not in run.why]
    notes = [*against, *_notes(found, verdict), *found.problems, *more]
    if len(notes) > NOTES_MAX:
        notes = [*notes[:NOTES_MAX], f"and {len(notes) - NOTES_MAX} more of the kind"]
    return Judgement(verdict, _headline(found, verdict), run.why, tuple(notes))


def _headline(found: Measured, verdict: str) -> str:
    if verdict == VALID:
        return "Valid: what was acknowledged is there, once, in order"
    if verdict == INVALID:
        if found.anomaly_counts:
            return f"Invalid: {words.listed(found.anomaly_counts)}"
        return "Invalid: a promise was broken"
    if found.run.verdict == VALID:
        return "Unknown: the run calls itself valid, and proves nothing"
    if not found.run.why:
        return "Unknown: the run ended before it was judged"
    return "Unknown: neither that all was kept can be said, nor that it was not"


def _against_valid(found: Measured) -> list[str]:
    """Why a run that calls itself valid is not taken at its word."""
    if found.run.verdict != VALID:
        return []
    reasons = []
    if not found.history_there:
        reasons.append(f"there is no {HISTORY}")
    elif not found.operations["ok"]:
        reasons.append(f"{HISTORY} holds no operation that was acknowledged")
    elif not found.acknowledged:
        reasons.append(f"{HISTORY} holds no record that was acknowledged")
    elif not found.read + found.read_at_end:
        reasons.append(f"{HISTORY} holds no record that was read")
    wanted = found.run.history_lines
    if found.history_there and wanted is not None and wanted != found.history_lines:
        there = words.count(found.history_lines)
        reasons.append(f"{there} lines of {words.count(wanted)} of {HISTORY} are there")
    if found.anomaly_counts:
        reasons.append(
            f"anomalies.jsonl names {words.listed(found.anomaly_counts)}, none of them marked as allowed"
        )
    return reasons


def _notes(found: Measured, verdict: str) -> list[str]:
    run, notes = found.run, []
    if found.allowed_counts:
        notes.append(
            f"Seen, and allowed by the rules of this run: {words.listed(found.allowed_counts)}."
        )
    if verdict == UNKNOWN and run.verdict == UNKNOWN:
        measured = f"What was measured until second {found.end_s:.1f} is below."
        asked = run.asked_s or run.seconds
        if 0 < found.end_s < CUT_SHORT_PART * asked:
            measured = f"It was to last {words.seconds(asked)}; {measured[0].lower()}{measured[1:]}"
        notes.append(measured if found.total else "Nothing was measured.")
    if verdict == INVALID and not found.anomaly_counts and not run.why:
        notes.append("No anomaly is named in anomalies.jsonl, and no reason in run.json.")
    if hung := run.counts.get(HUNG):
        notes.append(
            f"{words.plural(int(hung), 'client')} hung in librdkafka: ended by a watch of its own, and replaced."
        )
    if run.load:
        notes.append(
            f"The machine was busy when the run began ({run.load}): times and gaps are those of a starved system."
        )
    never = sum(fault.until_s is None for fault in found.faults)
    if never:
        notes.append(f"{words.plural(never, 'fault')} had not been healed when the run ended.")
    said = run.counts.get("operations")
    if said is not None and found.history_there and verdict != UNKNOWN and said > found.total:
        notes.append(
            f"run.json counts {words.count(said)} operations, and {HISTORY} has only {words.count(found.total)}."
        )
    if found.from_samples:
        notes.append(
            "Throughput and gaps are those of samples about a second apart: the history has no times."
        )
    return notes
