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

A decision carries the marks of its rows (`row_marks.py`). Rows that come again under its number and have other marks are
not those that were committed: to leave them out would lose them.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from confluent_kafka import KafkaException

from ..transactional.admin_api import AdminRefused, AdminUnreachable
from ..transactional.groups import (
    COMMIT,
    FORGOTTEN,
    UNDECIDED,
    DecidedBefore,
    Decision,
    MembersLeftOut,
    MemberWrote,
)
from . import commit_refusals, takeover
from .commit_refusals import Group, Wrote, newest_of
from .sink_names import is_own, owner_of, whose

TROUBLE: Final = (AdminRefused, AdminUnreachable, KafkaException)
# How long a decision's answer is waited for; each question waits for some time by itself. A task's transaction is open for
# 15 minutes, and an end may come at any time of them.
ANSWER_S: Final = 300.0
ASK_AGAIN_S: Final = 1.0
# Spark looks every 2 s for tasks that were killed, and 2 s later (`spark.python.task.killTimeout`) ends their Pythons.
LATE_S: Final = (1.0, 4.0)

Answer = TypeVar("Answer")

log = logging.getLogger("fencepost.clients")


class CouldNotCommit(RuntimeError):
    """Nothing of the batch can be read; what happened, and what to do."""


class CommitUnknown(RuntimeError):
    """No door has answered: the batch is committed, or it is not; how to find out."""


class IsCommitted(RuntimeError):
    """Spark takes the batch for failed, and it is there: it must not be run again."""


# Has the transactions that these names left open aborted, and their producers fenced.
Fence = Callable[[str, Sequence[str]], None]


def commit(group: Group, wrote: Wrote, fence: Fence) -> bool:
    """Whether this call decided it: False when an earlier run of the batch had committed it."""
    if not wrote.members and not wrote.found_decided:
        _check_empty(group, wrote, fence)
        return True  # nothing was written, there is nothing to decide
    wrote = _in_its_span(group, wrote, fence)
    earlier = _decide(group, wrote, fence)
    is_new = earlier is None
    # To raise from here on would have Spark write again, perhaps under another number, what is committed.
    try:
        decided = {each.member for each in wrote.members} if is_new else set()
        left = [n for n in _left_open(group, wrote, earlier=earlier) if n not in decided]
        left += _left_by_formers(group, wrote)
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
    not needed any more it is decided, and such a task finds that out (see `_in_group`); elsewhere it is looked for again.
    """
    is_committed = last is not None and _was_committed(group, last)
    try:
        is_past = wrote is not None and newest_of(group, wrote) > wrote.number
        ended = _left_open(group, wrote, is_past=is_past)
        fence(group.name, ended)
        for pause_s in () if last is not None else LATE_S:
            time.sleep(pause_s)
            # What was ended and is open again is not this run's any more.
            late = [n for n in _left_open(group, wrote, is_past=is_past) if n not in ended]
            fence(group.name, late)
            ended += late
    except TROUBLE as trouble:
        if not is_committed:
            raise
        log.warning("%s: could not end what was left open beside it: %s", group.name, trouble)
    if is_committed:
        assert last is not None, "it was asked for"
        said = commit_refusals.why_not_again(group.name, last)
        log.error("%s", said)
        raise IsCommitted(said)


def _was_committed(group: Group, last: int) -> bool:
    """By a commit whose answer was lost: nothing of it is open. Else it never is from now on."""
    try:
        group.abort(last)
    except DecidedBefore as before:
        return before.decision.outcome == COMMIT
    except (AdminRefused, AdminUnreachable) as trouble:
        said = commit_refusals.why_unknown(group.name, last, trouble, is_used_once=True)
        raise CommitUnknown(said) from trouble
    return False


def _in_its_span(group: Group, wrote: Wrote, fence: Fence) -> Wrote:
    """Numbered as its query's batches are in this group. Refused if a newer query has the group."""
    if not wrote.is_batch_id:
        return wrote
    try:
        found = _answered(lambda: takeover.standing(group, wrote.owner), group, wrote)
        is_new = found.is_new and found.span > 0
        # Spark begins with batch 0. One that is further may have been here, so long ago that nobody knows.
        if is_new and wrote.number > 0 and _outcome(group, wrote, wrote.number) == FORGOTTEN:
            why_not = commit_refusals.why_forgotten(group.name, wrote.number)
        elif found.newer:
            what = f"batch {wrote.number}"
            why_not = takeover.why_taken_over(group.name, wrote.owner, found.newer, what)
        else:
            return replace(wrote, standing=found)
    except AdminRefused as refused:  # an earlier run may have committed it
        why_not = commit_refusals.why(group.name, wrote, refused, is_asked_for=True)
    _try_to_end(group, wrote, fence, lambda: _left_open(group, wrote, is_past=True))
    raise CouldNotCommit(why_not)


def _check_empty(group: Group, wrote: Wrote, fence: Fence) -> None:
    """A number that was committed with rows, or is below such a one, is none of a batch without any."""
    if wrote.is_used_once:
        return
    wrote = _in_its_span(group, wrote, fence)
    if wrote.is_batch_id and not wrote.standing.may_be_decided(wrote.number):
        return
    try:
        ask = partial(commit_refusals.why_not_empty, group, wrote)
        why_not = _answered(ask, group, wrote)
    except AdminRefused as refused:
        why_not = commit_refusals.why(group.name, wrote, refused, is_asked_for=True)
    if why_not is not None:
        raise CouldNotCommit(why_not)


