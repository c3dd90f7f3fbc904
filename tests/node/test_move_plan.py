import gc
import random
import time
from collections.abc import Mapping, Sequence

import pytest
from fencepost.node.cli.move_plan import (
    Move,
    Place,
    PlanImpossible,
    after,
    leaders_first,
    loads,
    plan_add,
    plan_drain,
    plan_rebalance,
)
from hypothesis import given, settings
from hypothesis import strategies as st

NO_RACKS: Mapping[int, str | None] = {1: None, 2: None, 3: None, 4: None}


def places(*replicas: Sequence[int], size: int = 10) -> list[Place]:
    return [
        Place(topic="t", partition=index, replicas=tuple(each), size=size)
        for index, each in enumerate(replicas)
    ]


def moved(moves: Sequence[Move]) -> dict[int, tuple[int, ...]]:
    return {move.partition: move.after for move in moves}


def test_a_drained_node_is_empty_and_the_others_share_what_it_had() -> None:
    before = places((1, 2), (2, 3), (3, 4), (4, 1))
    plan = plan_drain(before, NO_RACKS, 4)
    then = loads(after(before, plan), (1, 2, 3))
    assert sorted(each[0] for each in then.values()) == [2, 3, 3]
    assert sorted(moved(plan)) == [2, 3]
    assert not any(4 in each for each in moved(plan).values())


def test_a_replica_goes_to_the_rack_that_has_none_yet() -> None:
    racks = {1: "a", 2: "b", 3: "b", 4: "a"}
    assert moved(plan_drain(places((1, 2), (3, 1)), racks, 1)) == {0: (4, 2), 1: (3, 4)}


def test_draining_is_refused_where_too_few_would_be_left() -> None:
    with pytest.raises(
        PlanImpossible, match=r"t-0 has 3 replicas, .* node.id=3 and an empty folder"
    ):
        plan_drain(places((1, 2, 3)), {1: None, 2: None, 3: None}, 3)
    with pytest.raises(PlanImpossible, match="the only one that is alive"):
        plan_drain(places((1,)), {1: None}, 1)


def test_a_new_node_gets_its_share_and_nothing_else_moves() -> None:
    before = places(*[(1, 2, 3), (2, 3, 1), (3, 1, 2)] * 4)
    plan = plan_add(before, NO_RACKS, 4)
    then = loads(after(before, plan), NO_RACKS)
    assert {node: each[:2] for node, each in then.items()} == dict.fromkeys((1, 2, 3, 4), (9, 3))
    assert sum(len(move.added) for move in plan) == 9
    assert all(move.added in ((4,), ()) for move in plan)


def test_the_smaller_of_two_that_are_as_good_moves() -> None:
    before = [
        Place(topic="t", partition=0, replicas=(1,), size=1_000),
        Place(topic="t", partition=1, replicas=(1,), size=1),
    ]
    (move,) = plan_rebalance(before, {1: None, 2: None})
    assert (move.partition, move.after, move.bytes_copied) == (1, (2,), 1)


def test_an_even_cluster_is_left_alone() -> None:
    before = places((1, 2), (2, 3), (3, 1))
    assert plan_rebalance(before, {1: None, 2: None, 3: None}) == []


def test_partitions_that_are_on_too_few_racks_are_spread_and_the_others_left_alone() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    before = places((1, 2), (3, 4), (1, 3), (2, 4))
    plan = plan_rebalance(before, racks)
    assert sorted(moved(plan)) == [0, 1]
    for each in after(before, plan):
        assert {racks[node] for node in each.replicas} == {"a", "b"}
    then = loads(after(before, plan), racks)
    assert {each[0] for each in then.values()} == {2}


def test_a_replica_that_shares_a_rack_moves_before_the_leader_does() -> None:
    racks = {1: "a", 2: "a", 3: "b"}
    assert moved(plan_rebalance(places((1, 2)), racks)) == {0: (1, 3)}


def many(topics: int) -> tuple[list[Place], dict[int, str | None]]:
    """Ten thousand partitions, unevenly placed."""
    rng = random.Random(7)
    found = []
    for index in range(10_000):
        nodes = sorted(range(1, 6), key=lambda each: rng.random() * each)
        found.append(
            Place(
                topic=f"t{index % topics}",
                partition=index // topics,
                replicas=tuple(nodes[:3]),
                size=rng.randrange(10**9),
            )
        )
    return found, {node: f"r{node % 3}" for node in range(1, 6)}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "topics"), [("drain", 1), ("add", 50), ("rebalance", 5000)])
def test_a_plan_for_ten_thousand_partitions_is_made_in_a_moment(kind: str, topics: int) -> None:
    """It looked through all that can't go before each move: 10 to 100 s. A tenth of that budget is used now."""
    before, racks = many(topics)
    gc.collect()  # what other tests have left is not to be looked through while this one is timed
    gc.freeze()
    began = time.process_time()
    if kind == "drain":
        plan = plan_drain(before, racks, 1)
    elif kind == "add":
        plan = plan_add(before, {**racks, 6: "r0"}, 6)
    else:
        plan = plan_rebalance(before, racks)
    took_s = time.process_time() - began
    gc.unfreeze()
    assert len(plan) > 3_000
    assert took_s < 2


