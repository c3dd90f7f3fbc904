"""The driver's decision, with a group that is a table: what it says to a driver that comes again."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, KafkaException
from fencepost.clients.spark import commit_refusals, sink_commit
from fencepost.clients.spark.commit_refusals import Wrote
from fencepost.clients.spark.sink_commit import CouldNotCommit, abort, commit
from fencepost.clients.spark.sink_names import JOB, Task, place_in_batch, place_in_stream, whose
from fencepost.clients.transactional import (
    AdminRefused,
    AdminUnreachable,
    Decision,
    MembersLeftOut,
    MemberWrote,
)
from fencepost.txn.transactions import group_commit_machine
from fencepost.txn.transactions.group_commit_commands import Identity, Refusal
from sink_table import OTHER, OWNER, Table, member, wrote
from support.added_scene import AddedScene
from support.module_clock import set_clock


@pytest.fixture(autouse=True)
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What happens while somebody sleeps, in turn; the time does not go by."""
    happens: list[Callable[[], None]] = []

    def sleep(_: float) -> None:
        if happens:
            happens.pop(0)()

    set_clock(monkeypatch, sink_commit, sleep=sleep)
    return happens


TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT))


def test_all_members_are_committed_under_the_batch_id() -> None:
    table = Table(member(0), member(1))
    assert commit(table, wrote(member(0), member(1)), table.fence)
    assert table.decided[7].members == (member(0), member(1))
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
    assert table.decided[7].members == (member(0), member(1))


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
    table.decided[7] = theirs
    with pytest.raises(CouldNotCommit, match="committed by another query"):
        commit(table, Wrote(7, OWNER, (), found_decided=True), table.fence)


def test_a_number_that_is_too_old_to_be_known_is_refused() -> None:
    table = Table()
    table.decided[7] = Decision(number=7, outcome="forgotten")
    with pytest.raises(CouldNotCommit, match="older than what the cluster remembers"):
        commit(table, Wrote(7, OWNER, (), found_decided=True), table.fence)


def test_a_decision_of_another_query_is_not_taken_for_ours() -> None:
    table = Table(member(0))
    theirs = Decision(number=7, outcome="commit", members=(member(0, owner=OTHER),))
    table.decided[7] = theirs
    with pytest.raises(
        CouldNotCommit, match=r"committed by another query \(q22222222, this one is"
    ):
        commit(table, wrote(member(0)), table.fence)
    assert table.open == {}
    assert table.decided[7] == theirs


def test_a_batch_of_foreach_batch_is_not_left_out_because_its_checkpoint_was_deleted() -> None:
    def batch_0(query: str) -> Wrote:
        return write_to("out", Task(0, 0, query, 0))

    first, anew = batch_0("query-one"), batch_0("query-two")
    table = Table(*first.members)
    assert commit(table, first, table.fence)
    table.open = {each.member: each for each in anew.members}
    with pytest.raises(CouldNotCommit, match="one whose checkpoint was deleted"):
        commit(table, anew, table.fence)
    assert table.open == {}


def write_to(topic: str | None, task: Task) -> Wrote:
    """A save() under number 0."""
    place = place_in_batch(task, Table.name, 0, "uuid", topic)
    return Wrote(place.number, place.owner, (MemberWrote(place.member, 100, 0),))


IN_QUERY, NO_QUERY = Task(0, 0, "query-one", 0), Task(0, 0, "", None)


@pytest.mark.parametrize("task", [IN_QUERY, NO_QUERY], ids=["foreachBatch", "job"])
@pytest.mark.parametrize("topic", ["other", None], ids=["other", "each row's own"])
@pytest.mark.parametrize("finds", [True, False], ids=["its task finds it", "its driver finds it"])
def test_a_second_write_of_a_number_to_another_topic_is_not_left_out(
    task: Task, topic: str | None, *, finds: bool
) -> None:
    """save() would succeed, and its rows be nowhere."""
    first, second = write_to("out", task), write_to(topic, task)
    table = Table(*first.members)
    assert commit(table, first, table.fence)
    again = replace(second, members=(), found_decided=True) if finds else second
    table.open = {each.member: each for each in again.members}
    with pytest.raises(
        CouldNotCommit, match=r"committed by a write to another topic .* of its own"
    ):
        commit(table, again, table.fence)
    assert table.open == {}


