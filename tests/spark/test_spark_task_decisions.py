"""`transactions=task`, without transaction groups: what Kafka can be promised, seen on a real node and a real Kafka."""

import contextlib
import time
from collections.abc import Callable
from itertools import repeat
from uuid import uuid4
from zlib import crc32

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from fencepost.clients.binlog.reading import read_to_end
from fencepost.clients.spark import task_decisions
from fencepost.clients.spark.sink_writer import CouldNotWrite, MemberWriter
from fencepost.clients.spark.task_decisions import (
    NOT_YET,
    PARTITIONS,
    DecisionRecords,
    Last,
    NotKept,
    TooFewPartitions,
)
from spark_topics import Served, column_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(params=["node", "kafka"])
def brokers(request: pytest.FixtureRequest) -> Served:
    found: Served = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def out(brokers: Served, fresh: Callable[[str], str]) -> str:
    name = fresh("out")
    brokers.create(name, partitions=2)
    return name


class Attempt:
    """One attempt of one task: what `writers.py` does, step by step."""

    def __init__(
        self, node: Served, name: str, decisions: str, formerly: str | None = None
    ) -> None:
        self.writer = MemberWriter(node.bootstrap, name, {})
        self.writer.begin()
        self.decisions = DecisionRecords(node.bootstrap, {}, decisions, name, formerly=formerly)
        self.before = self.decisions.last().batch

    def write(self, topic: str, values: list[str]) -> None:
        self.writer.write(column_of(*values), topic)

    def commit(self, batch: int, rows: str = "") -> None:
        self.writer.commit_with(self.decisions.records(batch, rows))


def test_a_task_that_committed_is_not_written_again(
    brokers: Served, out: str, fresh: Callable[[str], str]
) -> None:
    decisions, name = fresh("decisions"), fresh("task")
    first = Attempt(brokers, name, decisions)
    assert first.before == NOT_YET
    first.write(out, ["a", "b"])
    first.commit(0)
    # The driver never heard of it, and runs the task again.
    assert Attempt(brokers, name, decisions).before == 0
    assert brokers.committed(out) == ["a", "b"]


def moving(name: str, count: int) -> str:
    """A task whose record is in another partition when there are so many."""
    names = (f"{name}.{number}" for number in range(100))
    return next(each for each in names if crc32(each.encode()) % count != place_of(each))


def place_of(name: str) -> int:
    return crc32(name.encode()) % PARTITIONS


def test_a_decision_is_found_when_its_topic_was_given_more_partitions(
    brokers: Served, out: str, fresh: Callable[[str], str]
) -> None:
    decisions, name = fresh("decisions"), moving(fresh("task"), 12)
    first = Attempt(brokers, name, decisions)
    first.write(out, ["a"])
    first.commit(7)
    give(brokers, decisions, 12)
    again = Attempt(brokers, name, decisions)
    assert again.before == 7
    assert again.decisions.records(8)[0]["partition"] == place_of(name), (
        "who sees 8 would not find it"
    )
    again.commit(8)
    assert Attempt(brokers, name, decisions).before == 8


@pytest.mark.parametrize("grown", [False, True], ids=["it has three", "it has eight by now"])
def test_a_topic_that_is_said_to_have_fewer_partitions_than_hold_decisions_is_refused(
    brokers: Served,
    out: str,
    fresh: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    grown: bool,
) -> None:
    """A broker that was cut off before it was given more would hide what a task committed, and its rows would be written again."""
    decisions, name = fresh("decisions"), moving(fresh("task"), 3)
    brokers.create(decisions, partitions=3, cleanup_policy="compact")
    if grown:
        give(brokers, decisions, PARTITIONS)
        Attempt(brokers, name, decisions).commit(7)
        monkeypatch.setattr(task_decisions, "ensure_topic", lambda *_, **__: 3)
    with pytest.raises(
        TooFewPartitions,
        match=rf"{decisions} has 3 partitions.* kept in 8\. Give it that many.* cut off",
    ):
        Attempt(brokers, name, decisions)