def _left_by_formers(group: Group, wrote: Wrote) -> list[str]:
    """What queries have open that had the group until now: they can't commit it, then."""
    found = wrote.standing
    if not (found.is_new and found.formers):
        return []
    log.warning(
        "%s: the query %s has taken the group over from %s, whose batches are refused from now on",
        group.name,
        whose(wrote.owner),
        found.formers[-1],
    )
    owners = {name: owner_of(name) for name in sorted(_open(group)[0])}
    return [name for name, its in owners.items() if its and whose(its) in found.formers]


def _decide(group: Group, wrote: Wrote, fence: Fence) -> Decision | None:
    """The decision of an earlier run, if that had committed this batch."""
    try:
        if wrote.members:
            _refuse_other_topics(group, wrote, fence)
            decided = _answered(
                lambda: group.commit(wrote.decided_as, wrote.members, wrote.note()), group, wrote
            )
            assert not wrote.found_decided, f"{decided} was decided before"
            return None
        decision = _answered(lambda: group.decision(wrote.decided_as), group, wrote)
    except DecidedBefore as before:
        decision = before.decision
    except AdminRefused as refused:
        if commit_refusals.is_of_another_cluster(
            refused
        ):  # whose doors know nothing of what is open
            _try_to_end(group, wrote, fence, lambda: [each.member for each in wrote.members])
        raise CouldNotCommit(commit_refusals.why(group.name, wrote, refused)) from refused
    why_not = commit_refusals.why_not_ours(group, wrote, decision)
    if why_not is None:
        log.info(
            "%s: batch %d was committed by an earlier run; what was written again is aborted",
            group.name,
            wrote.number,
        )
        return decision

    def left() -> list[str]:
        is_past = newest_of(group, wrote) > wrote.number
        return _left_open(group, wrote, is_past=is_past, earlier=decision)

    _try_to_end(group, wrote, fence, left)
    raise CouldNotCommit(why_not)


def _refuse_other_topics(group: Group, wrote: Wrote, fence: Fence) -> None:
    """A batch that was committed before is: what became of its topics since is nobody's loss."""
    if not wrote.why_not:
        return
    if _outcome(group, wrote, wrote.decided_as) == UNDECIDED:
        _try_to_end(group, wrote, fence, lambda: [each.member for each in wrote.members])
        raise CouldNotCommit(commit_refusals.why_topics(group.name, wrote))


def _try_to_end(group: Group, wrote: Wrote, fence: Fence, left: Callable[[], list[str]]) -> None:
    """What has to be known is said behind this, whether or not it can be done."""
    try:
        fence(group.name, left())
    except TROUBLE as trouble:
        log.warning(
            "%s: could not end what batch %d wrote, which is not committed and ends by its timeout: %s",
            group.name,
            wrote.number,
            trouble,
        )


def _outcome(group: Group, wrote: Wrote, number: int) -> str:
    return _answered(lambda: group.decision(number), group, wrote).outcome


def _answered(ask: Callable[[], Answer], group: Group, wrote: Wrote) -> Answer:
    """1. An end's answer is lost: a coordinator that moves, a door that is away. It may have been decided.
    2. Whoever reports it as failed has it run again; a save() without a number then writes it twice.
    3. So it is asked again, which decides nothing anew: an end of a decided number is told what was decided.
    4. By a coordinator: a door that lets nobody in does not know what another one has done.
    """
    deadline, was_heard = time.monotonic() + ANSWER_S, False
    while True:
        try:
            return ask()
        except (AdminUnreachable, AdminRefused) as trouble:
            if isinstance(trouble, AdminRefused) and not (was_heard and trouble.is_the_doors_own):
                raise
            was_heard = True
            if time.monotonic() >= deadline:
                said = commit_refusals.why_unknown(
                    group.name, wrote.number, trouble, is_used_once=wrote.is_used_once
                )
                raise CommitUnknown(said) from trouble
            log.warning(
                "%s: whether batch %d is committed is not known yet, asking again: %s",
                group.name,
                wrote.number,
                trouble,
            )
            time.sleep(ASK_AGAIN_S)


def _left_open(
    group: Group, wrote: Wrote | None, *, is_past: bool = False, earlier: Decision | None = None
) -> list[str]:
    """What this run left open, by name. `is_past` when later batches of its query were decided; `earlier` is what a run found
    that did not decide its batch itself.

    1. An older run's commit is refused, as a newer one has its names. Spark has it abort its batch.
    2. To fence its names then would end the newer run's transactions: that one's commit would be refused.
    3. So a name that was told and is open for another producer says that all the others may be the newer run's, too.
       Where that run has other names, a decision above this number says it: then what was told is this run's, and no more.
    4. Or that run is in the next batch, which is not decided yet (`_has_a_newer_run`): the same holds.
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
    if is_past or (earlier is not None and is_all and _has_a_newer_run(told, found, earlier)):
        return sorted(mine)
    owners = {name: owner_of(name) for name in sorted(found)}
    left = {
        name
        for name, its in owners.items()
        if its is not None and (wrote is None or is_own(wrote.owner, its))
    }
    return sorted(mine | left)


def _has_a_newer_run(
    told: Sequence[MemberWrote], found: Mapping[str, MemberWrote], earlier: Decision
) -> bool:
    """A run that did not decide its batch has it open yet: what is not was fenced, by whoever did. And a name of the decision
    that is open again was begun after it: by a run that went on, or by an attempt of this one that was lost, which is then
    ended by the next commit, or by its timeout."""
    names = {each.member for each in told}
    others = (each for each in earlier.members if each.member not in names)
    is_begun_again = any(found.get(each.member, each) != each for each in others)
    return is_begun_again or not names <= found.keys()


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
