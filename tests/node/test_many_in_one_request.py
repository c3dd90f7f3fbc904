"""One request that asks for many things is answered a little at a time: others have their turn in between."""

from collections.abc import Iterator

import pytest
from fencepost.chaos.sim.clock import SimClock
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.api import ApiKey
from fencepost.node.handlers import find_coordinator
from fencepost.txn.runtime import pace
from sim_node import SimNode
from txn_answers import SETTINGS, prepare
from txn_talk import TOPIC, Producer, Talk

E = ErrorCode
MANY, FEW = 20, 4


@pytest.fixture(scope="module")
def node() -> Iterator[SimNode]:
    node = SimNode(seed="many in one request", **SETTINGS)
    node.start()
    prepare(node)
    yield node
    node.close()


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """That others were given."""
    turns: list[float] = []
    sleep = SimClock.sleep

    async def counted(clock: SimClock, seconds: float) -> None:
        turns.append(seconds)
        await sleep(clock, seconds)

    monkeypatch.setattr(SimClock, "sleep", counted)
    monkeypatch.setattr(pace, "FEW", FEW)
    monkeypatch.setattr(find_coordinator, "KEYS_A_TURN", FEW)
    return turns


def add(node: SimNode, who: Producer, *epochs: int) -> list[ErrorCode]:
    topics = [{"name": TOPIC, "partitions": [0]}]
    rows = [
        {**who.but(producer_epoch=each).fields, "verify_only": False, "topics": topics}
        for each in epochs
    ]
    reply = node.ask(ApiKey.add_partitions_to_txn, 4, transactions=rows)
    return [
        row.topic_results[0].results_by_partition[0].partition_error_code
        for row in reply.results_by_transaction
    ]


def test_a_transaction_that_is_added_to_again_and_again(node: SimNode, turns: list[float]) -> None:
    """3,000 partitions one by one held everybody up for 3.6 s: each writes down all of them."""
    who = Talk(node).begun("begin", "many")
    turns.clear()
    wrong = who.producer_epoch + 1
    epochs = [who.producer_epoch, wrong] * (MANY // 2)
    assert add(node, who, *epochs) == [E.none, E.producer_fenced] * (MANY // 2)
    assert turns.count(0) >= MANY // FEW - 1


def test_a_transaction_that_is_named_once_waits_for_no_turn(
    node: SimNode, turns: list[float]
) -> None:
    who = Talk(node).begun("begin", "once")
    turns.clear()
    assert add(node, who, who.producer_epoch) == [E.none]
    assert turns.count(0) == 0


def test_the_positions_of_many_groups(node: SimNode, turns: list[float]) -> None:
    """40,000 took 0.9 s."""
    asked = [{"group_id": f"g{place}", "topics": None} for place in range(MANY)]
    reply = node.ask(ApiKey.offset_fetch, 8, groups=asked, require_stable=False)
    assert [each.group_id for each in reply.groups] == [each["group_id"] for each in asked]
    assert turns.count(0) >= MANY // FEW - 1


def test_the_coordinators_of_many_groups(node: SimNode, turns: list[float]) -> None:
    """90,000 took 1.2 s."""
    keys = [f"g{place}" for place in range(MANY)]
    reply = node.ask(ApiKey.find_coordinator, 4, key_type=0, coordinator_keys=keys)
    assert [(each.key, each.error_code) for each in reply.coordinators] == [
        (key, E.none) for key in keys
    ]
    assert turns.count(0) >= MANY // FEW
