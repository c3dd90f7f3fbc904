"""A batch that comes again and has no rows any more: what was committed under its number is not written again by the next one.

1. Batch 7 is of the offsets 100 to 200, of which a filter lets 20 rows pass; these are committed as 7.
2. The checkpoint loses its last batch. Spark plans 7 anew, with a smaller maxOffsetsPerTrigger: 100 to 120, none of which pass.
3. Nobody is asked, Spark notes 7, and the 20 rows come in batch 8.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fencepost.clients.spark import sink_commit, writers
from fencepost.clients.spark.commit_refusals import Wrote
from fencepost.clients.spark.option_table import STREAM_SINK
from fencepost.clients.spark.options import WriteOptions, write_options
from fencepost.clients.spark.row_marks import RowMarks
from fencepost.clients.spark.sink_commit import CommitUnknown, CouldNotCommit, commit
from fencepost.clients.spark.sink_names import Place, Task, place_in_batch, place_in_stream
from fencepost.clients.spark.sink_writer import CouldNotWrite
from fencepost.clients.spark.task_decisions import NOT_YET, Last
from fencepost.clients.spark.writers import NOBODY, Driver, TaskWrote, _write
from fencepost.clients.transactional import AdminRefused, AdminUnreachable, Decision
from sink_table import OTHER, Table, batch, member
from spark_topics import Served, column_of

TWENTY = RowMarks(20, 0, 60, 7, 7)
OTHER_ROWS = r"batch 7 of the transaction group orders-to-lake was committed before with other rows: 20 rows .*, and 0 rows"


def empty(number: int, **other: Any) -> Wrote:
    return replace(batch(number=number), found_decided=False, **other)


def with_7_committed() -> Table:
    table = Table(member(0))
    assert commit(table, batch(member(0), number=7, marks=TWENTY), table.fence)
    return table


def test_a_batch_that_was_committed_with_rows_and_comes_again_without_is_refused() -> None:
    table = with_7_committed()
    with pytest.raises(CouldNotCommit, match=OTHER_ROWS):
        commit(table, empty(7), table.fence)
    assert sorted(table.decided) == [7]


def test_a_batch_without_rows_below_one_that_was_committed_is_refused() -> None:
    """It may have been empty the first time, too: whichever it was, Spark runs none but the last one again."""
    table = with_7_committed()
    said = r"batch 7 of the transaction group orders-to-lake was committed before, and batch 6 comes again without rows: Spark"
    with pytest.raises(CouldNotCommit, match=said):
        commit(table, empty(6), table.fence)
    with pytest.raises(CouldNotCommit, match=said):
        commit(table, empty(6, rows_may_differ=True), table.fence)


def test_a_batch_without_rows_after_the_last_one_decides_nothing_and_asks_once() -> None:
    class Asked(Table):
        asked = 0

        def decision(self, number: int) -> Decision:
            raise AssertionError(number)

        def decisions(self, most: int = 1_000) -> tuple[Decision, ...]:
            assert most == 1
            self.asked += 1
            return super().decisions(most)

    table = Asked()
    assert commit(table, empty(0), table.fence), "a group that nobody has begun in"
    table.decided[6] = Decision(number=6, outcome="commit", members=(member(0),))
    assert commit(table, empty(7), table.fence)
    assert commit(table, empty(8), table.fence)
    assert (sorted(table.decided), table.asked, table.fenced) == ([6], 3, [])


def test_rows_may_differ_where_that_was_said(caplog: pytest.LogCaptureFixture) -> None:
    table = with_7_committed()
    assert commit(table, empty(7, rows_may_differ=True), table.fence)
    assert "committed before with other rows" in caplog.text
    assert "What was committed is kept, as rowsDiffer=ignore says" in caplog.text


def test_another_query_s_numbers_are_not_those_of_a_batch_without_rows() -> None:
    """One that is new in the group takes it over with its first rows, and counts in a span of its own."""
    table = with_7_committed()
    assert commit(table, empty(7, owner=OTHER), table.fence)
    assert commit(table, empty(0, owner=OTHER), table.fence)
    rows = replace(batch(member(0, owner=OTHER), number=1, marks=TWENTY), owner=OTHER)
    table.open = {each.member: each for each in rows.members}
    assert commit(table, rows, table.fence)
    with pytest.raises(CouldNotCommit, match=r"the newer query q22222222 has taken"):
        commit(table, empty(8), table.fence)
    with pytest.raises(CouldNotCommit, match=r"batch 1 of .* was committed before with other rows"):
        commit(table, empty(1, owner=OTHER), table.fence)


def test_a_number_that_somebody_chose_is_compared_and_may_come_in_any_order() -> None:
    table = Table(member(0))
    chosen = replace(batch(member(0), number=7, marks=TWENTY), is_batch_id=False)
    assert commit(table, chosen, table.fence)
    assert commit(table, empty(6, is_batch_id=False), table.fence)
    with pytest.raises(CouldNotCommit, match=OTHER_ROWS):
        commit(table, empty(7, is_batch_id=False), table.fence)
    assert commit(table, empty(7, is_batch_id=False, owner=OTHER), table.fence)


def test_a_group_that_is_used_once_is_not_asked() -> None:
    table = Table()
    table.asking = [AssertionError("asked")]
    assert commit(table, empty(0, is_batch_id=False, is_used_once=True), table.fence)


def test_doors_that_do_not_answer_or_refuse_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_commit, "ANSWER_S", 0.0)

    class Away(Table):
        def __init__(self, trouble: Exception) -> None:
            super().__init__()
            self.trouble = trouble

        def decisions(self, most: int = 1_000) -> tuple[Decision, ...]:
            raise self.trouble

    away = Away(AdminUnreachable("GET: no answer in 30 s"))
    with pytest.raises(CommitUnknown, match=r"whether batch 7 .* is committed is not known"):
        commit(away, empty(7), away.fence)
    refuses = Away(AdminRefused(403, "GROUP_AUTHORIZATION_FAILED", "not you.", ""))
    with pytest.raises(CouldNotCommit, match=r"batch 7 .*: GROUP_AUTHORIZATION_FAILED: not you"):
        commit(refuses, empty(7), refuses.fence)
    table = with_7_committed()
    table.asking = [AdminRefused(403, "GROUP_AUTHORIZATION_FAILED", "not you.", "")]
    with pytest.raises(CouldNotCommit, match=r"batch 7 .*: GROUP_AUTHORIZATION_FAILED: not you"):
        commit(table, empty(7), table.fence)


QUERY = "7b0c…-mine"
NO_ROWS = column_of("row").slice(0, 0)


def in_stream(number: int) -> Place:
    return place_in_stream(Task(0, 0, QUERY, number), "night", "out")


def options(**said: str) -> WriteOptions:
    given = {"bootstrap.servers": "here", "topic": "out", "transactiongroup": "night", **said}
    return write_options(given, STREAM_SINK)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., TaskWrote]:
    """A task without rows that commits for itself; `last` is what it wrote before."""

    def one(last: int, place: Place, note: str = "", **said: str) -> TaskWrote:
        class Records:
            def last(self) -> Last:
                return Last(last, note)

        monkeypatch.setattr(writers, "DecisionRecords", lambda *_, **__: Records())
        return _write(options(transactions="task", **said), place, iter([NO_ROWS]))

    return one


def test_a_task_that_commits_for_itself_and_has_no_rows_any_more_is_refused(
    run: Callable[..., TaskWrote],
) -> None:
    said = r"night::.*p0: number 7 was committed before with other rows: 20 rows .*, and 0 rows"
    with pytest.raises(CouldNotWrite, match=said):
        run(7, in_stream(7), TWENTY.note())
    with pytest.raises(CouldNotWrite, match=r"p0: batch 6 is lower than 7, which this task commi"):
        run(7, in_stream(6), TWENTY.note())
    assert run(7, in_stream(7), TWENTY.note(), rowsdiffer="ignore").producer_id == -1
    for last in (NOT_YET, 6):
        told = run(last, in_stream(7), TWENTY.note())
        assert (told.producer_id, told.producer_epoch) == NOBODY


def test_a_task_of_a_group_that_is_used_once_asks_nobody(run: Callable[..., TaskWrote]) -> None:
    place = place_in_batch(Task(0, 0, "", None), None, None, "uuid", "out")
    assert place.is_used_once
    assert run(7, place, TWENTY.note()).marks == RowMarks()


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("transactions", ["group", "task"])
def test_the_rows_of_a_batch_are_there_once_though_it_comes_again_without_them(
    node: Served, topic: str, fresh: Callable[[str], str], transactions: str
) -> None:
    said = {"transactiongroup": fresh("group"), "decisiontopic": fresh("decisions")}
    said |= {**node.writing, "topic": topic, "transactions": transactions}
    chosen = write_options(said, STREAM_SINK)
    driver = Driver(chosen)

    def batch_of(number: int, *rows: str) -> None:
        place = place_in_stream(Task(0, 0, QUERY, number), chosen.group, topic)
        given = [column_of(*rows)] if rows else [NO_ROWS]
        driver.commit([_write(chosen, place, iter(given))], number)

    batch_of(6)
    batch_of(7, "a", "b")
    with pytest.raises((CouldNotCommit, CouldNotWrite), match="committed before with other rows"):
        batch_of(7)
    batch_of(8)
    assert node.committed(topic) == ["a", "b"]
