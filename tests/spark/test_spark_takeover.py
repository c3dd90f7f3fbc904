"""Two queries that were given one group: the one that came last has it, and the older one is refused and says so."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fencepost.clients.spark.commit_refusals import Wrote
from fencepost.clients.spark.option_table import STREAM_SINK
from fencepost.clients.spark.options import write_options
from fencepost.clients.spark.row_marks import RowMarks, marks_of
from fencepost.clients.spark.sink_commit import CouldNotCommit, commit
from fencepost.clients.spark.sink_names import Task, owner_of_query, place_in_stream
from fencepost.clients.spark.sink_writer import CouldNotWrite
from fencepost.clients.spark.takeover import FORMERS_MAX, SPAN, Standing, standing
from fencepost.clients.spark.writers import Driver, TaskWrote, _write
from fencepost.clients.transactional import AdminApi, Decision, MemberWrote, TransactionGroup
from sink_table import OTHER, OWNER, Table, batch, member
from spark_topics import Served, column_of

THIRD = "q33333333"


def of(owner: str, number: int, *members: MemberWrote) -> Wrote:
    mine = members or (member(0, owner=owner),)
    return replace(batch(*mine, number=number, marks=RowMarks(1, 0, 1, 5, 5)), owner=owner)


def committed(table: Table, owner: str, number: int) -> bool:
    wrote = of(owner, number)
    table.open |= {each.member: each for each in wrote.members}
    return commit(table, wrote, table.fence)


def refused(table: Table, owner: str, number: int, newer: str) -> None:
    said = rf"batch {number} of the query {owner} was not committed, .* newer query {newer} has taken orders-to-lake over"
    with pytest.raises(CouldNotCommit, match=said):
        committed(table, owner, number)
    assert table.open == {}


def test_the_older_of_two_queries_is_refused_once_the_newer_one_has_committed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each counts its batches for itself: numbers that meet, and numbers that do not."""
    table = Table()
    assert all(committed(table, OWNER, number) for number in (0, 1, 2, 3))
    assert committed(table, OTHER, 0)
    assert f"{OTHER} has taken the group over from {OWNER}" in caplog.text
    refused(table, OWNER, 4, OTHER)
    refused(table, OWNER, 3, OTHER)
    assert committed(table, OTHER, 1)
    refused(table, OWNER, 4, OTHER)
    assert sorted(table.decided) == [0, 1, 2, 3, SPAN, SPAN + 1]


def test_a_query_that_comes_again_goes_on_where_it_was() -> None:
    """Its last batch was committed, and Spark did not note it."""
    table = Table()
    assert committed(table, OWNER, 0)
    for number in (0, 1):
        assert committed(table, OTHER, number)
    again = of(OTHER, 1, member(0, epoch=1, owner=OTHER))
    assert not commit(table, again, table.fence)
    assert not commit(table, replace(again, members=(), found_decided=True), table.fence)
    assert committed(table, OTHER, 2)
    with pytest.raises(CouldNotCommit, match=r"batch 1 of .* was committed before, and so was 2"):
        commit(table, again, table.fence)
    other_rows = of(OTHER, 2, member(0, epoch=1, owner=OTHER))
    other_rows = replace(other_rows, marks=RowMarks(2, 0, 2, 6, 6))
    with pytest.raises(CouldNotCommit, match=r"batch 2 of .* committed before with other rows"):
        commit(table, other_rows, table.fence)


def test_who_was_followed_by_one_that_was_followed_is_refused_by_the_last() -> None:
    table = Table()
    for owner in (OWNER, OTHER, THIRD):
        assert committed(table, owner, 0)
    assert committed(table, THIRD, 1)
    refused(table, OWNER, 1, THIRD)
    refused(table, OTHER, 1, THIRD)


def test_what_the_older_one_has_open_is_fenced_when_the_group_is_taken_over() -> None:
    """It may be about to commit."""
    table = Table()
    assert committed(table, OWNER, 0)
    older, writes = of(OWNER, 1), MemberWrote("job.p0.a0", 9, 0)
    table.open = {each.member: each for each in (*older.members, writes)}
    assert committed(table, OTHER, 0)
    assert table.fenced == [older.members[0].member]
    assert table.open == {writes.member: writes}


def test_a_group_that_was_idle_still_knows_who_had_it() -> None:
    """Of such a group the coordinator keeps the highest decision alone, and one of its members."""
    table = Table()
    for owner in (OWNER, OTHER):
        assert committed(table, owner, 0)
    del table.decided[0]
    refused(table, OWNER, 1, OTHER)
    assert committed(table, OTHER, 1)


def test_numbers_that_somebody_chose_take_no_group_over() -> None:
    """Of batch writes, and in foreachBatch; as high as some clock's."""
    table = Table()
    assert committed(table, OWNER, 0)
    for owner, number in (("job", SPAN + 5), (OTHER, SPAN + 6), ("job", 7)):
        chosen = replace(of(owner, number), is_batch_id=False)
        table.open |= {each.member: each for each in chosen.members}
        assert commit(table, chosen, table.fence)
    job = replace(of("job", 7), is_batch_id=False, members=(), found_decided=True)
    assert not commit(table, job, table.fence)


