"""The driver's part of a sink: one decision for all tasks of a batch, and nobody's transaction left open behind it.

INVARIANT  a batch's rows are committed together under its number, once; after an abort under no number.
PREVENTS   a driver that died between its commit and Spark's own note of it, and writes the batch again.
PROVED BY  tests/spark/test_spark_sink_commit.py::test_a_batch_that_was_decided_is_not_committed_again

Who does what when a driver dies in a commit:
 1. The old driver's `end` arrives, or it does not. Spark has not noted the batch, so a new driver runs it again.
 2. Its tasks have the same names, so their first request fences what the old ones left open.
 3. Its `end` of the same number is answered with the old decision, if there is one: then what was written again is
    aborted. Or it is the first one, and a late `end` of the old driver is refused, as its members were fenced.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from confluent_kafka import KafkaException

from ..transactional.admin_api import AdminRefused, AdminUnreachable
from ..transactional.groups import (
    COMMIT,
    FORGOTTEN,
    DecidedBefore,
    Decision,
    MembersLeftOut,
    MemberWrote,
)
from .sink_names import JOB, owner_of

TIMED_OUT_OR_FENCED: Final = (
    "PRODUCER_FENCED",
    "INVALID_PRODUCER_ID_MAPPING",
    "INVALID_TXN_STATE",
)
OLD_NUMBER: Final = (
    "Is the checkpoint an old copy, or was the group another query's? Choose another transactionGroup, and compare what "
    "was written before"
)
TROUBLE: Final = (AdminRefused, AdminUnreachable, KafkaException)

log = logging.getLogger("fencepost.clients")


class CouldNotCommit(RuntimeError):
    """Nothing of the batch can be read; what happened, and what to do."""


class Group(Protocol):
    """`TransactionGroup`, as far as it is needed here."""

    @property
    def name(self) -> str: ...

    def commit(self, number: int, members: Iterable[MemberWrote | None]) -> Decision: ...

    def abort(self, number: int) -> Decision: ...

    def decision(self, number: int) -> Decision: ...

    def open_members(self) -> dict[str, MemberWrote]: ...


# Has the transactions that these names left open aborted, and their producers fenced.
Fence = Callable[[str, Sequence[str]], None]


@dataclass(frozen=True, slots=True)
class Wrote:
    """What the driver needs of all its tasks' messages."""

    number: int
    owner: str
    members: tuple[MemberWrote, ...]
    found_decided: bool = False  # by a task, which then left its rows out


def commit(group: Group, wrote: Wrote, fence: Fence) -> bool:
    """Whether this call decided it: False when an earlier run of the batch had committed it."""
    if not wrote.members and not wrote.found_decided:
        return True  # nothing was written, there is nothing to decide
    is_new = _decide(group, wrote, fence)
    # To raise from here on would have Spark write again, perhaps under another number, what is committed.
    try:
        written_again = [] if is_new else [each.member for each in wrote.members]
        left = sorted({*written_again, *_left_open(group, wrote.owner)})
        if left:
            log.info("%s: ending what %s left open", group.name, ", ".join(left[:20]))
            fence(group.name, left)
    except TROUBLE as trouble:
        log.warning(
            "%s: batch %d is committed; could not end what was left open beside it, which ends by its timeout: %s",
            group.name,
            wrote.number,
            trouble,
        )
    return is_new


def abort(
    group: Group,
    owner: str | None,
    members: Iterable[str],
    fence: Fence,
    *,
    last: int | None = None,
) -> None:
    """The number stays free for a batch that is to be run again. `last` is the one of a group that nobody uses again.

    Without an `owner` what any sink left open in the group is ended: no task told whose it is.

    Spark aborts while it still ends tasks: one of them may begin after what is open was looked for. Where the number is
    not needed any more it is decided, and such a task finds that out (see `_in_group`); elsewhere the next run ends it.
    """
    if last is not None:
        with suppress(DecidedBefore):  # a commit whose answer was lost: nothing of it is open
            group.abort(last)
    fence(group.name, sorted({*members, *_left_open(group, owner)}))


def _decide(group: Group, wrote: Wrote, fence: Fence) -> bool:
    try:
        if wrote.members:
            decided = group.commit(wrote.number, wrote.members)
            assert not wrote.found_decided, f"{decided} was decided before"
            return True
        decision = group.decision(wrote.number)
    except DecidedBefore as before:
        decision = before.decision
    except AdminRefused as refused:
        raise CouldNotCommit(_why(group.name, wrote, refused)) from refused
    written_again = [each.member for each in wrote.members]
    others = sorted({owner_of(each.member) or "?" for each in decision.members} - {wrote.owner})
    if decision.outcome == COMMIT and not others:
        log.info(
            "%s: batch %d was committed by an earlier run; what was written again is aborted",
            group.name,
            wrote.number,
        )
        return False
    try:
        fence(group.name, written_again)
    except KafkaException as trouble:  # what is said below is what has to be known
        log.warning(
            "%s: could not end what batch %d wrote, which is not committed and ends by its timeout: %s",
            group.name,
            wrote.number,
            trouble,
        )
    if decision.outcome == FORGOTTEN:
        raise CouldNotCommit(
            f"batch {wrote.number} of the transaction group {group.name} was not committed, none of it: its number is older "
            f"than what the cluster remembers. {OLD_NUMBER}"
        )
    if decision.outcome != COMMIT:
        raise CouldNotCommit(
            f"batch {wrote.number} of {group.name} was decided to be aborted, which no query does: somebody ended it by "
            "hand. It can't be committed under this number any more: choose another transactionGroup"
        )
    raise CouldNotCommit(_whose(group.name, wrote, others[0]))


def _whose(name: str, wrote: Wrote, other: str) -> str:
    who = "a batch write outside of a query" if other == JOB else "another query"
    return (
        f"number {wrote.number} of the transaction group {name} was committed by {who} ({other}, this "
        f"one is {wrote.owner}): two queries with the same transactionGroup, or one whose checkpoint was deleted, and which "
        "counts its batches from 0 again. Nothing of this batch was committed. Give this query a transactionGroup of its "
        "own (with writeStream it has one without the option), and compare what was written before"
    )


def _left_open(group: Group, owner: str | None) -> list[str]:
    try:
        found = group.open_members()
    except MembersLeftOut as most:
        log.warning(
            "%s: %d members beyond those that are listed are not looked at; what they left open ends by its timeout",
            group.name,
            most.left_out,
        )
        found = most.listed
    owners = {name: owner_of(name) for name in sorted(found)}
    return [name for name, its in owners.items() if its is not None and owner in (None, its)]


def _why(name: str, wrote: Wrote, refused: AdminRefused) -> str:
    said = f"batch {wrote.number} of the transaction group {name} was not committed, none of it: {refused}"
    if "too long ago" in refused.message:
        return f"{said}. {OLD_NUMBER}"
    if refused.error in TIMED_OUT_OR_FENCED:
        return (
            f"{said}. Either another run of this query has begun (this one is the older one, and ends: let only one run), "
            "or the batch took longer than kafka.transaction.timeout.ms: then raise it, and start the query again, "
            "which runs the batch again"
        )
    return f"{said}. The query can be started again: it runs the batch again"


def collect(messages: Iterable[Any]) -> list[Any]:
    """Those of tasks that succeeded; Spark gives None for the others."""
    return [each for each in messages if each is not None]
