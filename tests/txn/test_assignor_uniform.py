"""The uniform assignor: even, complete, and loath to move anything."""

from itertools import combinations
from uuid import UUID

from fencepost.txn.groups.assignors.spec import GroupSpec, MemberSpec, check_assignment
from fencepost.txn.groups.assignors.uniform import assign
from hypothesis import given
from hypothesis import strategies as st

T = [UUID(int=n) for n in range(1, 5)]


def spec(counts, wishes, assigned=None) -> GroupSpec:
    """`wishes` names the topics (by number) that each member wants."""
    members = {
        member_id: MemberSpec(
            subscribed=frozenset(T[n] for n in wanted if n in counts),
            assigned=(assigned or {}).get(member_id, {}),
        )
        for member_id, wanted in wishes.items()
    }
    wanted = {topic for member in members.values() for topic in member.subscribed}
    return GroupSpec(
        members=members,
        partition_counts={T[n]: count for n, count in counts.items() if T[n] in wanted},
    )


def loads(assignment) -> dict[str, int]:
    return {m: sum(len(p) for p in topics.values()) for m, topics in assignment.items()}


def flat(assignment) -> dict[tuple[UUID, int], str]:
    return {
        (topic, partition): member
        for member, topics in assignment.items()
        for topic, partitions in topics.items()
        for partition in partitions
    }


counts = st.dictionaries(st.integers(0, 3), st.integers(1, 9), max_size=4)
members = st.lists(st.sampled_from("abcdefg"), unique=True, min_size=1, max_size=7)


@given(counts, members, members)
def test_no_two_members_differ_by_more_than_one(counts, before, after) -> None:
    """And a change of members moves only what it must: what is free, and what is over the share."""
    first = assign(spec(counts, {m: range(4) for m in before}))
    again = spec(counts, {m: range(4) for m in after}, first)
    second = assign(again)
    check_assignment(again, second)
    sizes = loads(second).values()
    assert max(sizes) - min(sizes) <= 1
    old, new = flat(first), flat(second)
    share, extras = divmod(sum(counts.values()), len(after))
    had = sorted((loads(first)[m] for m in after if m in first), reverse=True)
    must_move = sum(n for m, n in loads(first).items() if m not in after) + sum(
        max(0, n - share - (place < extras)) for place, n in enumerate(had)
    )
    assert sum(old[tp] != new[tp] for tp in old) == must_move


wishes = st.dictionaries(
    st.sampled_from("abcdef"), st.sets(st.integers(0, 3), max_size=4), min_size=1, max_size=6
)


@given(counts, wishes, wishes)
def test_with_different_wishes_no_single_move_makes_it_more_even(counts, before, after) -> None:
    first = assign(spec(counts, before))
    again = spec(counts, after, first)
    second = assign(again)
    check_assignment(again, second)
    size = loads(second)
    for a, b in combinations(sorted(second), 2):
        for giver, taker in ((a, b), (b, a)):
            for topic, partitions in second[giver].items():
                if partitions and topic in again.members[taker].subscribed:
                    assert size[giver] - size[taker] <= 1, f"{topic} could move {giver} -> {taker}"


@given(counts, wishes)
def test_asking_again_moves_nothing(counts, wishes) -> None:
    first = assign(spec(counts, wishes))
    assert assign(spec(counts, wishes, first)) == first


def test_what_a_member_no_longer_wants_is_taken_away() -> None:
    first = assign(spec({0: 2, 1: 2}, {"a": [0, 1]}))
    second = assign(spec({0: 2, 1: 2}, {"a": [0], "b": [1]}, first))
    assert second == {"a": {T[0]: frozenset({0, 1})}, "b": {T[1]: frozenset({0, 1})}}


def test_topics_with_few_takers_are_handed_out_before_those_with_many() -> None:
    """`a` alone wants topic 0; topic 1 goes to those who got less."""
    result = assign(spec({0: 3, 1: 4}, {"a": [0, 1], "b": [1], "c": [1]}))
    assert loads(result) == {"a": 3, "b": 2, "c": 2}


def test_a_target_that_was_written_by_halves_is_put_right() -> None:
    """A crash between two batches of one decision: both have partition 1, and 7 is of another time."""
    both = {"a": {T[0]: frozenset({0, 1})}, "b": {T[0]: frozenset({1, 7})}}
    group = spec({0: 4}, {"a": [0], "b": [0]}, both)
    result = assign(group)
    check_assignment(group, result)
    assert result["a"] == {T[0]: frozenset({0, 1})}


def test_nobody_and_nothing_are_assigned_too() -> None:
    assert assign(spec({}, {})) == {}
    assert assign(spec({}, {"a": [0]})) == {"a": {}}
