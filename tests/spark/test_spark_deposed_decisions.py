"""`transactions=task` on a Kafka whose leader was deposed and has not heard of it: what a task committed is found all the same."""

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Message
from fencepost.clients.binlog.reading import read_to_end
from fencepost.clients.spark import task_decisions
from fencepost.clients.spark.task_decisions import NOT_YET, DecisionRecords
from spark_topics import Served
from test_spark_task_decisions import Attempt

pytestmark = pytest.mark.slow


class Deposed(Consumer):  # type: ignore[misc]
    """The first ones that are made find a leader whose log is empty yet."""

    left = 0

    def __init__(self, *settings: object) -> None:
        super().__init__(*settings)
        self._is_deposed = Deposed.left > 0
        Deposed.left -= self._is_deposed

    def get_watermark_offsets(self, *asked: object) -> tuple[int, int]:
        first, end = super().get_watermark_offsets(*asked)
        return first, 0 if self._is_deposed else end

    def consume(self, *asked: object) -> list[Message]:
        return [] if self._is_deposed else super().consume(*asked)


@pytest.mark.parametrize("clients", [1, 3])
def test_a_decision_is_found_though_a_deposed_leader_has_not_got_it(
    node: Served, fresh: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, clients: int
) -> None:
    """The task would be written again."""
    decisions, name = fresh("decisions"), fresh("task")
    Attempt(node, name, decisions).commit(7)
    monkeypatch.setattr(task_decisions, "Consumer", Deposed)
    Deposed.left = clients
    assert Attempt(node, name, decisions).before == 7
    assert Deposed.left == 0


def test_who_finds_deposed_leaders_alone_knows_nothing(
    node: Served, fresh: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    decisions, name = fresh("decisions"), fresh("task")
    assert Attempt(node, name, decisions).before == NOT_YET
    monkeypatch.setattr(task_decisions, "Consumer", Deposed)
    monkeypatch.setattr(task_decisions, "CREATE_S", 2.0)
    monkeypatch.setattr(Deposed, "left", 1_000)
    with pytest.raises(
        TimeoutError, match=rf"^{decisions}-\d ends at 0, say those that were asked"
    ):
        DecisionRecords(node.bootstrap, {}, decisions, name).last()


def test_what_an_attempt_marks_the_end_with_stays_nowhere(
    node: Served, fresh: Callable[[str], str]
) -> None:
    decisions, name = fresh("decisions"), fresh("task")
    Attempt(node, name, decisions).commit(7)
    told = read_to_end({"bootstrap.servers": node.bootstrap}, decisions)
    assert {each.key() for each in told if each.value() is not None} == {name.encode()}
