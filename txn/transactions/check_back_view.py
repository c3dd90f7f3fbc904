"""What is refused, what people see of half messages, and the release of a parked one."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

from fencepost.cluster.base.errors import ErrorCode

from ..runtime.decision import Decision, SetTimer
from .check_back_commands import DescribeHalf, HalfAnswered, ListHalves, PrepareHalf, ReleaseHalf
from .check_back_records import HalfMessage, HalfState
from .group_commit_commands import Refusal
from .group_commit_machine import BATCH_BYTES_MAX, OPEN_WORDS, Transactions

E = ErrorCode
CHECK = "check"  # the timer of a half message
# Of a transaction and its half message, which stand in one batch: of two the first may be all that is left of a leader.
# Nothing is added to them but who decides it, in a name of 1,000 bytes, and the numbers of who takes it over.
PREPARED_BYTES_MAX: Final = BATCH_BYTES_MAX - 2_048


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


def number_of(known: HalfMessage | None, command: PrepareHalf) -> int:
    """The highest number that has come from the producer that asks. It may count from the beginning in each epoch."""
    if known is None:
        return 0
    is_same = known.producer_id == command.producer_id
    is_same = is_same and known.producer_epoch == command.producer_epoch
    return known.half_number if is_same else 0


def refuse_prepare(
    transactions: Transactions, command: PrepareHalf, known: HalfMessage | None
) -> Refusal | None:
    """Why this transaction can't be prepared by whoever asks."""
    name = command.transactional_id
    if transactions.transaction_version() < 1:
        why = "a log of transaction.version 0 can't say that a transaction is prepared"
        return Refusal(E.unsupported_version, why)
    found = transactions.find(name)
    if found is None or found.producer_id != command.producer_id:
        now = "nobody" if found is None else f"producer {found.producer_id}"
        return Refusal(
            E.invalid_producer_id_mapping,
            f"{name} is not producer {command.producer_id} but {now}",
        )
    if found.producer_epoch != command.producer_epoch:
        return Refusal(
            E.producer_fenced,
            f"{name} was fenced: its epoch is {found.producer_epoch}, not {command.producer_epoch}",
        )
    last = number_of(known, command)
    if known is not None and 0 < command.half_number <= last:
        return Refusal(
            E.invalid_txn_state,
            f"{command.half_id} of {name} is over: it is half message number {command.half_number} of its "
            f"producer, and number {last} has come before it. Its half message now is {known.half_id}.",
        )
    if found.phase not in OPEN_WORDS:
        return Refusal(
            E.invalid_txn_state,
            f"{name} has no open transaction to prepare: it is in {found.phase}. Send the half "
            "message, flush, and prepare then.",
        )
    if known is not None and not known.is_decided:
        return Refusal(
            E.invalid_txn_state,
            f"the transaction of {name} is prepared already, as {known.half_id}",
        )
    return None


def too_large(command: PrepareHalf) -> Refusal:
    return Refusal(
        E.message_too_large,
        f"{command.half_id} of {command.transactional_id} is in so many partitions that its transaction and its half "
        "message fit no batch of the transaction log: it was not prepared. Have fewer partitions in a transaction.",
    )
