"""What a task calls itself, so that its driver, its retries and other queries are told apart."""

import pytest
from fencepost.clients.spark.options import WrongOption
from fencepost.clients.spark.sink_names import (
    JOB,
    MEMBER,
    Task,
    is_own,
    owner_of,
    owner_of_query,
    place_in_batch,
    place_in_stream,
    whose,
)

MINE, OTHER = "7b0c…-mine", "11d2…-other"


def test_a_query_has_the_same_group_and_names_after_every_restart() -> None:
    first = place_in_stream(Task(3, 0, MINE, 42), None, "out")
    assert first == place_in_stream(Task(3, 0, MINE, 42), None, "out")
    assert (first.group, first.number) == (f"spark-{MINE}", 42)
    assert first.member == place_in_stream(Task(3, 0, MINE, 43), None, "out").member


def test_attempts_have_names_of_their_own() -> None:
    names = {
        place_in_stream(Task(p, a, MINE, 1), None, "out").member for p in range(3) for a in range(2)
    }
    assert len(names) == 6


def test_another_querys_members_are_told_apart() -> None:
    mine = place_in_stream(Task(0, 0, MINE, 1), "shared", "out")
    other = place_in_stream(Task(0, 0, OTHER, 1), "shared", "out")
    assert mine.group == other.group == "shared"
    assert owner_of(mine.member) == mine.owner != owner_of(other.member)
    assert whose(mine.owner) == owner_of_query(MINE) != whose(other.owner)
    assert owner_of("somebody's own member") is None


def test_a_task_that_is_not_told_its_batch_does_not_guess() -> None:
    with pytest.raises(WrongOption, match="did not tell this task its query and batch"):
        place_in_stream(Task(0, 0, "", None), "named", "out")


def test_a_batch_write_without_a_name_has_one_of_its_own() -> None:
    assert (
        place_in_batch(Task(0, 0, "", None), None, None, "uuid", "out").group == "spark-batch-uuid"
    )
    named = place_in_batch(Task(0, 1, "", None), "night", 20, "uuid", "out")
    assert (named.group, named.number) == ("night", 20)
    assert MEMBER.fullmatch(named.member)
    assert (owner_of(named.member), whose(named.owner)) == (named.owner, JOB)


def test_a_write_in_foreach_batch_must_say_what_makes_it_the_same_again() -> None:
    with pytest.raises(WrongOption, match="transactionNumber=the batch id"):
        place_in_batch(Task(0, 0, MINE, 5), None, None, "uuid", "out")
    assert place_in_batch(Task(0, 0, MINE, 5), "lake", 5, "uuid", "out").number == 5


def test_a_write_beside_a_query_s_thread_must_say_so_too_and_is_warned_otherwise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In a plain thread of foreachBatch: Spark tells its tasks the session's settings, and not the query."""
    beside = Task(0, 0, "", None, is_of_a_query=True)
    with pytest.raises(WrongOption, match=r"comes again .* pyspark\.InheritableThread"):
        place_in_batch(beside, None, None, "uuid", "out")
    assert caplog.messages == []
    found = place_in_batch(beside, "lake", 5, "uuid", "out")
    assert whose(found.owner) == JOB
    assert (
        "its numbers are no query's" in caplog.text and "pyspark.InheritableThread" in caplog.text
    )
    caplog.clear()
    for task in (Task(0, 0, MINE, 5, is_of_a_query=True), Task(0, 0, "", None)):
        place_in_batch(task, "lake", 5, "uuid", "out")
    assert caplog.messages == []


def test_a_query_whose_checkpoint_was_deleted_is_another_one_in_foreach_batch_too() -> None:
    """Its batch ids begin at 0 again: what was decided for 0 is not this batch."""
    first, again, anew = (
        place_in_batch(Task(0, 0, query, 0), "lake", 0, job, "out")
        for query, job in [(MINE, "job 1"), (MINE, "job 2"), (OTHER, "job 3")]
    )
    assert first == again
    assert (anew.group, anew.number) == (first.group, first.number)
    assert len({first.owner, anew.owner, JOB}) == 3
    assert owner_of(anew.member) == anew.owner
    assert whose(anew.owner) == owner_of_query(OTHER)


@pytest.mark.parametrize("query", [MINE, ""], ids=["foreachBatch", "job"])
def test_writes_of_one_number_to_two_topics_are_two(query: str) -> None:
    out, other, rows_own = (
        place_in_batch(Task(3, 1, query, 5), "lake", 5, "uuid", topic)
        for topic in ("out", "other", None)
    )
    assert len({each.owner for each in (out, other, rows_own)}) == 3
    assert len({each.task for each in (out, other, rows_own)}) == 3
    assert {whose(each.owner) for each in (out, other)} == {owner_of_query(query) if query else JOB}


def test_an_older_builds_names_are_known_as_those_of_the_same_query_alone() -> None:
    """Its names had no topic in them."""
    place = place_in_batch(Task(3, 1, MINE, 5), "lake", 5, "uuid", "out")
    assert place.task_of_any_topic == f"{owner_of_query(MINE)}.p3"
    assert is_own(place.owner, place.owner)
    assert is_own(place.owner, owner_of_query(MINE))
    assert not is_own(place.owner, owner_of_query(OTHER))
    assert not is_own(place.owner, JOB)
    stream = place_in_stream(Task(3, 1, MINE, 5), None, "out")
    assert stream.task_of_any_topic == place.task_of_any_topic
    assert is_own(stream.owner, owner_of_query(MINE))


def test_a_number_is_a_batch_id_only_where_spark_counts_it() -> None:
    assert place_in_stream(Task(0, 0, MINE, 5), None, "out").is_batch_id
    assert place_in_batch(Task(0, 0, MINE, 5), "lake", 5, "uuid", "out").is_batch_id
    assert not place_in_batch(Task(0, 0, MINE, 5), "lake", 20261121, "uuid", "out").is_batch_id
    assert not place_in_batch(Task(0, 0, "", None), "lake", 5, "uuid", "out").is_batch_id


def test_a_copy_of_a_checkpoint_that_writes_elsewhere_is_not_the_query_that_committed() -> None:
    """It has the same query id, so the same group and batch ids."""
    out, other = (place_in_stream(Task(3, 1, MINE, 5), None, topic) for topic in ("out", "other"))
    assert (out.group, out.number) == (other.group, other.number)
    assert not is_own(other.owner, out.owner)
    assert out.task != other.task
    assert whose(out.owner) == whose(other.owner) == owner_of_query(MINE)
