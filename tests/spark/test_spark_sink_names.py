"""What a task calls itself, so that its driver, its retries and other queries are told apart."""

import pytest
from fencepost.clients.spark.options import WrongOption
from fencepost.clients.spark.sink_names import (
    JOB,
    Task,
    owner_of,
    owner_of_query,
    place_in_batch,
    place_in_stream,
)

MINE, OTHER = "7b0c…-mine", "11d2…-other"


def test_a_query_has_the_same_group_and_names_after_every_restart() -> None:
    first = place_in_stream(Task(3, 0, MINE, 42), None)
    assert first == place_in_stream(Task(3, 0, MINE, 42), None)
    assert (first.group, first.number) == (f"spark-{MINE}", 42)
    assert first.member == place_in_stream(Task(3, 0, MINE, 43), None).member


def test_attempts_have_names_of_their_own() -> None:
    names = {place_in_stream(Task(p, a, MINE, 1), None).member for p in range(3) for a in range(2)}
    assert len(names) == 6


def test_another_querys_members_are_told_apart() -> None:
    mine = place_in_stream(Task(0, 0, MINE, 1), "shared")
    other = place_in_stream(Task(0, 0, OTHER, 1), "shared")
    assert mine.group == other.group == "shared"
    assert owner_of(mine.member) == owner_of_query(MINE) != owner_of(other.member)
    assert owner_of("somebody's own member") is None


def test_a_task_that_is_not_told_its_batch_does_not_guess() -> None:
    with pytest.raises(WrongOption, match="did not tell this task its query and batch"):
        place_in_stream(Task(0, 0, "", None), "named")


def test_a_batch_write_without_a_name_has_one_of_its_own() -> None:
    assert place_in_batch(Task(0, 0, "", None), None, None, "uuid").group == "spark-batch-uuid"
    named = place_in_batch(Task(0, 1, "", None), "night", 20, "uuid")
    assert (named.group, named.number, named.member) == ("night", 20, "job.p0.a1")


def test_a_write_in_foreach_batch_must_say_what_makes_it_the_same_again() -> None:
    with pytest.raises(WrongOption, match="transactionNumber=the batch id"):
        place_in_batch(Task(0, 0, MINE, 5), None, None, "uuid")
    assert place_in_batch(Task(0, 0, MINE, 5), "lake", 5, "uuid").number == 5


def test_a_query_whose_checkpoint_was_deleted_is_another_one_in_foreach_batch_too() -> None:
    """Its batch ids begin at 0 again: what was decided for 0 is not this batch."""
    first, again, anew = (
        place_in_batch(Task(0, 0, query, 0), "lake", 0, job)
        for query, job in [(MINE, "job 1"), (MINE, "job 2"), (OTHER, "job 3")]
    )
    assert first == again
    assert (anew.group, anew.number) == (first.group, first.number)
    assert len({first.owner, anew.owner, JOB}) == 3
    assert owner_of(anew.member) == anew.owner == owner_of_query(OTHER)


def test_a_number_is_a_batch_id_only_where_spark_counts_it() -> None:
    assert place_in_stream(Task(0, 0, MINE, 5), None).is_batch_id
    assert place_in_batch(Task(0, 0, MINE, 5), "lake", 5, "uuid").is_batch_id
    assert not place_in_batch(Task(0, 0, MINE, 5), "lake", 20261121, "uuid").is_batch_id
    assert not place_in_batch(Task(0, 0, "", None), "lake", 5, "uuid").is_batch_id
