"""`transactions=task`, without transaction groups: what Kafka can be promised, seen on a real node and a real Kafka."""

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest
from fencepost.clients.spark.sink_writer import CouldNotWrite, MemberWriter
from fencepost.clients.spark.task_decisions import NOT_YET, DecisionRecords
from spark_topics import Served, column_of
from support.kafka_peer import KafkaPeer, NotFetched
from support.needs import give_up, missing

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def kafka() -> Iterator[Served]:
    if reason := missing("kafka"):
        give_up(reason)
    try:
        peer = KafkaPeer()
    except NotFetched as error:
        give_up(str(error))
    with peer:
        yield Served(peer.bootstrap, "")


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

    def __init__(self, node: Served, name: str, decisions: str) -> None:
        self.writer = MemberWriter(node.bootstrap, name, {})
        self.writer.begin()
        self.decisions = DecisionRecords(node.bootstrap, {}, decisions, name)
        self.before = self.decisions.committed_up_to()

    def write(self, topic: str, values: list[str]) -> None:
        self.writer.write(column_of(*values), topic)

    def commit(self, batch: int) -> None:
        self.writer.commit_with(self.decisions.record(batch))


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
