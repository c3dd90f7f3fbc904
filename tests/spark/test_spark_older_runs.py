"""Two runs of one query, or one with an old checkpoint: the driver's decision, with a group that is a table."""

from dataclasses import replace

import pytest
from fencepost.clients.spark.commit_refusals import Wrote
from fencepost.clients.spark.row_marks import RowMarks
from fencepost.clients.spark.sink_commit import CouldNotCommit, abort, commit
from fencepost.clients.transactional import Decision
from sink_table import ANOTHER_ID, OWNER, Table, batch, member, wrote


def test_an_older_run_is_fenced_and_says_so() -> None:
    table = Table(member(0, epoch=1))
    said = r"another run of this query has begun .* took longer than .* Spark ran a stage again"
    with pytest.raises(CouldNotCommit, match=said):
        commit(table, wrote(member(0)), table.fence)
    assert table.decided == {}


def test_an_older_run_that_was_refused_does_not_end_the_newer_one(caplog) -> None:
    """Spark has the older one abort the batch, whose tasks' names are the newer one's by now."""
    older, newer, another = wrote(member(0), member(1)), member(0, epoch=1), member(2, epoch=1)
    table = Table(newer, member(1), another)
    with pytest.raises(CouldNotCommit, match="another run of this query has begun"):
        commit(table, older, table.fence)
    abort(table, older, table.fence)
    assert table.fenced == []
    assert "a newer run of the query is at work" in caplog.text
    assert commit(table, wrote(newer, another), table.fence)


@pytest.mark.parametrize("newer", [member(0, epoch=1), ANOTHER_ID], ids=["epoch", "id"])
def test_an_older_run_that_finds_its_batch_decided_does_not_end_the_next_one(newer) -> None:
    """1. The newer run found batch 7 decided, and is at 8. 2. The older one, which had been away, is told of 7, too."""
    table = Table(member(0))
    older = batch(member(0), number=7)
    commit(table, older, table.fence)
    table.open = {each.member: each for each in (newer, member(1))}
    assert not commit(table, replace(older, members=(member(0), member(9))), table.fence)
    assert table.fenced == []
    assert commit(table, batch(newer, member(1), number=8), table.fence)


def test_an_older_run_that_finds_its_batch_decided_does_not_end_names_that_it_never_had() -> None:
    """1. Both wrote p0, and the newer run committed it as 7. 2. In 8, which it is at, p1 alone has begun. 3. The older one,
    which had been away, is told of 7."""
    older, newer, after = member(0), member(0, epoch=1), member(1)
    table = Table(newer)
    assert commit(table, batch(newer, number=7), table.fence)
    table.open = {after.member: after}
    assert not commit(table, batch(older, number=7), table.fence)
    assert table.fenced == []
    assert commit(table, batch(after, number=8), table.fence)


def test_a_run_whose_tasks_found_it_decided_does_not_end_who_has_begun_since() -> None:
    """What is open under a name of the decision was not there when it was made."""
    table = Table(member(0))
    assert commit(table, batch(member(0), number=7), table.fence)
    after, lost = member(0, epoch=1), member(4, attempt=1)
    table.open = {each.member: each for each in (after, lost)}
    assert not commit(table, batch(number=7), table.fence)
    assert table.fenced == []
    assert commit(table, batch(after, number=8), table.fence)
    assert table.fenced == [lost.member], "whoever commits next ends it"


def test_an_older_run_does_not_end_a_newer_one_that_has_other_names() -> None:
    """The newer run is two batches further, and has not had this name since."""
    older, newer = batch(member(0, epoch=3), number=7), batch(member(5), number=9)
    table = Table(*older.members, *newer.members)
    for number in (7, 8):
        table.decided[number] = Decision(number=number, outcome="commit", members=(member(0),))
    with pytest.raises(CouldNotCommit, match="If another run of this query is at work"):
        commit(table, older, table.fence)
    assert table.fenced == ["q11111111.p0.a0"]
    abort(table, older, table.fence)
    assert commit(table, newer, table.fence)


@pytest.mark.parametrize("again", [(), (member(0, epoch=1),)], ids=["its tasks", "its driver"])
def test_a_batch_below_the_last_one_is_not_taken_for_the_one_that_was_committed(again) -> None:
    """A checkpoint was put back: Spark plans its batches anew, with rows that nobody has written."""
    table = Table()
    for number in (7, 8, 9):
        table.decided[number] = Decision(number=number, outcome="commit", members=(member(0),))
    table.open = {each.member: each for each in again}
    said = r"batch 8 of .* was committed before, and so was 9: .* Is the checkpoint an old copy"
    with pytest.raises(CouldNotCommit, match=said):
        commit(table, batch(*again, number=8), table.fence)
    assert table.open == {}
    assert not commit(table, batch(number=9), table.fence)