@pytest.mark.parametrize("task", [IN_QUERY, NO_QUERY], ids=["foreachBatch", "job"])
def test_what_an_older_build_committed_is_not_written_again_nor_refused(task: Task) -> None:
    """Its names had no topic in them. The driver died before Spark noted the batch, and was started with this build."""
    again = write_to("out", task)
    older = member(0, owner=whose(again.owner))
    table = Table(*again.members, older)
    table.decided[0] = Decision(number=0, outcome="commit", members=(older,))
    assert not commit(table, again, table.fence)
    assert table.open == {}


def test_a_number_of_a_batch_write_is_named_as_such() -> None:
    table = Table(member(0))
    table.decided[7] = Decision(number=7, outcome="commit", members=(member(0, owner=JOB),))
    with pytest.raises(CouldNotCommit, match=r"by a batch write outside of a query \(job, this"):
        commit(table, wrote(member(0)), table.fence)


def test_a_number_that_somebody_closed_is_not_lost_in_silence() -> None:
    table = Table(member(0))
    table.decided[7] = Decision(number=7, outcome="abort")
    with pytest.raises(CouldNotCommit, match="decided to be aborted"):
        commit(table, wrote(member(0)), table.fence)


class Coordinator:
    """Its own words for why: what it says of an end."""

    def __init__(self) -> None:
        self.scene = AddedScene(transaction_group_decisions_max=2)

    def refuses(self, number: int, **members: Identity) -> CouldNotCommit:
        said = self.scene.end_group("job", number, commit=True, **members)
        assert isinstance(said, Refusal), said
        table = Table()
        table.refusal = AdminRefused(409, said.code.name.upper(), said.message, "")
        with pytest.raises(CouldNotCommit) as refused:
            commit(table, wrote(member(0)), table.fence)
        return refused.value


def test_a_door_of_another_cluster_is_told_from_a_number_that_is_too_old() -> None:
    coordinator = Coordinator()
    elsewhere = str(coordinator.refuses(1, a=Identity(5, 0)))
    assert "is adminUrl a door of another cluster than kafka.bootstrap.servers?" in elsewhere
    assert "Is the checkpoint an old copy" not in elsewhere
    for number in (5, 6, 7):
        a = coordinator.scene.opened("job::a")
        assert coordinator.scene.end_group("job", number, commit=True, a=a).is_new
        coordinator.scene.finish()
    too_old = str(coordinator.refuses(5, a=coordinator.scene.opened("job::a")))
    assert "Is the checkpoint an old copy" in too_old


def test_more_tasks_than_one_decision_has_room_for_are_told_what_to_do(monkeypatch) -> None:
    """The coordinator says what is too large; what makes it smaller are fewer tasks."""
    monkeypatch.setattr(group_commit_machine, "BATCH_BYTES_MAX", 200)
    coordinator = Coordinator()
    a, b = (coordinator.scene.opened(f"job::{name}") for name in "ab")
    said = str(coordinator.refuses(1, a=a, b=b))
    assert "none of it: MESSAGE_TOO_LARGE: the decision for 2 members of job takes" in said
    assert "1 tasks wrote rows, and one decision has no room for so many" in said
    assert "coalesce(200) before the write, smaller minPartitions" in said


def test_more_tasks_than_the_door_takes_are_told_the_same(monkeypatch) -> None:
    monkeypatch.setattr(commit_refusals, "MEMBERS_MAX", 1)
    table = Table(member(0), member(1))
    table.refusal = AdminRefused(400, "INVALID_REQUEST", "members may have 1 entries at most", "")
    with pytest.raises(CouldNotCommit, match=r"2 tasks wrote rows, .* coalesce\(200\)"):
        commit(table, wrote(member(0), member(1)), table.fence)