def give(brokers: Served, topic: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(20)
    deadline = time.monotonic() + 30
    while len(admin.list_topics(timeout=30).topics[topic].partitions) < count:
        assert time.monotonic() < deadline, "it has no more partitions"


@pytest.mark.parametrize("count", [3, 12])
def test_a_record_of_a_build_that_went_by_the_number_of_partitions_is_found(
    brokers: Served, out: str, fresh: Callable[[str], str], count: int
) -> None:
    """A topic that was made by hand, with more partitions, or with fewer and given eight because that is what the README says."""
    decisions, name = fresh("decisions"), moving(fresh("task"), count)
    brokers.create(decisions, partitions=count, cleanup_policy="compact")
    place = crc32(name.encode()) % count
    brokers.write(decisions, ['{"batch": 7}'], partition=place, key=name.encode())
    if count < PARTITIONS:
        give(brokers, decisions, PARTITIONS)
    again = Attempt(brokers, name, decisions)
    assert again.before == 7
    again.commit(8)
    assert Attempt(brokers, name, decisions).before == 8


def test_what_a_task_committed_under_its_older_name_is_found(
    brokers: Served, out: str, fresh: Callable[[str], str]
) -> None:
    decisions, older = fresh("decisions"), moving(fresh("task"), 5)
    first = Attempt(brokers, older, decisions)
    first.write(out, ["a"])
    first.commit(7)
    name = next(each for each in map(fresh, repeat("newer")) if place_of(each) != place_of(older))
    again = Attempt(brokers, name, decisions, formerly=older)
    assert again.before == 7
    again.commit(8)
    assert Attempt(brokers, name, decisions, formerly=older).before == 8
    assert Attempt(brokers, name, decisions).before == 8


def test_a_decision_topic_that_deletes_what_is_old_is_refused(
    brokers: Served, fresh: Callable[[str], str]
) -> None:
    decisions, name = fresh("decisions"), fresh("task")
    brokers.create(decisions, partitions=PARTITIONS)
    with pytest.raises(NotKept, match=r"cleanup.policy=delete: .* Set it to compact, or name"):
        Attempt(brokers, name, decisions)


@pytest.mark.parametrize("knows", [False, True], ids=["it learns of it", "it knows"])
def test_an_attempt_that_was_overtaken_can_not_commit(
    brokers: Served, out: str, fresh: Callable[[str], str], *, knows: bool
) -> None:
    decisions, name = fresh("decisions"), fresh("task")
    zombie = Attempt(brokers, name, decisions)
    zombie.write(out, ["twice"])
    second = Attempt(brokers, name, decisions)
    second.write(out, ["once"])
    second.commit(0)
    deadline = time.monotonic() + 30
    while knows and zombie.writer.producer.fatal() is None:
        assert time.monotonic() < deadline, "it was never told"
        with contextlib.suppress(CouldNotWrite):
            zombie.write(out, ["twice"])
            zombie.writer.settle()
    with pytest.raises(CouldNotWrite, match="Another run of this query"):
        zombie.commit(0)
    assert brokers.committed(out) == ["once"]


def test_the_marks_of_its_rows_are_found_with_what_a_task_committed(
    brokers: Served, fresh: Callable[[str], str]
) -> None:
    decisions, name = fresh("decisions"), fresh("task")
    Attempt(brokers, name, decisions).commit(7)
    again = Attempt(brokers, name, decisions)
    assert again.decisions.last() == Last(7), "as an older build noted it"
    again.commit(8, "the marks")
    assert Attempt(brokers, name, decisions).decisions.last() == Last(8, "the marks")


def once(partition: int, serial: int) -> str:
    """A task of a save() without a number, whose record is in this partition."""
    names = (f"spark-batch-{uuid4()}::job.p{serial}" for _ in repeat(None))
    return next(each for each in names if place_of(each) == partition)


def test_what_saves_without_a_number_left_a_week_ago_is_forgotten_and_nothing_else(
    brokers: Served, out: str, fresh: Callable[[str], str]
) -> None:
    """The topic would grow with each of them, for ever. A task of today's may be asked for yet."""
    decisions, name = fresh("decisions"), fresh("task")
    Attempt(brokers, name, decisions).commit(7)
    here = place_of(name)
    old, new, named = once(here, 0), once(here, 1), fresh("another's")
    week_ago_ms = int(time.time() * 1000) - 8 * 86_400_000
    for key, at_ms in ((old, week_ago_ms), (new, week_ago_ms + 2 * 86_400_000), (named, 1)):
        told = {"key": key.encode(), "timestamp": at_ms, "partition": here}
        brokers.write(decisions, ['{"batch": 0}'], **told)
    again = Attempt(brokers, name, decisions)
    assert again.before == 7
    assert [each["key"] for each in again.decisions.records(8)] == [name.encode(), old.encode()]
    again.commit(8)
    assert left_in(brokers, decisions) == {
        name: '{"batch": 8}',
        new: '{"batch": 0}',
        named: '{"batch": 0}',
    }
    after = Attempt(brokers, name, decisions)
    assert after.before == 8
    assert len(after.decisions.records(9)) == 1, "once"


def left_in(brokers: Served, topic: str) -> dict[str, str]:
    """What compaction leaves of it."""
    left: dict[str, str] = {}
    for each in read_to_end({"bootstrap.servers": brokers.bootstrap}, topic):
        key, value = each.key().decode(), each.value()
        left.pop(key, None)
        if value is not None:
            left[key] = value.decode()
    return left