def test_numbers_that_somebody_chose_come_again_in_any_order() -> None:
    """Days: whoever says one means its rows."""
    table = Table()
    for number in (20261121, 20261122):
        table.decided[number] = Decision(number=number, outcome="commit", members=(member(0),))
    assert not commit(table, Wrote(20261121, OWNER, (), found_decided=True), table.fence)


def test_decisions_of_a_querys_other_writes_do_not_make_a_batch_an_old_one() -> None:
    """As of a function that writes to two topics, under twice its batch id and one more."""
    table = Table()
    for number, owner in ((0, OWNER), (1, f"{OWNER}.t11111111")):
        members = (member(0, owner=owner),)
        table.decided[number] = Decision(number=number, outcome="commit", members=members)
    assert not commit(table, batch(number=0), table.fence)


THESE, OTHERS = RowMarks(20, 0, 60, 7, 7), RowMarks(20, 0, 60, 8, 8)
MORE = RowMarks(21, 0, 63, 8, 8)


def committed(marks: RowMarks = THESE, *, number: int = 7) -> Table:
    table = Table(member(0))
    assert commit(table, batch(member(0), number=number, marks=marks), table.fence)
    return table


def test_a_number_that_a_function_chose_does_not_make_its_batch_an_old_one() -> None:
    """It writes twice to one topic: under its batch id, and under a number that it makes of that. Then its driver dies."""
    table = committed(number=7)
    chosen = replace(batch(member(0, epoch=1), number=1_007, marks=MORE), is_batch_id=False)
    table.open = {each.member: each for each in chosen.members}
    assert commit(table, chosen, table.fence)
    for again in (batch(number=7, marks=THESE), batch(member(0, epoch=2), number=7, marks=THESE)):
        assert not commit(table, again, table.fence)
    assert not commit(table, replace(chosen, members=(), found_decided=True), table.fence)
    with pytest.raises(CouldNotCommit, match="committed before with other rows"):
        commit(table, replace(chosen, members=(), found_decided=True, marks=THESE), table.fence)
    table.open = {member(0, epoch=3).member: member(0, epoch=3)}
    assert commit(table, batch(member(0, epoch=3), number=8, marks=OTHERS), table.fence)
    with pytest.raises(CouldNotCommit, match=r"batch 7 of .* was committed before, and so was 8:"):
        commit(table, batch(number=7, marks=THESE), table.fence)


@pytest.mark.parametrize("again", [(), (member(0, epoch=1),)], ids=["its tasks", "its driver"])
@pytest.mark.parametrize(
    ("marks", "said"),
    [(OTHERS, "and as many with other contents now"), (MORE, "and 21 rows with 0 bytes of keys")],
)
def test_other_rows_under_the_last_number_are_not_left_out(again, marks, said) -> None:
    """1. Batch 7 is committed and noted. 2. Its entry in the checkpoint is lost. 3. Spark plans 7 anew, from where 6 ended."""
    table = committed()
    table.open = {each.member: each for each in again}
    said = rf"batch 7 of .* committed before with other rows: 20 rows .* {said}.*older than what was committed.*rowsDiffer=ignore"
    with pytest.raises(CouldNotCommit, match=said):
        commit(table, batch(*again, number=7, marks=marks), table.fence)
    assert table.open == {}


def test_the_last_batch_that_comes_again_with_its_rows_is_over() -> None:
    table = committed()
    assert not commit(table, batch(member(0, epoch=1), number=7, marks=THESE), table.fence)
    assert not commit(table, batch(number=7, marks=THESE), table.fence)


def test_rows_of_a_number_that_somebody_chose_are_compared_too() -> None:
    table = committed()
    for marks in (OTHERS, MORE):
        named = replace(batch(number=7, marks=marks), is_batch_id=False)
        with pytest.raises(CouldNotCommit, match="committed before with other rows"):
            commit(table, named, table.fence)


@pytest.mark.parametrize("note", ["", "2 of a newer build"])
def test_a_decision_without_a_note_is_accepted_as_it_was(note) -> None:
    """Of a build before 2026-11-22, or of a node of one."""
    table = committed()
    table.decided[7] = replace(table.decided[7], note=note)
    assert not commit(table, batch(number=7, marks=OTHERS), table.fence)


def test_a_job_that_is_not_deterministic_may_say_so(caplog) -> None:
    table = committed()
    again = replace(batch(number=7, marks=OTHERS), rows_may_differ=True)
    assert not commit(table, again, table.fence)
    assert "What was committed is kept, as rowsDiffer=ignore says" in caplog.text


def test_nothing_is_noted_in_a_group_that_is_used_once() -> None:
    table = Table(member(0))
    once = replace(wrote(member(0)), marks=THESE, is_used_once=True)
    assert commit(table, once, table.fence)
    assert table.decided[7].note == ""
