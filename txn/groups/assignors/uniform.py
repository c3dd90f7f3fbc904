"""Kafka's uniform assignor: as even as can be, and with no more moves than that takes.

INVARIANT  where all members want the same topics, no two of them differ by more than one partition,
           and a partition moves only away from a member that has more than its share.
PREVENTS   a member that joins an even group shuffling everybody's partitions, caches and all.
PROVED BY  tests/txn/test_assignor_uniform.py::test_no_two_members_differ_by_more_than_one

Two ways (UniformHomogeneousAssignmentBuilder, UniformHeterogeneousAssignmentBuilder): with equal wishes
everybody's share is known beforehand; with different wishes, what is free goes to the least loaded that wants
it, and then single partitions move from the most to the least loaded until no such move evens anything out.
"""

import heapq
from typing import Final
from uuid import UUID

from .spec import Assignment, GroupSpec, Partitions

NAME = "uniform"
ROUNDS_MAX: Final = 16  # Kafka's; a handful is what even odd groups need

_Owned = dict[str, dict[UUID, set[int]]]


def assign(spec: GroupSpec) -> Assignment:
    owned = _still_wanted(spec)
    if spec.is_homogeneous():
        _share_equally(spec, owned)
    else:
        loads = {member_id: _load(owned[member_id]) for member_id in spec.members}
        _hand_out(spec, owned, loads)
        _balance(spec, owned, loads)
    return {member_id: _frozen(owned[member_id]) for member_id in spec.members}


def _still_wanted(spec: GroupSpec) -> _Owned:
    """What each member had and still may have. A target that was written by halves may give a partition twice.

    One that a group took along from the classic protocol is what a client made up: any numbers at all.
    """
    owned: _Owned = {}
    taken: set[tuple[UUID, int]] = set()
    for member_id in sorted(spec.members):
        member = spec.members[member_id]
        topics = owned[member_id] = {}
        for topic_id in sorted(member.assigned.keys() & member.subscribed):
            count = spec.partition_counts[topic_id]
            mine = {
                p
                for p in member.assigned[topic_id]
                if 0 <= p < count and (topic_id, p) not in taken
            }
            taken.update((topic_id, p) for p in mine)
            topics[topic_id] = mine
    return owned


def _load(topics: dict[UUID, set[int]]) -> int:
    return sum(len(partitions) for partitions in topics.values())


def _frozen(topics: dict[UUID, set[int]]) -> Partitions:
    return {
        topic_id: frozenset(partitions)
        for topic_id, partitions in sorted(topics.items())
        if partitions
    }


def _free(spec: GroupSpec, owned: _Owned) -> dict[UUID, list[int]]:
    """The partitions of each topic that nobody has."""
    taken: dict[UUID, set[int]] = {}
    for topics in owned.values():
        for topic_id, partitions in topics.items():
            taken.setdefault(topic_id, set()).update(partitions)
    return {
        topic_id: [
            partition
            for partition in range(spec.partition_counts[topic_id])
            if partition not in taken.get(topic_id, ())
        ]
        for topic_id in sorted(spec.partition_counts)
    }


# ---- all want the same ----------------------------------------------------------------------------


def _share_equally(spec: GroupSpec, owned: _Owned) -> None:
    """Everybody gets `share` partitions, and some of them one more: first those who have it already."""
    if not spec.members:
        return
    share, extras = divmod(sum(spec.partition_counts.values()), len(spec.members))
    by_load = sorted(owned, key=lambda member_id: (-_load(owned[member_id]), member_id))
    quota = {member_id: share + (place < extras) for place, member_id in enumerate(by_load)}
    for member_id in by_load:
        _give_up(owned[member_id], _load(owned[member_id]) - quota[member_id])
    free = [(topic, partition) for topic, left in _free(spec, owned).items() for partition in left]
    at = 0
    for member_id in sorted(owned):
        missing = quota[member_id] - _load(owned[member_id])
        for topic_id, partition in free[at : at + missing]:
            owned[member_id].setdefault(topic_id, set()).add(partition)
        at += missing
    assert at == len(free), "the shares do not add up to the partitions"


