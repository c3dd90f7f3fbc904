"""One node under faults, a few seeds of it; the campaign is `fencepost sim run --campaign one-node`."""

import asyncio
from typing import Any

import pytest
from fencepost.chaos.campaigns.again import differs
from fencepost.chaos.campaigns.campaign import run_plan
from fencepost.chaos.planted.bugs import Patch
from fencepost.chaos.sim.one_node import OneNode
from fencepost.chaos.sim.plan import Plan
from fencepost.chaos.workloads.wire_stream import Stream, Violation, check
from fencepost.cluster.base.errors import ErrorCode
from fencepost.replication.log.producer_verdicts import ACCEPT, Refused
from fencepost.replication.log.producers_machine import ProducersMachine

SEEDS = range(16)
HUNTED_MAX = 10  # seeds until two batches come at once


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_acknowledged_is_there_once_and_in_order(seed: int) -> None:
    run = OneNode(Plan(campaign="one-node", seed=seed, seconds=5))
    run.run()
    assert run.struck, "a run without faults proves nothing"
    assert all(stream.acknowledged for stream in run.streams)


@pytest.mark.slow
def test_a_seed_replays_exactly_whatever_the_hash_seed() -> None:
    outcome = run_plan(Plan(campaign="one-node", seed=3, seconds=3))
    assert outcome.digest
    assert differs(outcome.plan, outcome.digest) == ""


def refuse_one_behind_another(patch: Patch) -> None:
    """Of a producer's batches that come at once the second is told that it is out of order, once; it is not."""
    right = ProducersMachine.decide
    before: dict[int, float] = {}
    refused: list[int] = []

    def decide(self: ProducersMachine, batch: Any, *, origin_client: bool) -> Any:
        found = right(self, batch, origin_client=origin_client)
        now, who = asyncio.get_running_loop().time(), batch.producer_id
        if not origin_client or found is not ACCEPT or refused:
            return found
        if now - before.get(who, -1.0) < 0.0005:
            refused.append(who)
            return Refused(ErrorCode.out_of_order_sequence_number, "it is not")
        before[who] = now
        return found

    patch.put(ProducersMachine, "decide", decide)


def test_a_batch_behind_one_that_was_acknowledged_is_not_out_of_order() -> None:
    for seed in range(HUNTED_MAX):
        patch = Patch()
        try:
            refuse_one_behind_another(patch)
            failure = run_plan(Plan(campaign="one-node", seed=seed, seconds=5)).failure
        finally:
            patch.take_out()
        if failure:
            break
    assert ": out_of_order_sequence_number for sequence " in failure


def stream(*acknowledged: tuple[int | None, str]) -> Stream:
    values = [value for _, value in acknowledged]
    return Stream("p0", 0, list(acknowledged), values)


@pytest.mark.parametrize(
    ("log", "complaint"),
    [
        pytest.param([(0, "p0/0")], "acknowledged at 1 and lost: p0/1", id="lost"),
        pytest.param([(0, "p0/0"), (1, "p0/1"), (2, "p0/1")], "written twice", id="twice"),
        pytest.param([(0, "p0/0"), (2, "p0/1")], "acknowledged at 1, is at 2", id="elsewhere"),
        pytest.param([(0, "p0/1"), (1, "p0/0")], "acknowledged at", id="swapped"),
        pytest.param([(0, "p0/0"), (1, "p0/1"), (2, "p1/0")], "nobody sent", id="another's"),
    ],
)
def test_the_check_sees_a_broken_promise(log: list[tuple[int, str]], complaint: str) -> None:
    with pytest.raises(Violation, match=complaint):
        check([stream((0, "p0/0"), (1, "p0/1"))], {0: log})


def test_the_check_sees_a_changed_order_of_what_was_not_acknowledged() -> None:
    sent = Stream("p0", 0, [], ["p0/0", "p0/1", "p0/2"])
    with pytest.raises(Violation, match="out of order"):
        check([sent], {0: [(0, "p0/1"), (1, "p0/0")]})
    check([sent], {0: [(0, "p0/0"), (1, "p0/1")]})