def test_an_abort_leaves_the_number_free() -> None:
    table = Table(member(0), member(1), member(2, owner=OTHER))
    abort(table, wrote(member(0)), table.fence)
    assert table.fenced == [member(0).member, member(1).member]
    table.open[member(0).member] = member(0, epoch=1)
    assert commit(table, wrote(member(0, epoch=1)), table.fence)


def test_what_a_task_begins_while_spark_kills_it_is_ended_as_well(sleeps) -> None:
    """Readers would wait behind it for 15 minutes, for nobody need run this number again."""
    table = Table(member(0))
    again, late = member(0, epoch=2), member(1)
    sleeps += [
        lambda: table.open.update({again.member: again}),
        lambda: table.open.update({late.member: late}),
    ]
    abort(table, wrote(), table.fence)
    assert table.fenced == [member(0).member, late.member]
    assert table.open == {again.member: again}  # which a newer run has begun


def test_what_was_written_is_ended_though_the_doors_are_of_another_cluster() -> None:
    """Nobody could: the name of a group that is used once is drawn, and no rerun has it."""
    table = Table()
    table.refusal = AdminRefused(404, "x", f"{commit_refusals.NOBODY} orders-to-lake.", "")
    with pytest.raises(CouldNotCommit, match=r"orders-to-lake\. Its tasks have just written"):
        commit(table, wrote(member(0), member(1)), table.fence)
    assert table.fenced == [member(0).member, member(1).member]


def test_an_abort_that_no_task_told_of_ends_what_any_sink_left_open() -> None:
    """In foreachBatch only the tasks know the query, and none of them came to its end."""
    somebodys = MemberWrote("somebody's own member", 9, 0)
    table = Table(member(0), member(1, owner=JOB), somebodys)
    abort(table, None, table.fence)
    assert table.open == {somebodys.member: somebodys}


def test_an_abort_of_a_group_that_nobody_uses_again_is_decided() -> None:
    """So that a task that Spark still ends finds it out when it begins after this."""
    table = Table(member(0))
    abort(table, wrote(), table.fence, last=7)
    assert table.fenced == [member(0).member]
    assert table.decision(7).outcome == "abort"


def test_a_batch_without_rows_decides_nothing() -> None:
    table = Table()
    assert commit(table, wrote(), table.fence)
    assert table.decided == {}


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
    assert table.decided[7].outcome == "commit"
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
    table.decided[7] = Decision(number=7, outcome="commit", members=(member(0, owner=OTHER),))
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
    abort(table, wrote(member(3)), table.fence)
    assert table.fenced[1:] == [copy.member, member(3).member]


@pytest.mark.parametrize("finds", [True, False], ids=["its task finds it", "its driver finds it"])
def test_a_batch_of_a_stream_is_not_left_out_because_it_was_committed_to_another_topic(
    *, finds: bool
) -> None:
    """A copied checkpoint with another option topic."""

    def batch_7(topic: str) -> Wrote:
        place = place_in_stream(Task(0, 0, "query-one", 7), Table.name, topic)
        return Wrote(7, place.owner, (MemberWrote(place.member, 100, 0),), is_batch_id=True)

    first, copy = batch_7("out"), batch_7("other")
    table = Table(*first.members)
    assert commit(table, first, table.fence)
    again = replace(copy, members=(), found_decided=True) if finds else copy
    table.open = {each.member: each for each in again.members}
    with pytest.raises(CouldNotCommit, match="from a copy of its checkpoint"):
        commit(table, again, table.fence)
    assert table.open == {}


def test_what_an_older_build_committed_of_a_stream_is_not_written_again_nor_refused() -> None:
    """Its names had no topic in them, and its decisions no note. It was killed before Spark noted the batch."""
    place = place_in_stream(Task(0, 0, "query-one", 7), Table.name, "out")
    again = Wrote(7, place.owner, (MemberWrote(place.member, 100, 0),), is_batch_id=True)
    older, open_still = (member(part, owner=whose(place.owner)) for part in (0, 1))
    table = Table(*again.members, open_still)
    table.decided[7] = Decision(number=7, outcome="commit", members=(older,))
    assert not commit(table, again, table.fence)
    assert table.open == {}, "nor does what it left open hold up readers"