def _give_up(topics: dict[UUID, set[int]], count: int) -> None:
    """Take away `count` partitions, the last ones of the last topics."""
    for topic_id in sorted(topics, reverse=True):
        for partition in sorted(topics[topic_id], reverse=True):
            if count <= 0:
                return
            topics[topic_id].remove(partition)
            count -= 1


# ---- they want different things -------------------------------------------------------------------


def _subscribers(spec: GroupSpec) -> dict[UUID, list[str]]:
    wanting: dict[UUID, list[str]] = {topic_id: [] for topic_id in spec.partition_counts}
    for member_id in sorted(spec.members):
        for topic_id in spec.members[member_id].subscribed:
            wanting[topic_id].append(member_id)
    return {topic_id: members for topic_id, members in wanting.items() if members}


def _hardest_first(spec: GroupSpec, wanting: dict[UUID, list[str]]) -> list[UUID]:
    """Topics with most partitions for each subscriber come first, then those with fewer subscribers."""

    def hardness(topic_id: UUID) -> tuple[float, int, UUID]:
        takers = len(wanting[topic_id])
        return -spec.partition_counts[topic_id] / takers, takers, topic_id

    return sorted(wanting, key=hardness)


def _hand_out(spec: GroupSpec, owned: _Owned, loads: dict[str, int]) -> None:
    """Give each free partition to the least loaded member that wants its topic."""
    wanting = _subscribers(spec)
    free = _free(spec, owned)
    for topic_id in _hardest_first(spec, wanting):
        least = [(loads[member_id], member_id) for member_id in wanting[topic_id]]
        heapq.heapify(least)
        for partition in free[topic_id]:
            load, member_id = least[0]
            owned[member_id].setdefault(topic_id, set()).add(partition)
            loads[member_id] = load + 1
            heapq.heapreplace(least, (load + 1, member_id))


def _balance(spec: GroupSpec, owned: _Owned, loads: dict[str, int]) -> None:
    """Go round the topics until a whole round moved nothing."""
    wanting = _subscribers(spec)
    contested = [topic for topic in _hardest_first(spec, wanting) if len(wanting[topic]) > 1]
    for _ in range(ROUNDS_MAX):
        # A list, not a generator: every topic is to be looked at in every round.
        moved = [_balance_topic(topic, wanting[topic], owned, loads) for topic in contested]
        if not any(moved):
            return


def _balance_topic(topic_id: UUID, takers: list[str], owned: _Owned, loads: dict[str, int]) -> int:
    """Move partitions of one topic from its most to its least loaded subscribers; how many moved."""
    holders = [member_id for member_id in takers if owned[member_id].get(topic_id)]
    most = [(-loads[member_id], member_id) for member_id in holders]
    least = [(loads[member_id], member_id) for member_id in takers]
    heapq.heapify(most)
    heapq.heapify(least)
    moves = 0
    while most:
        load, giver = -most[0][0], most[0][1]
        if loads[giver] != load or not owned[giver][topic_id]:
            heapq.heappop(most)
            if owned[giver][topic_id]:
                heapq.heappush(most, (-loads[giver], giver))
            continue
        load, taker = least[0]
        if loads[taker] != load:
            heapq.heapreplace(least, (loads[taker], taker))
            continue
        if loads[giver] - loads[taker] <= 1:
            break
        partition = max(owned[giver][topic_id])
        owned[giver][topic_id].remove(partition)
        received = owned[taker].setdefault(topic_id, set())
        received.add(partition)
        loads[giver] -= 1
        loads[taker] += 1
        moves += 1
        if len(received) == 1:
            heapq.heappush(most, (-loads[taker], taker))
    return moves
