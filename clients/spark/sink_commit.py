"""The driver's part of a sink: one decision for all tasks of a batch, and nobody's transaction left open behind it.

INVARIANT  a batch's rows are committed together under its number, once; after an abort under no number.
PREVENTS   a driver that died between its commit and Spark's own note of it, and writes the batch again.
PROVED BY  tests/spark/test_spark_sink_commit.py::test_a_batch_that_was_decided_is_not_committed_again

Who does what when a driver dies in a commit:
 1. The old driver's `end` arrives, or it does not. Spark has not noted the batch, so a new driver runs it again.
 2. Its tasks have the same names, so their first request fences what the old ones left open.
 3. Its `end` of the same number is answered with the old decision, if there is one: then what was written again is
    aborted. Or it is the first one, and a late `end` of the old driver is refused, as its members were fenced.
 4. The old driver lives, and is refused. Spark has it abort its batch: its names are the new run's by now, so it ends none.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

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
from .sink_names import JOB, is_own, owner_of, whose

TIMED_OUT_OR_FENCED: Final = (
    "PRODUCER_FENCED",
    "INVALID_PRODUCER_ID_MAPPING",
    "INVALID_TXN_STATE",
)
# The coordinator's words for a name that it does not know, and for a number below those that it remembers.
NOBODY: Final = "Nobody has ever begun to work as"
TOO_OLD: Final = "is too long ago"
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

    def decisions(self) -> tuple[Decision, ...]: ...

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
    is_batch_id: bool = False  # the number: Spark counts, and runs none but the last one again


def commit(group: Group, wrote: Wrote, fence: Fence) -> bool:
    """Whether this call decided it: False when an earlier run of the batch had committed it."""
    if not wrote.members and not wrote.found_decided:
        return True  # nothing was written, there is nothing to decide
    is_new = _decide(group, wrote, fence)
    # To raise from here on would have Spark write again, perhaps under another number, what is committed.
    try:
        decided = {each.member for each in wrote.members} if is_new else set()
        left = [name for name in _left_open(group, wrote) if name not in decided]
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


def abort(group: Group, wrote: Wrote | None, fence: Fence, *, last: int | None = None) -> None:
    """The number stays free for a batch that is to be run again. `last` is the one of a group that nobody uses again.

    Without `wrote` what any sink left open in the group is ended: no task told whose it is.

    Spark aborts while it still ends tasks: one of them may begin after what is open was looked for. Where the number is
    not needed any more it is decided, and such a task finds that out (see `_in_group`); elsewhere the next run ends it.
    """
    if last is not None:
        with suppress(DecidedBefore):  # a commit whose answer was lost: nothing of it is open
            group.abort(last)
    is_past = wrote is not None and _newest(group, wrote) > wrote.number
    fence(group.name, _left_open(group, wrote, is_past=is_past))


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
    why_not = _why_not_ours(group, wrote, decision)
    if why_not is None:
        log.info(
            "%s: batch %d was committed by an earlier run; what was written again is aborted",
            group.name,
            wrote.number,
        )
        return False
    try:
        is_past = _newest(group, wrote) > wrote.number
        fence(group.name, _left_open(group, wrote, is_past=is_past))
    except TROUBLE as trouble:  # what is said below is what has to be known
        log.warning(
            "%s: could not end what batch %d wrote, which is not committed and ends by its timeout: %s",
            group.name,
            wrote.number,
            trouble,
        )
    raise CouldNotCommit(why_not)


def _why_not_ours(group: Group, wrote: Wrote, decision: Decision) -> str | None:
    """None if this batch is what was committed."""
    number = wrote.number
    if decision.outcome == FORGOTTEN:
        return (
            f"batch {number} of the transaction group {group.name} was not committed, none of it: its number is older "
            f"than what the cluster remembers. {OLD_NUMBER}"
        )
    if decision.outcome != COMMIT:
        return (
            f"batch {number} of {group.name} was decided to be aborted, which no query does: somebody ended it by "
            "hand. It can't be committed under this number any more: choose another transactionGroup"
        )
    owners = {owner_of(each.member) or "?" for each in decision.members}
    others = sorted(each for each in owners if not is_own(wrote.owner, each))
    if others:
        return _whose(group.name, wrote, others[0])
    newest = _newest(group, wrote)
    if newest > number:
        return (
            f"batch {number} of the transaction group {group.name} was committed before, and so was {newest}: Spark runs "
            "none but the last one again, so this one may have other rows than the one that was committed. None of it "
            f"was committed now. If another run of this query is at work, let only one run. {OLD_NUMBER}"
        )
    return None


def _newest(group: Group, wrote: Wrote) -> int:
    """The highest number that was decided for this owner; of numbers that somebody chose none is the newest."""
    if not wrote.is_batch_id:
        return -1
    return max(
        (
            each.number
            for each in group.decisions()
            if any(is_own(wrote.owner, owner_of(member.member) or "?") for member in each.members)
        ),
        default=-1,
    )


def _whose(name: str, wrote: Wrote, other: str) -> str:
    said = f"number {wrote.number} of the transaction group {name} was committed by"
    them = f"({other}, this one is {wrote.owner})"
    if whose(other) == whose(wrote.owner):
        return (
            f"{said} a write to another topic {them}: two writes with the same transactionGroup and transactionNumber. "
            "Nothing of this one was committed. Give each write a transactionGroup of its own"
        )
    who = "a batch write outside of a query" if whose(other) == JOB else "another query"
    return (
        f"{said} {who} {them}: two queries with the same transactionGroup, or one whose checkpoint was deleted, and which "
        "counts its batches from 0 again. Nothing of this batch was committed. Give this query a transactionGroup of its "
        "own (with writeStream it has one without the option), and compare what was written before"
    )


def _left_open(group: Group, wrote: Wrote | None, *, is_past: bool = False) -> list[str]:
    """What this run left open, by name. `is_past` when later batches of its query were decided.

    1. An older run's commit is refused, as a newer one has its names. Spark has it abort its batch.
    2. To fence its names then would end the newer run's transactions: that one's commit would be refused.
    3. So a name that was told and is open for another producer says that all the others may be the newer run's, too.
       Where that run has other names, a decision above this number says it: then what was told is this run's, and no more.
    """
    found, is_all = _open(group)
    told = () if wrote is None else wrote.members
    taken = sorted(each.member for each in told if found.get(each.member, each) != each)
    if taken:
        log.warning(
            "%s: %s is open for another producer than that of this run: a newer run of the query is at work, and nothing is "
            "ended here",
            group.name,
            taken[0],
        )
        return []
    mine = {each.member for each in told if each.member in found or not is_all}
    if is_past:
        return sorted(mine)
    owners = {name: owner_of(name) for name in sorted(found)}
    left = {
        name
        for name, its in owners.items()
        if its is not None and (wrote is None or is_own(wrote.owner, its))
    }
    return sorted(mine | left)


def _open(group: Group) -> tuple[dict[str, MemberWrote], bool]:
    """Who is, and whether these are all."""
    try:
        return group.open_members(), True
    except MembersLeftOut as most:
        log.warning(
            "%s: %d members beyond those that are listed are not looked at; what they left open ends by its timeout",
            group.name,
            most.left_out,
        )
        return most.listed, False


def _why(name: str, wrote: Wrote, refused: AdminRefused) -> str:
    said = f"batch {wrote.number} of the transaction group {name} was not committed, none of it: {refused}"
    if TOO_OLD in refused.message:
        return f"{said}. {OLD_NUMBER}"
    if NOBODY in refused.message:
        return (
            f"{said}. Its tasks have just written under that name: is adminUrl a door of another cluster than "
            "kafka.bootstrap.servers? Correct it, and start the query again, which runs the batch again"
        )
    if refused.error in TIMED_OUT_OR_FENCED:
        return (
            f"{said}. Either another run of this query has begun (this one is the older one, and ends: let only one run), "
            "or the batch took longer than kafka.transaction.timeout.ms (raise it), or Spark ran a stage again, whose "
            "tasks count their attempts from 0 again and took the names of those that had written. Start the query again, "
            "which runs the batch again"
        )
    return f"{said}. The query can be started again: it runs the batch again"
