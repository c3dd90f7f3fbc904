import random
from collections import Counter

import pytest
from fencepost.cluster.controller.decision import CommandRefused
from fencepost.cluster.controller.placement_policy import place
from fencepost.cluster.metadata.image import BrokerState
from hypothesis import given
from hypothesis import strategies as st


def brokers(*racks: str | None, fenced: tuple[int, ...] = ()) -> list[BrokerState]:
    return [
        BrokerState(number, number, None, (), rack=rack, fenced=number in fenced)  # type: ignore[arg-type]
        for number, rack in enumerate(racks, start=1)
    ]


def test_one_broker_has_everything() -> None:
    placed = place(brokers(None), 5, 1, random.Random(1))
    assert {(each.replicas, each.isr, each.leader) for each in placed} == {((1,), (1,), 1)}
    assert len(placed) == 5


def test_leaders_are_spread_evenly_and_no_two_brokers_share_everything() -> None:
    placed = place(brokers(*[None] * 5), 100, 3, random.Random(1))
    assert set(Counter(each.leader for each in placed).values()) == {20}
    replicas = Counter(broker for each in placed for broker in each.replicas)
    assert max(replicas.values()) - min(replicas.values()) <= 5
    after_one = {each.replicas[1] for each in placed if each.leader == 1}
    assert len(after_one) == 4


def test_replicas_are_on_different_racks_while_there_are_enough() -> None:
    racks = ("a", "a", "b", "b", "c", "c")
    for each in place(brokers(*racks), 60, 3, random.Random(1)):
        assert {racks[broker - 1] for broker in each.replicas} == {"a", "b", "c"}


def test_fenced_brokers_are_taken_last_and_never_lead() -> None:
    placed = place(brokers(None, None, None, fenced=(2,)), 30, 3, random.Random(1))
    for each in placed:
        assert each.leader in (1, 3) and 2 not in each.isr and each.replicas[-1] == 2


@pytest.mark.parametrize("racks", [(None, None, None), ("a", "b", "c")])
@pytest.mark.parametrize("seed", range(5))
def test_three_nodes_lead_as_much_and_stand_in_for_each_other(racks, seed) -> None:
    """As Kafka's StripedReplicaPlacer: leaders take turns, and when one dies the others share what it led."""
    placed = place(brokers(*racks), 12, 3, random.Random(seed))
    assert Counter(each.leader for each in placed) == {1: 4, 2: 4, 3: 4}
    for dead in (1, 2, 3):
        heirs = Counter(each.replicas[1] for each in placed if each.leader == dead)
        assert sorted(heirs.values()) == [2, 2]


def test_two_of_three_replicas_are_on_both_racks() -> None:
    placed = place(brokers("a", "b", "b"), 12, 2, random.Random(1))
    assert all(1 in each.replicas for each in placed)
    assert Counter(each.leader for each in placed) == {1: 4, 2: 4, 3: 4}


@pytest.mark.parametrize(
    ("known", "factor", "why"),
    [
        (brokers(None), 2, "only 1 broker\\(s\\) are registered"),
        (brokers(None, fenced=(1,)), 1, "All brokers are currently fenced."),
        ([], 1, "All brokers are currently fenced."),
        (brokers(None, None), 0, "Invalid replication factor 0: .* must be positive"),
        (brokers(None, None), -3, "Invalid replication factor -3: .* must be positive"),
    ],
)
def test_what_can_not_be_placed_is_refused(known, factor, why) -> None:
    with pytest.raises(CommandRefused, match=why):
        place(known, 1, factor, random.Random(1))


@given(
    st.lists(st.sampled_from(["a", "b", None]), min_size=1, max_size=7),
    st.integers(1, 20),
    st.integers(1, 5),
    st.integers(0, 9),
    st.data(),
)
def test_every_partition_has_that_many_different_replicas(racks, count, factor, seed, data) -> None:
    known = brokers(*racks, fenced=tuple(data.draw(st.lists(st.integers(1, 7), max_size=3))))
    try:
        placed = place(known, count, factor, random.Random(seed))
    except CommandRefused:
        assert factor > len(known) or all(each.fenced for each in known)
        return
    assert len(placed) == count
    for each in placed:
        assert len(set(each.replicas)) == factor == len(each.replicas)
        assert each.leader == each.isr[0] in each.replicas
        assert not any(known[broker - 1].fenced for broker in each.isr)