def test_leaders_are_evened_out_without_copying_anything() -> None:
    before = places((1, 2), (1, 2), (1, 2), (1, 2))
    plan = plan_rebalance(before, {1: None, 2: None})
    assert [move.after for move in plan] == [(2, 1), (2, 1)]
    assert sum(move.bytes_copied for move in plan) == 0


def test_a_node_is_relieved_of_its_leaders_before_anything_is_copied() -> None:
    plan = plan_drain(places((1, 2), (2, 1), (1,)), {1: None, 2: None, 3: None}, 1)
    assert [(each.partition, each.after) for each in leaders_first(plan, 1)] == [(0, (2, 1))]


def test_it_evens_out_over_a_third_node_where_it_can_not_directly() -> None:
    """1 has one that 3 has already; 2 can take it, and give another one to 3."""
    before = places((1, 3), (1, 3), (1, 2), (2, 1))
    racks = {1: None, 2: None, 3: None}
    then = loads(after(before, plan_rebalance(before, racks)), racks)
    assert sorted(each[0] for each in then.values()) == [2, 3, 3]


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Place], dict[int, str | None]]:
    nodes = draw(st.integers(2, 6))
    racks = {
        node: draw(st.sampled_from(("a", "b", "c"))) if draw(st.booleans()) else "a"
        for node in range(1, nodes + 1)
    }
    if draw(st.booleans()):
        racks = dict.fromkeys(racks)
    factor = st.integers(1, min(3, nodes - 1))
    found = []
    for index in range(draw(st.integers(0, 14))):
        order = draw(st.permutations(range(1, nodes + 1)))
        replicas = tuple(order[: draw(factor)])
        topic = draw(st.sampled_from("tu"))
        size = draw(st.integers(0, 99))
        found.append(Place(topic=topic, partition=index, replicas=replicas, size=size))
    return found, racks


def spread(replicas: Sequence[int], racks: Mapping[int, str | None]) -> int:
    return len({racks[each] for each in replicas})


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(clusters(), st.sampled_from(("drain", "add", "rebalance")), st.integers(1, 6))
def test_a_plan_is_valid_and_balanced_and_moves_no_more_than_it_must(
    cluster: tuple[list[Place], dict[int, str | None]], kind: str, node: int
) -> None:
    before, racks = cluster
    node = 1 + node % len(racks)
    if kind == "drain":
        plan = plan_drain(before, racks, node)
    elif kind == "add":
        plan = plan_add(before, racks, node)
    else:
        plan = plan_rebalance(before, racks)
    then = after(before, plan)
    for old, new in zip(before, then, strict=True):
        assert len(set(new.replicas)) == len(new.replicas) == len(old.replicas)
        assert set(new.replicas) <= set(racks)
        if kind == "drain":
            assert node not in new.replicas
            without = {key: rack for key, rack in racks.items() if key != node}
            most = min(len(new.replicas), len(set(without.values())))
            assert spread(new.replicas, racks) >= min(spread(old.replicas, racks), most)
            assert set(old.replicas) - {node} <= set(new.replicas)
        elif kind == "add":
            assert spread(new.replicas, racks) >= spread(old.replicas, racks)
        else:
            most = min(len(new.replicas), len(set(racks.values())))
            assert spread(new.replicas, racks) == most
    count = sum(len(move.added) for move in plan)
    was = {each: load[0] for each, load in loads(before, racks).items()}
    now = {each: load[0] for each, load in loads(then, racks).items()}
    if kind == "drain":
        assert count == was[node]
    elif kind == "add":
        assert all(move.added in ((), (node,)) for move in plan)
        assert count == now[node] - was[node]
    if set(racks.values()) == {None} and kind == "rebalance":
        assert max(now.values()) - min(now.values()) <= 1
        # Each node that has too much gives away just that: over others only where it can't be helped.
        surplus = sum(max(0, was[each] - now[each]) for each in racks)
        assert count >= surplus
        single = all(len(each.replicas) == 1 for each in before)
        assert count == surplus or not single
    assert len({move.partition for move in plan}) == len(plan)


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(clusters())
def test_leaders_are_evened_out_as_far_as_replicas_allow(
    cluster: tuple[list[Place], dict[int, str | None]],
) -> None:
    """No node that leads two more than another could give it one that it has a replica of."""
    before, racks = cluster
    then = after(before, plan_rebalance(before, racks))
    led = {node: each[1] for node, each in loads(then, racks).items()}
    for place in then:
        for other in place.replicas[1:]:
            assert led[place.replicas[0]] - led[other] < 2
