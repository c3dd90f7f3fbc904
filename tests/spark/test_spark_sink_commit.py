"""The driver's decision, with a group that is a table: what it says to a driver that comes again."""

from collections.abc import Iterable, Sequence

import pytest
from confluent_kafka import KafkaError, KafkaException
from fencepost.clients.spark.sink_commit import CouldNotCommit, Wrote, abort, commit
from fencepost.clients.spark.sink_names import JOB, Task, place_in_batch
from fencepost.clients.transactional import (
    AdminRefused,
    AdminUnreachable,
    DecidedBefore,
    Decision,
    MembersLeftOut,
    MemberWrote,
)

OWNER, OTHER = "q11111111", "q22222222"
TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT))


def wrote(*members: MemberWrote, number: int = 7) -> Wrote:
    return Wrote(number, OWNER, members)


def member(partition: int, epoch: int = 0, owner: str = OWNER, attempt: int = 0) -> MemberWrote:
    return MemberWrote(f"{owner}.p{partition}.a{attempt}", 100 + partition, epoch)


class Table:
    """A transaction group; `fence` is what the driver does to names."""

    name = "orders-to-lake"

    def __init__(self, *open_members: MemberWrote) -> None:
        self.open = {each.member: each for each in open_members}
        self.decisions: dict[int, Decision] = {}
        self.fenced: list[str] = []
        self.listing: Exception | None = None  # what is raised by whoever asks for that
        self.fencing: Exception | None = None

    def commit(self, number: int, members: Iterable[MemberWrote | None]) -> Decision:
        named = tuple(each for each in members if each is not None)
        if number in self.decisions:
            if self.decisions[number].members != named:
                raise DecidedBefore(self.decisions[number])
            return self.decisions[number]
        for each in named:
            if self.open.get(each.member) != each:
                raise AdminRefused(409, "PRODUCER_FENCED", f"member {each.member} was fenced.", "")
        for each in named:
            del self.open[each.member]
        self.decisions[number] = Decision(number=number, outcome="commit", members=named)
        return self.decisions[number]

    def abort(self, number: int) -> Decision:
        if number in self.decisions:
            raise DecidedBefore(self.decisions[number])
        self.decisions[number] = Decision(number=number, outcome="abort")
        return self.decisions[number]

    def decision(self, number: int) -> Decision:
        return self.decisions.get(number, Decision(number=number, outcome="undecided"))

    def open_members(self) -> dict[str, MemberWrote]:
        if self.listing is not None:
            raise self.listing
        return dict(self.open)

    def fence(self, group: str, members: Sequence[str]) -> None:
        assert group == self.name
        if self.fencing is not None:
            raise self.fencing
        self.fenced += members
        for each in members:
            self.open.pop(each, None)


def test_all_members_are_committed_under_the_batch_id() -> None:
    table = Table(member(0), member(1))
    assert commit(table, wrote(member(0), member(1)), table.fence)
    assert table.decisions[7].members == (member(0), member(1))
    assert table.fenced == []


def test_what_lost_attempts_left_open_is_ended() -> None:
    """A speculative copy that was killed would hold up readers until its transaction times out."""
    copy = member(0, attempt=1)
    table = Table(member(0), copy, member(5, owner=OTHER))
    assert commit(table, wrote(member(0)), table.fence)
    assert table.fenced == [copy.member]


def test_a_batch_that_was_decided_is_not_committed_again() -> None:
    """The driver died after its commit and before Spark noted it; the new run wrote everything again."""
    table = Table(member(0), member(1))
    commit(table, wrote(member(0), member(1)), table.fence)
    again = (member(0, epoch=1), member(1, epoch=1))
    table.open = {each.member: each for each in again}
    assert not commit(table, wrote(*again), table.fence)
    assert table.open == {}
    assert table.decisions[7].members == (member(0), member(1))


def test_a_batch_whose_tasks_found_it_decided_is_over() -> None:
    """A driver that was started again; its tasks asked before they wrote."""
    table = Table(member(0))
    commit(table, wrote(member(0)), table.fence)
    table.open[member(9).member] = member(9)
    assert not commit(table, Wrote(7, OWNER, (), found_decided=True), table.fence)
    assert table.fenced == [member(9).member]


def test_a_batch_that_tasks_found_decided_for_another_query_is_refused() -> None:
    table = Table()
    theirs = Decision(number=7, outcome="commit", members=(member(0, owner=OTHER),))
    table.decisions[7] = theirs
    with pytest.raises(CouldNotCommit, match="committed by another query"):
        commit(table, Wrote(7, OWNER, (), found_decided=True), table.fence)


def test_a_number_that_is_too_old_to_be_known_is_refused() -> None:
    table = Table()
    table.decisions[7] = Decision(number=7, outcome="forgotten")
    with pytest.raises(CouldNotCommit, match="older than what the cluster remembers"):
        commit(table, Wrote(7, OWNER, (), found_decided=True), table.fence)


def test_a_decision_of_another_query_is_not_taken_for_ours() -> None:
    table = Table(member(0))
    theirs = Decision(number=7, outcome="commit", members=(member(0, owner=OTHER),))
    table.decisions[7] = theirs
    with pytest.raises(
        CouldNotCommit, match=r"committed by another query \(q22222222, this one is"
    ):
        commit(table, wrote(member(0)), table.fence)
    assert table.open == {}
    assert table.decisions[7] == theirs


