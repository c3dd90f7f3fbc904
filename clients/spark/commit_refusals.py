"""Why a batch is not committed, or not what was committed: a sentence that says what happened and what to do.

INVARIANT  a batch passes for the one that was committed only if nothing that is known of the two differs.
PREVENTS   rows that nobody has written, left out because their number was decided for others.
PROVED BY  tests/spark/test_spark_older_runs.py::test_other_rows_under_the_last_number_are_not_left_out
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from ..transactional.admin_api import AdminRefused, AdminUnreachable
from ..transactional.groups import COMMIT, FORGOTTEN, MEMBERS_MAX, Decision, MemberWrote
from .row_marks import RowMarks, marks_of
from .sink_names import JOB, is_own, owner_of, whose
from .takeover import Standing, batch_of
from .written_topics import WHAT_TO_DO

TIMED_OUT_OR_FENCED: Final = (
    "PRODUCER_FENCED",
    "INVALID_PRODUCER_ID_MAPPING",
    "INVALID_TXN_STATE",
)
TOO_LARGE: Final = "MESSAGE_TOO_LARGE"
# The coordinator's words for a name that it does not know, and for a number below those that it remembers.
NOBODY: Final = "Nobody has ever begun to work as"
TOO_OLD: Final = "is too long ago"
OLD_NUMBER: Final = (
    "Is the checkpoint an old copy, or was the group another query's? Choose another transactionGroup, and compare what "
    "was written before"
)
# What to do about rows that are not those of before, for all who find that out.
OTHER_ROWS: Final = (
    "Either the checkpoint is older than what was committed (its last batch was lost, or a copy was put back), or the number "
    "was said for other data: then put the newest checkpoint back, or start behind what was written with another "
    "transactionGroup. Or the job does not give the same rows when it is run again (random numbers, the time, sums of floats, a source "
    "that is compacted or loses what is old): then say rowsDiffer=ignore, which keeps what was committed"
)

CHOSEN: Final = " chosen"  # in a note, behind all else: the number is none that Spark counts

log = logging.getLogger("fencepost.clients")


class Group(Protocol):
    """`TransactionGroup`, as far as it is needed here."""

    @property
    def name(self) -> str: ...

    def commit(
        self, number: int, members: Iterable[MemberWrote | None], note: str = ""
    ) -> Decision: ...

    def abort(self, number: int) -> Decision: ...

    def decision(self, number: int) -> Decision: ...

    def decisions(self, most: int = ...) -> tuple[Decision, ...]: ...

    def open_members(self) -> dict[str, MemberWrote]: ...


@dataclass(frozen=True, slots=True)
class Wrote:
    """What the driver needs of all its tasks' messages."""

    number: int
    owner: str
    members: tuple[MemberWrote, ...]
    found_decided: bool = False  # by a task, which then left its rows out
    is_batch_id: bool = False  # the number: Spark counts, and runs none but the last one again
    is_used_once: bool = False  # the group: whoever runs this again writes it again
    marks: RowMarks = field(default_factory=RowMarks)  # of all its rows, written or left out
    rows_may_differ: bool = False  # from those that were committed under this number
    standing: Standing = field(default_factory=Standing)  # of its query, in the group
    why_not: str = ""  # to be committed, unless it was before: what became of a topic

    def note(self) -> str:
        """Nobody asks a group that is used once."""
        if self.is_used_once:
            return ""
        chosen = "" if self.is_batch_id else CHOSEN
        return f"{self.marks.note()}{self.standing.note()}{chosen}"

    @property
    def decided_as(self) -> int:
        """The batch's number, in its query's span of them."""
        return self.standing.number(self.number)


def newest_of(group: Group, wrote: Wrote) -> int:
    """The highest batch that was decided for this owner; of numbers that somebody chose none is the newest. Builds before
    2026-11-27 did not say which were chosen."""
    if not wrote.is_batch_id:
        return -1
    return max(
        (
            batch_of(each)
            for each in group.decisions()
            if not each.note.endswith(CHOSEN)
            and any(is_own(wrote.owner, owner_of(member.member) or "?") for member in each.members)
        ),
        default=-1,
    )


def why_not_ours(group: Group, wrote: Wrote, decision: Decision) -> str | None:
    """None if this batch is what was committed."""
    number = wrote.number
    if decision.outcome == FORGOTTEN:
        return why_forgotten(group.name, number)
    if decision.outcome != COMMIT:
        return (
            f"batch {number} of {group.name} was decided to be aborted, which no query does: somebody ended it by "
            "hand. It can't be committed under this number any more: choose another transactionGroup"
        )
    owners = {owner_of(each.member) or "?" for each in decision.members}
    others = sorted(each for each in owners if not is_own(wrote.owner, each))
    if others:
        return _whose(group.name, wrote, others[0])
    newest = newest_of(group, wrote)
    if newest > number:
        return (
            f"batch {number} of the transaction group {group.name} was committed before, and so was {newest}: Spark runs "
            "none but the last one again, so this one may have other rows than the one that was committed. None of it "
            f"was committed now. If another run of this query is at work, let only one run. {OLD_NUMBER}"
        )
    said = f"batch {number} of the transaction group {group.name}"
    return why_other_rows(
        said, marks_of(decision.note), wrote.marks, may_differ=wrote.rows_may_differ
    )


