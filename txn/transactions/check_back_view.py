"""What people see of half messages, and the release of a parked one."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

from fencepost.cluster.base.errors import ErrorCode

from ..runtime.decision import Decision, SetTimer
from .check_back_commands import DescribeHalf, HalfAnswered, ListHalves, ReleaseHalf
from .check_back_records import HalfMessage, HalfState
from .group_commit_commands import Refusal

E = ErrorCode
CHECK = "check"  # the timer of a half message


def list_halves(halves: Mapping[str, HalfMessage], command: ListHalves) -> Decision:
    wanted = (HalfState.PARKED,) if command.parked_only else (HalfState.WAITING, HalfState.PARKED)
    found = (halves[each] for each in sorted(halves) if halves[each].state in wanted)
    return Decision(reply=list(islice(found, command.halves_max)))


def describe_half(half: HalfMessage | None, command: DescribeHalf) -> Decision:
    if half is None:
        return Decision(reply=unknown_half(command.transactional_id, "", None))
    return Decision(reply=HalfAnswered(half, is_new=False))


def release(half: HalfMessage | None, command: ReleaseHalf, now_ms: int) -> Decision:
    """A parked one is checked again, from the first interval on and at once."""
    if half is None or half.half_id != command.half_id:
        return Decision(reply=unknown_half(command.transactional_id, command.half_id, half))
    if half.is_decided:
        what = "committed" if half.state is HalfState.COMMITTED else "rolled back"
        why = f"{half.half_id} of {half.transactional_id} is decided: {what} by {half.decided_by}"
        return Decision(reply=Refusal(E.invalid_txn_state, why))
    if half.state is HalfState.WAITING:
        return Decision(reply=HalfAnswered(half, is_new=False))  # it is being checked
    freed = replace(
        half, state=HalfState.WAITING, checks=0, next_check_ms=now_ms, changed_ms=now_ms
    )
    return Decision(
        reply=HalfAnswered(freed, is_new=True),
        records=(freed,),
        effects=(SetTimer((CHECK, half.transactional_id), 0),),
    )


def unknown_half(transactional_id: str, half_id: str, known: HalfMessage | None) -> Refusal:
    if known is None:
        why = f"no half message of {transactional_id} is known"
    else:
        why = f"{half_id} of {transactional_id} is over: its half message now is {known.half_id}"
    return Refusal(E.transactional_id_not_found, why)