def test_queries_of_older_builds_that_shared_a_group_are_told_apart_by_their_numbers() -> None:
    """Batches 3, 10 and 4 of two queries were all committed."""
    table = Table()
    for number, owner in ((3, OWNER), (10, OTHER), (4, OWNER)):
        members = (member(0, owner=owner),)
        table.decided[number] = Decision(number=number, outcome="commit", members=members)
    refused(table, OWNER, 5, OTHER)
    assert committed(table, OTHER, 11)


def test_a_query_that_nobody_knows_and_that_is_not_new_takes_nothing_over() -> None:
    """It may have been here, so long ago that its decisions are forgotten: its batch might be written twice."""

    class Forgetful(Table):
        def decision(self, number: int) -> Decision:
            return Decision(number=number, outcome="forgotten")

    table = Forgetful()
    assert committed(table, OWNER, 1)
    with pytest.raises(CouldNotCommit, match="its number is older than what the cluster remembers"):
        committed(table, OTHER, 7)
    assert committed(table, OTHER, 0)


def test_as_many_former_queries_are_named_as_a_note_has_room_for() -> None:
    table = Table()
    for number in range(FORMERS_MAX + 5):
        assert committed(table, f"q{number:08}", 0)
    found = standing(table, THIRD)
    assert (found.span, len(found.formers), found.is_new) == (FORMERS_MAX + 5, FORMERS_MAX, True)
    note = table.decided[(FORMERS_MAX + 4) * SPAN].note
    assert len(note.encode()) < 1_000
    assert marks_of(note) == RowMarks(1, 0, 1, 5, 5)


def test_a_query_alone_asks_for_one_decision() -> None:
    class Asked(Table):
        def decisions(self, most: int = 1_000) -> tuple[Decision, ...]:
            assert most == 1
            return super().decisions(most)

    table = Asked()
    assert standing(table, OWNER) == Standing(is_new=True)
    table.decided[6] = Decision(number=6, outcome="commit", members=(member(0),))
    found = standing(table, OWNER)
    assert [found.may_be_decided(number) for number in (5, 6, 7)] == [True, True, False]


class Query:
    """A stream's tasks and driver, without Spark."""

    def __init__(self, node: Served, topic: str, query: str, **said: str) -> None:
        given = {**node.writing, "topic": topic, **said}
        self.options = write_options(given, STREAM_SINK)
        self.topic, self.query = topic, query

    def task(self, number: int, text: str, partition: int = 0) -> TaskWrote:
        task = Task(partition, 0, self.query, number)
        place = place_in_stream(task, self.options.group, self.topic)
        return _write(self.options, place, iter([column_of(text)]))

    def run(self, number: int, text: str) -> None:
        Driver(self.options).commit([self.task(number, text)], number)


@pytest.fixture
def two(node: Served, topic: str, fresh: Callable[[str], str]) -> Callable[..., list[Query]]:
    def made(served: Served = node, **said: str) -> list[Query]:
        same = {"transactionGroup": fresh("group"), **said}
        return [Query(served, topic, fresh(name), **same) for name in ("older", "newer")]

    return made


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_older_query_is_refused_on_a_node_in_its_tasks_and_by_its_driver(
    node: Served, topic: str, two: Any
) -> None:
    older, newer = two()
    older.run(0, "o0")
    late = older.task(1, "o1")
    newer.run(0, "n0")
    both = f"newer query {owner_of_query(newer.query)} has taken .* over"
    with pytest.raises(CouldNotCommit, match=f"{owner_of_query(older.query)} was not .* {both}"):
        Driver(older.options).commit([late], 1)
    with pytest.raises(CouldNotWrite, match=both):
        older.run(1, "o1")
    newer.run(0, "n0")  # as when Spark has not noted it
    newer.run(1, "n1")
    group = TransactionGroup(older.options.group, AdminApi(node.admin_url))
    assert group.open_members() == {}
    assert node.committed(topic) == ["n0", "n1", "o0"]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_older_query_is_refused_where_each_task_commits_for_itself(
    node: Served, topic: str, two: Any, fresh: Callable[[str], str]
) -> None:
    older, newer = two(transactions="task", decisionTopic=fresh("decisions"))
    older.run(0, "o0")
    newer.run(0, "n0")
    newer.task(0, "n0 of another task", partition=1)
    said = f"query {owner_of_query(older.query)} .* newer query {owner_of_query(newer.query)} has"
    for partition in (0, 5):
        with pytest.raises(CouldNotWrite, match=said):
            older.task(1, "o1", partition)
    newer.run(0, "n0")
    newer.run(1, "n1")
    assert node.committed(topic) == ["n0", "n0 of another task", "n1", "o0"]