def why_not_empty(group: Group, wrote: Wrote) -> str | None:
    """None if a batch without rows may be what was under its number: nothing, as far as is known.

    1. A batch was committed with rows. The checkpoint loses it, and Spark plans the number anew: fewer offsets, and no row of them.
    2. If nobody asked, Spark would note it, and the next batch write the rows that were committed.
    """
    number = wrote.number
    decision = group.decision(wrote.decided_as)
    owners = {owner_of(each.member) or "?" for each in decision.members}
    if decision.outcome == COMMIT and all(is_own(wrote.owner, each) for each in owners):
        return why_not_ours(group, wrote, decision)
    newest = newest_of(group, wrote)
    if newest <= number:
        return None
    return (
        f"batch {newest} of the transaction group {group.name} was committed before, and batch {number} comes again without rows: "
        "Spark runs none but the last one again, so what comes next may have been committed. If another run of this query is at "
        f"work, let only one run. {OLD_NUMBER}"
    )


def why_forgotten(name: str, number: int) -> str:
    return (
        f"batch {number} of the transaction group {name} was not committed, none of it: its number is older "
        f"than what the cluster remembers. {OLD_NUMBER}"
    )


def why_other_rows(
    what: str, committed: RowMarks | None, now: RowMarks, *, may_differ: bool
) -> str | None:
    """None if these may be the rows that were committed, or if nobody said which those were."""
    if committed is None or committed.may_be(now):
        return None
    are_as_many = committed.told() == now.told()
    said = (
        f"{what} was committed before with other rows: {committed.told()} then, and "
        f"{'as many with other contents' if are_as_many else now.told()} now"
    )
    if may_differ:
        log.warning("%s. What was committed is kept, as rowsDiffer=ignore says", said)
        return None
    return f"{said}. Nothing of what came now is there. {OTHER_ROWS}"


def _whose(name: str, wrote: Wrote, other: str) -> str:
    said = f"number {wrote.number} of the transaction group {name} was committed by"
    them = f"({other}, this one is {wrote.owner})"
    if whose(other) == whose(wrote.owner):
        return (
            f"{said} a write to another topic {them}: two writes with the same transactionGroup and transactionNumber, or a "
            "stream that has another option topic than when it committed this batch, as from a copy of its checkpoint. "
            "Nothing of this one was committed. Give each write a transactionGroup of its own; start a stream whose topic "
            "is to be another one once with the former one, and stop it between two batches"
        )
    if wrote.is_batch_id and whose(other) != JOB:
        return (
            f"{said} another query {them} in the same moment: two queries with the same transactionGroup, which both had begun in "
            "it just now. Nothing of this batch was committed. Let only one of them run: whichever is started again takes the group over"
        )
    who = "a batch write outside of a query" if whose(other) == JOB else "another query"
    return (
        f"{said} {who} {them}: two queries with the same transactionGroup, or one whose checkpoint was deleted, and which "
        "counts its batches from 0 again. Nothing of this batch was committed. Give this query a transactionGroup of its "
        "own (with writeStream it has one without the option), and compare what was written before"
    )


def why_topics(name: str, wrote: Wrote) -> str:
    again = (
        "Run it again, which writes all of it"
        if wrote.is_used_once
        else "Then start the query again, which runs the batch again, and writes all of it"
    )
    return (
        f"batch {wrote.number} of the transaction group {name} was not committed, none of it: {wrote.why_not}. "
        f"{WHAT_TO_DO}. {again}"
    )


def is_of_another_cluster(refused: AdminRefused) -> bool:
    """It knows nobody of the group, whose tasks have just written."""
    return NOBODY in refused.message


def why(name: str, wrote: Wrote, refused: AdminRefused, *, is_asked_for: bool = False) -> str:
    """`is_asked_for`: what was refused is the question what was decided before; so it is where tasks have found it decided."""
    because = str(refused).rstrip(" .")
    batch = f"batch {wrote.number} of the transaction group {name}"
    said = f"{batch} was not committed, none of it: {because}"
    if is_asked_for or wrote.found_decided:
        said = f"nothing was committed now of {batch}, and whether it was before could not be asked: {because}"
    if refused.error == TOO_LARGE or len(wrote.members) > MEMBERS_MAX:
        return (
            f"{said} {len(wrote.members):,} tasks wrote rows, and one decision has no room for so many (clients/spark/README.md "
            "says for how many). Have fewer tasks write: coalesce(200) before the write, smaller minPartitions of what is "
            "read, or fewer spark.sql.shuffle.partitions (of a stream with state in its first run alone)"
        )
    if TOO_OLD in refused.message:
        return f"{said}. {OLD_NUMBER}"
    if is_of_another_cluster(refused):
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


def why_unknown(
    name: str, number: int, trouble: AdminUnreachable | AdminRefused, *, is_used_once: bool
) -> str:
    because = str(trouble).rstrip(" .")
    said = f"whether batch {number} of the transaction group {name} is committed is not known: {because}. "
    if not is_used_once:
        return f"{said}Start the query again when an admin door answers: it asks what was decided"
    return (
        f"{said}A save() without a transactionNumber writes again what it wrote when it is run again: ask first what was decided, "
        f"with GET /v1/transaction-groups/{name}/decisions/{number} at an admin door. If it is commit, all is there; if "
        "it is abort, nothing is, and nothing will be. While it is undecided, wait for kafka.transaction.timeout.ms"
    )


def why_not_again(name: str, number: int) -> str:
    return (
        f"number {number} of the transaction group {name} IS COMMITTED, all of it, though Spark reports the write as failed: the "
        "answer to its commit was lost. Do not run it again, it would be there twice"
    )
