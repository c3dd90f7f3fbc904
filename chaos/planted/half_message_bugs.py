"""Bugs of half messages, planted: who ends them, and how."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from fencepost.txn.transactions.check_back_commands import AnswerCheck, Verdict
from fencepost.txn.transactions.check_back_machine import CheckBackMachine

from .bugs import Patch, bug

STRUCK: Final = "kill kill-coordinator reset pause-client"


@bug(seen_by="unanswered-end", campaign="transactions", faults=STRUCK, workloads="added")
def answers_are_turned_round(patch: Patch) -> None:
    """A half message whose local transaction was rolled back is committed, and the other way round."""
    others = {Verdict.COMMIT: Verdict.ROLLBACK, Verdict.ROLLBACK: Verdict.COMMIT}
    _take_for(patch, others)


@bug(seen_by="unanswered-end", campaign="added")
def who_does_not_know_rolls_back(patch: Patch) -> None:
    """A checker that says that it does not know ends its half message."""
    _take_for(patch, {Verdict.UNKNOWN: Verdict.ROLLBACK})


def _take_for(patch: Patch, others: Mapping[Verdict, Verdict]) -> None:
    right = CheckBackMachine._answer

    def answer(self: CheckBackMachine, command: AnswerCheck, now_ms: int) -> Any:
        verdict = others.get(command.verdict, command.verdict)
        return right(self, replace(command, verdict=verdict), now_ms)

    on_command = {**CheckBackMachine.ON_COMMAND, AnswerCheck: answer}
    patch.put(CheckBackMachine, "ON_COMMAND", on_command)
