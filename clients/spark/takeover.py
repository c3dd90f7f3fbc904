"""Which of the queries that were given one group has it: the one that came last.

INVARIANT  of the queries of one group only the last that came commits; whoever was followed by another never does again.
PREVENTS   two queries, of which one was meant to follow the other, that go on side by side and write what they read twice.
PROVED BY  tests/spark/test_spark_takeover.py::test_the_older_of_two_queries_is_refused_once_the_newer_one_has_committed

 1. A query that has decided nothing in a group is new there: its first commit takes the group over.
 2. Spark counts its batches from 0, and these numbers were decided. So what it decides is numbered in a span of its own, above
    all that was decided before: SPAN × how often the group was taken over, and the batch id.
 3. Whose decision has the highest number has the group. Its note says who had it before: they find themselves there.
 4. What the older query has open then is fenced, in case it is about to commit.
Who comes again under the same query id (its checkpoint's) has decided something there, and goes on in its span. Batch writes, and
those in foreachBatch under other numbers than the batch's id, are outside of this: their numbers were chosen by somebody.
"""

from typing import Final, NamedTuple, Protocol

from ..transactional.groups import Decision
from .sink_names import JOB, owner_of, whose

SPAN: Final = 1 << 40
AFTER: Final = "after="  # in a note, before the queries that had the group
FORMERS_MAX: Final = 80  # in a note, which has 1,000 bytes


class Decided(Protocol):
    """`TransactionGroup`, as far as it is needed here."""

    def decisions(self, most: int = ...) -> tuple[Decision, ...]: ...


class Standing(NamedTuple):
    """A query's, in its group."""

    span: int = 0
    formers: tuple[str, ...] = ()  # who had the group before it
    newer: str = ""  # who has it now: this query is refused
    is_new: bool = False  # it has decided nothing here
    newest: int = -1  # the highest number of all

    def number(self, batch: int) -> int:
        return self.span * SPAN + batch

    def note(self) -> str:
        """Beside the marks of the rows."""
        return f" {AFTER}{','.join(self.formers)}" if self.formers else ""

    def may_be_decided(self, batch: int) -> bool:
        return not self.is_new and self.number(batch) <= self.newest


class _Holder(NamedTuple):
    query: str
    span: int
    formers: tuple[str, ...]


def standing(group: Decided, owner: str) -> Standing:
    """One question, as a rule: the highest number is this query's own."""
    query = whose(owner)
    latest = group.decisions(1)
    if not latest:
        return Standing(is_new=True)
    newest = latest[-1].number
    last = _holder(latest[-1])
    if last is not None and last.query == query and (last.span or newest < SPAN):
        return Standing(last.span, last.formers, newest=newest)
    found = [each for each in map(_holder, group.decisions()) if each is not None]
    if not found:
        return Standing(is_new=True, newest=newest)
    last = max(reversed(found), key=lambda each: each.span)
    if last.query == query:
        return Standing(last.span, last.formers, newest=newest)
    if query in last.formers or any(each.query == query for each in found):
        return Standing(newer=last.query, newest=newest)
    formers = (*last.formers, last.query)[-FORMERS_MAX:]
    return Standing(last.span + 1, formers, is_new=True, newest=newest)


def batch_of(decision: Decision) -> int:
    """The number that its query knows it by."""
    return decision.number - _span_of(decision) * SPAN


def _holder(decision: Decision) -> _Holder | None:
    """None for a batch write's, and one without members."""
    owner = owner_of(decision.members[0].member) if decision.members else None
    if owner is None or whose(owner) == JOB:
        return None
    _, after, formers = decision.note.partition(AFTER)
    return _Holder(whose(owner), _span_of(decision), tuple(formers.split(",")) if after else ())


def _span_of(decision: Decision) -> int:
    """Numbers that somebody chose may be as high; their notes have no formers."""
    return decision.number // SPAN if AFTER in decision.note else 0


def why_taken_over(name: str, owner: str, newer: str, what: str) -> str:
    return (
        f"{what} of the query {whose(owner)} was not committed, none of it: the newer query {newer} has taken {name} over, as "
        "two queries have the same transactionGroup (another checkpoint is another query). This one is the older one, and ends. "
        "Let only one of them run; if both are to, give one a transactionGroup of its own (with writeStream each has one without "
        "the option), and compare what was written"
    )