def test_a_batch_of_foreach_batch_is_not_left_out_because_its_checkpoint_was_deleted() -> None:
    def batch_0(query: str) -> Wrote:
        place = place_in_batch(Task(0, 0, query, 0), Table.name, 0, query)
        return Wrote(place.number, place.owner, (MemberWrote(place.member, 100, 0),))

    first, anew = batch_0("query-one"), batch_0("query-two")
    table = Table(*first.members)
    assert commit(table, first, table.fence)
    table.open = {each.member: each for each in anew.members}
    with pytest.raises(CouldNotCommit, match="one whose checkpoint was deleted"):
        commit(table, anew, table.fence)
    assert table.open == {}


def test_a_number_of_a_batch_write_is_named_as_such() -> None:
    table = Table(member(0))
    table.decisions[7] = Decision(number=7, outcome="commit", members=(member(0, owner=JOB),))
    with pytest.raises(CouldNotCommit, match=r"by a batch write outside of a query \(job, this"):
        commit(table, wrote(member(0)), table.fence)


def test_a_number_that_somebody_closed_is_not_lost_in_silence() -> None:
    table = Table(member(0))
    table.decisions[7] = Decision(number=7, outcome="abort")
    with pytest.raises(CouldNotCommit, match="decided to be aborted"):
        commit(table, wrote(member(0)), table.fence)


def test_an_older_run_is_fenced_and_says_so() -> None:
    table = Table(member(0, epoch=1))
    with pytest.raises(CouldNotCommit, match="another run of this query has begun"):
        commit(table, wrote(member(0)), table.fence)
    assert table.decisions == {}


def test_an_abort_leaves_the_number_free() -> None:
    table = Table(member(0), member(1), member(2, owner=OTHER))
    abort(table, OWNER, [member(0).member], table.fence)
    assert table.fenced == [member(0).member, member(1).member]
    table.open[member(0).member] = member(0, epoch=1)
    assert commit(table, wrote(member(0, epoch=1)), table.fence)


def test_an_abort_that_no_task_told_of_ends_what_any_sink_left_open() -> None:
    """In foreachBatch only the tasks know the query, and none of them came to its end."""
    somebodys = MemberWrote("somebody's own member", 9, 0)
    table = Table(member(0), member(1, owner=JOB), somebodys)
    abort(table, None, [], table.fence)
    assert table.open == {somebodys.member: somebodys}


def test_an_abort_of_a_group_that_nobody_uses_again_is_decided() -> None:
    """So that a task that Spark still ends finds it out when it begins after this."""
    table = Table(member(0))
    abort(table, OWNER, [], table.fence, last=7)
    assert table.fenced == [member(0).member]
    assert table.decision(7).outcome == "abort"


def test_an_abort_after_a_commit_whose_answer_was_lost_changes_nothing() -> None:
    table = Table(member(0))
    commit(table, wrote(member(0)), table.fence)
    abort(table, OWNER, [member(0).member], table.fence, last=7)
    assert table.decision(7).outcome == "commit"


def test_a_batch_without_rows_decides_nothing() -> None:
    table = Table()
    assert commit(table, wrote(), table.fence)
    assert table.decisions == {}


@pytest.mark.parametrize(
    ("listing", "fencing"),
    [
        (AdminUnreachable("no answer in 30 s"), None),
        (AdminRefused(403, "CLUSTER_AUTHORIZATION_FAILED", "not you.", ""), None),
        (None, TIMED_OUT),
    ],
)
def test_a_batch_that_is_committed_is_not_failed_by_what_comes_after(
    caplog, listing, fencing
) -> None:
    """Spark would write it again, and a batch write without a number of its own under another group."""
    table = Table(member(0), member(0, attempt=1))
    table.listing, table.fencing = listing, fencing
    assert commit(table, wrote(member(0)), table.fence)
    assert table.decisions[7].outcome == "commit"
    assert "batch 7 is committed; could not end what was left open" in caplog.text


def test_a_batch_that_an_earlier_run_committed_is_not_failed_either(caplog) -> None:
    table = Table(member(0))
    commit(table, wrote(member(0)), table.fence)
    table.open[member(0).member] = member(0, epoch=1)
    table.fencing = TIMED_OUT
    assert not commit(table, wrote(member(0, epoch=1)), table.fence)
    assert "batch 7 is committed; could not end" in caplog.text


def test_why_a_batch_is_refused_is_told_even_if_its_rows_can_not_be_ended(caplog) -> None:
    table = Table(member(0))
    table.decisions[7] = Decision(number=7, outcome="commit", members=(member(0, owner=OTHER),))
    table.fencing = TIMED_OUT
    with pytest.raises(CouldNotCommit, match="committed by another query"):
        commit(table, wrote(member(0)), table.fence)
    assert "could not end what batch 7 wrote" in caplog.text


def test_in_a_group_that_is_too_large_to_be_listed_what_is_listed_is_ended(caplog) -> None:
    copy = member(0, attempt=1)
    table = Table(member(0), copy)
    table.listing = MembersLeftOut(table.name, 5, {copy.member: copy})
    assert commit(table, wrote(member(0)), table.fence)
    assert table.fenced == [copy.member]
    assert "5 members beyond those that are listed" in caplog.text
    abort(table, OWNER, [member(3).member], table.fence)
    assert table.fenced[1:] == [copy.member, member(3).member]
