"""`transactions=task`, without transaction groups: what Kafka can be promised, seen on a real node."""

from collections.abc import Callable

import pytest
from fencepost.clients.spark.sink_writer import CouldNotWrite, MemberWriter, Row
from fencepost.clients.spark.task_decisions import NOT_YET, DecisionRecords
from spark_topics import Served

pytestmark = pytest.mark.slow


class Attempt:
    """One attempt of one task: what `writers.py` does, step by step."""

    def __init__(self, node: Served, name: str, decisions: str) -> None:
        self.writer = MemberWriter(node.bootstrap, name, {})
        self.writer.begin()
        self.decisions = DecisionRecords(node.bootstrap, {}, decisions, name)
        self.before = self.decisions.committed_up_to()

    def write(self, topic: str, values: list[str]) -> None:
        self.writer.write(Row(topic, None, each, 0, None) for each in values)

    def commit(self, batch: int) -> None:
        self.writer.commit_with(self.decisions.record(batch))


def test_a_task_that_committed_is_not_written_again(
    node: Served, topic: str, fresh: Callable[[str], str]
) -> None:
    decisions, name = fresh("decisions"), fresh("task")
    first = Attempt(node, name, decisions)
    assert first.before == NOT_YET
    first.write(topic, ["a", "b"])
    first.commit(0)
    # The driver never heard of it, and runs the task again.
    assert Attempt(node, name, decisions).before == 0
    assert node.committed(topic) == ["a", "b"]


def test_an_attempt_that_was_overtaken_can_not_commit(
    node: Served, topic: str, fresh: Callable[[str], str]
) -> None:
    decisions, name = fresh("decisions"), fresh("task")
    zombie = Attempt(node, name, decisions)
    zombie.write(topic, ["twice"])
    second = Attempt(node, name, decisions)
    second.write(topic, ["once"])
    second.commit(0)
    with pytest.raises(CouldNotWrite, match="Another run of this query"):
        zombie.commit(0)
    assert node.committed(topic) == ["once"]
