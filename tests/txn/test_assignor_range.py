"""The range assignor: stretches of each topic, in the order of the members."""

from uuid import UUID

from fencepost.txn.groups.assignors.range import assign
from fencepost.txn.groups.assignors.spec import GroupSpec, MemberSpec, check_assignment
from hypothesis import given
from hypothesis import strategies as st

T = [UUID(int=n) for n in range(1, 4)]


def spec(counts, wishes, instances=None) -> GroupSpec:
    members = {
        member_id: MemberSpec(
            subscribed=frozenset(T[n] for n in wanted),
            assigned={},
            instance_id=(instances or {}).get(member_id),
        )
        for member_id, wanted in wishes.items()
    }
    return GroupSpec(members=members, partition_counts={T[n]: c for n, c in counts.items()})


def test_the_first_members_get_one_more() -> None:
    result = assign(spec({0: 7}, {"a": [0], "b": [0], "c": [0]}))
    assert [sorted(result[m][T[0]]) for m in "abc"] == [[0, 1, 2], [3, 4], [5, 6]]


def test_equal_topics_are_cut_equally() -> None:
    result = assign(spec({0: 4, 1: 4}, {"a": [0, 1], "b": [0, 1]}))
    assert all(result[m][T[0]] == result[m][T[1]] for m in "ab")


def test_static_members_come_first_in_the_order_of_their_instance_ids() -> None:
    """So that a restart, with a member id of its own, changes nothing."""
    wishes = {"a": [0], "z": [0], "y": [0]}
    result = assign(spec({0: 3}, wishes, {"z": "1", "y": "2"}))
    assert [min(result[m][T[0]]) for m in "zya"] == [0, 1, 2]
    renamed = assign(spec({0: 3}, {"a": [0], "b": [0], "y": [0]}, {"b": "1", "y": "2"}))
    assert renamed["b"] == result["z"]


def test_more_members_than_partitions_leave_some_without() -> None:
    result = assign(spec({0: 1}, {"a": [0], "b": [0]}))
    assert result == {"a": {T[0]: frozenset({0})}, "b": {}}


@given(
    st.dictionaries(st.integers(0, 2), st.integers(1, 9), min_size=3, max_size=3),
    st.dictionaries(st.text("ab", min_size=1, max_size=3), st.sets(st.integers(0, 2)), max_size=6),
    st.dictionaries(st.text("ab", min_size=1, max_size=3), st.text("xy", max_size=2), max_size=3),
)
def test_every_partition_goes_to_one_member_that_wants_it(counts, wishes, instances) -> None:
    group = spec(counts, wishes, instances)
    result = assign(group)
    check_assignment(group, result)
    for topics in result.values():
        for partitions in topics.values():
            assert sorted(partitions) == list(range(min(partitions), max(partitions) + 1))
