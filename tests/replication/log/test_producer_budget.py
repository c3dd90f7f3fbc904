"""How many producers a node remembers, and who is forgotten beyond that."""

from fencepost.replication.log.producer_budget import ProducerBudget
from fencepost.replication.log.producer_verdicts import Duplicate
from fencepost.replication.log.producers_machine import TOUCH_MS, ProducersMachine
from hypothesis import given
from hypothesis import strategies as st
from producer_helpers import NOW, Given, Produced


def test_beyond_the_budget_those_unseen_the_longest_go() -> None:
    log = Given(ProducersMachine(budget=ProducerBudget(3)))
    log.wrote(Produced(0, producer_id=1, is_transactional=True))
    for producer_id in (2, 3):
        log.wrote(Produced(0, producer_id=producer_id))
    log.now_ms += TOUCH_MS
    log.wrote(Produced(1, producer_id=2), Produced(0, producer_id=4))
    assert [state.producer_id for state in log.machine.states()] == [1, 2, 4]
    assert log.machine.budget.count == 3


def test_partitions_share_the_budget_and_give_back_what_they_drop() -> None:
    budget = ProducerBudget(4)
    one, two = (Given(ProducersMachine(budget=budget)) for _ in range(2))
    for producer_id in range(4):
        one.wrote(Produced(0, producer_id=producer_id))
    two.wrote(Produced(0, producer_id=9), Produced(0, producer_id=10))
    assert budget.count == len(one.machine) + len(two.machine)
    one.machine.reset(0)
    assert budget.count == len(two.machine)


def test_whoever_still_writes_is_not_forgotten_for_others() -> None:
    """Its partition has one producer, another one all the rest; it sees the next new one, and is the older there."""
    budget = ProducerBudget(100)
    small, large = (Given(ProducersMachine(budget=budget)) for _ in range(2))
    for producer_id in range(99):
        large.wrote(Produced(0, producer_id=producer_id))
    small.now_ms = large.now_ms + TOUCH_MS
    small.wrote(Produced(0, 10, producer_id=500), Produced(0, producer_id=501))
    assert small.answer(Produced(0, 10, producer_id=500)) == Duplicate(0, 9, 5)
    assert [len(each.machine) for each in (small, large)] == [2, 98]


def test_a_snapshot_beyond_the_budget_costs_whoever_is_the_oldest() -> None:
    """What is loaded first is not worth more for that."""
    budget = ProducerBudget(3)
    old, new = (Given(ProducersMachine(budget=budget), now_ms=NOW + i * TOUCH_MS) for i in range(2))
    for producer_id in range(3):
        old.wrote(Produced(0, producer_id=producer_id))
    given = Given(now_ms=new.now_ms)
    given.wrote(Produced(0, producer_id=8, is_transactional=True), Produced(0, producer_id=9))
    new.machine.restore(given.machine.snapshot(), now_ms=new.now_ms)
    assert [state.producer_id for state in new.machine.states()] == [8, 9]
    assert [state.producer_id for state in old.machine.states()] == [2]
    assert budget.count == 3


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.booleans(), st.integers(0, 3))))
def test_the_forgotten_are_the_oldest_and_the_count_is_right(
    writes: list[tuple[int, int, bool, int]],
) -> None:
    budget = ProducerBudget(12)
    places = [Given(ProducersMachine(budget=budget)) for _ in range(4)]
    seen: dict[tuple[int, int], int] = {}  # everybody who ever wrote, and when last
    now_ms = NOW
    for number, producer_id, transactional, minutes in writes:
        now_ms += minutes * TOUCH_MS
        place = places[number]
        place.now_ms = now_ms
        place.wrote(Produced(producer_id=producer_id, is_transactional=transactional))
        seen[number, producer_id] = now_ms
        kept = {
            (index, state.producer_id): state.txn_first_offset >= 0
            for index, each in enumerate(places)
            for state in each.machine.states()
        }
        assert budget.count == len(kept)
        assert budget.count <= max(12, sum(kept.values()))
        idle = [seen[name] for name, is_open in kept.items() if not is_open]
        gone = [when for name, when in seen.items() if name not in kept]
        assert not idle or not gone or max(gone) <= min(idle) + TOUCH_MS
        seen = {name: when for name, when in seen.items() if name in kept}
