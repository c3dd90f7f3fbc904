"""What was decided for somebody who waits for it is told everybody alike, and is what became of it: of half messages.

INVARIANT  nobody is told that something was committed of which another was told that it was rolled back; what was told
           of a transaction whose own client never heard its end is as good as that client's word. What it has come to
           somebody has answered.
PREVENTS   a half message that its checker has committed and that is not there; two decisions of one question; one that nobody
           has made.
PROVED BY  tests/chaos/test_told_of_halves.py::test_a_half_message_that_was_committed_and_is_half_there_is_torn,
           tests/chaos/test_told_of_halves.py::test_a_half_message_ends_as_somebody_has_answered
"""

from dataclasses import replace
from typing import Final

from .history import Anomaly
from .txn_history import Txn, Txns

COMMITTED, ROLLED_BACK = "committed", "rolled_back"
# The answer that each may come of.
ANSWERS: Final = {COMMITTED: "commit", ROLLED_BACK: "rollback"}


class Answered:
    """For who knows of every answer. One is told of before it is sent: whoever sent it may die, and it counts all the same."""

    def __init__(self) -> None:
        self._by_half: dict[str, set[str]] = {}

    def sent(self, half_id: str, verdict: str) -> None:
        self._by_half.setdefault(half_id, set()).add(verdict)

    def see(self, half_id: str, state: str) -> list[Anomaly]:
        """That somebody was told that it is in this state."""
        known = self._by_half.get(half_id, set())
        wanted = ANSWERS.get(state)
        if wanted is None or wanted in known:
            return []
        what = f"it is {state}, and all that was answered is {sorted(known) or 'nothing'}"
        return [Anomaly("unanswered-end", half_id, what)]


def check(history: Txns) -> list[Anomaly]:
    first: dict[str, tuple[str, Txn]] = {}
    found = []
    for op in history:
        for name, outcome in op.told.items():
            if not outcome:
                continue
            known, before = first.setdefault(name, (outcome, op))
            if known != outcome:
                what = f"{op.process} was told that it is {outcome}, and {before.process} {known}"
                found.append(Anomaly("decision-changed", name, what, (before.line, op.line)))
    return found


def resolved(history: Txns) -> Txns:
    """The same, with what others were told of what is unknown to its own client."""
    told = {name: outcome for op in history for name, outcome in op.told.items() if outcome}
    return [_resolved(op, told) for op in history] if told else history


def _resolved(op: Txn, told: dict[str, str]) -> Txn:
    known = [told[name] for name in op.told if name in told]
    if op.f != "txn" or op.type != "info" or not known:
        return op
    return replace(op, type="ok" if known[0] == COMMITTED else "fail")
