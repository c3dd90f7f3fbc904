"""How many producers a node remembers, and who is forgotten beyond that."""

import pytest
from fencepost.replication.log.producer_budget import ProducerBudget
from fencepost.replication.log.producer_verdicts import Duplicate
from fencepost.replication.log.producers_machine import TOUCH_MS, ProducersMachine
from hypothesis import given, settings
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


# Who writes where, whether in a transaction that stays open, and how long after the last one. Of 40 producers 12 are remembered, so
# that most writes make somebody go; and few transactions, or soon nobody would be left who may.
WRITES = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(0, 9),
        st.sampled_from([False] * 15 + [True]),
        st.integers(0, 3),
    ),
    min_size=40,
    max_size=60,
)


@pytest.mark.slow
def test_the_forgotten_are_the_oldest_and_the_count_is_right() -> None:
    asked: list[
        int
    ] = []  # in each run, how often somebody went while others stayed who might have gone

    @given(WRITES)
    @settings(max_examples=30)
    def any_writes(writes: list[tuple[int, int, bool, int]]) -> None:
        asked.append(_check_who_is_forgotten(writes))

    any_writes()
    assert sum(asked) >= 10 * len(asked) >= 100


def _check_who_is_forgotten(writes: list[tuple[int, int, bool, int]]) -> int:
    budget = ProducerBudget(12)
    places = [Given(ProducersMachine(budget=budget)) for _ in range(4)]
    seen: dict[tuple[int, int], int] = {}  # everybody who was remembered, and when last
    kept: dict[tuple[int, int], bool] = {}  # and whether a transaction is open
    now_ms, asked = NOW, 0
    for number, producer_id, transactional, minutes in writes:
        now_ms += minutes * TOUCH_MS
        place = places[number]
        place.now_ms = now_ms
        place.wrote(Produced(producer_id=producer_id, is_transactional=transactional))
        seen[number, producer_id] = now_ms
        were_open = {name for name, is_open in kept.items() if is_open}
        kept = {
            (index, state.producer_id): state.txn_first_offset >= 0
            for index, each in enumerate(places)
            for state in each.machine.states()
        }
        assert were_open <= kept.keys()
        assert budget.count == len(kept)
        assert budget.count <= max(12, sum(kept.values()))
        idle = [seen[name] for name, is_open in kept.items() if not is_open]
        gone = [when for name, when in seen.items() if name not in kept]
        if idle and gone:
            asked += 1
            assert max(gone) <= min(idle) + TOUCH_MS
        seen = {name: when for name, when in seen.items() if name in kept}
    return asked
