"""Rows in, rows out: whatever is asked about offsets, each partition has its one row in its place."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId, LeaderEpoch, PartitionEpoch
from fencepost.cluster.metadata.image import ClusterImage, PartitionState, TopicState
from fencepost.txn.groups.config import GroupConfig
from fencepost.txn.groups.offset_requests import plan_commit, plan_delete, plan_fetch
from fencepost.txn.groups.offsets_machine import OffsetsMachine
from fencepost.txn.groups.records import NO_TOPIC_ID, OffsetCommitted
from fencepost.txn.groups.requests import milliseconds, topic_id_of
from hypothesis import given
from hypothesis import strategies as st

E = ErrorCode
NAMES = ("a", "b", "gone")
IDS = {name: UUID(int=number) for number, name in enumerate(NAMES, 1)}


def image() -> ClusterImage:
    made = ClusterImage()
    for name, count in (("a", 1), ("b", 3)):
        states = [
            PartitionState(i, BrokerId(1), LeaderEpoch(0), PartitionEpoch(0), (), ())
            for i in range(count)
        ]
        topic = TopicState(name, IDS[name], states)
        made.topics[name] = topic
        made.topics_by_id[topic.topic_id] = topic
    return made


def exists(name: str, partition: int) -> bool:
    return 0 <= partition < {"a": 1, "b": 3}.get(name, 0)


TOPICS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.lists(st.integers(-1, 3), max_size=4)), max_size=5
)


def topic_of(name: str, *, by_id: bool, **more: Any) -> SimpleNamespace:
    called = {"topic_id": IDS[name]} if by_id else {"name": name}
    return SimpleNamespace(**called, **more)


def rows_of(topics: list[dict[str, Any]]) -> list[tuple[str, list[int]]]:
    """Name and partitions of each topic of an answer, by whatever it was called."""
    called = {topic_id: name for name, topic_id in IDS.items()}
    return [
        (
            topic["name"] or called[topic["topic_id"]],
            [row["partition_index"] for row in topic["partitions"]],
        )
        for topic in topics
    ]


@given(TOPICS, st.booleans())
def test_every_partition_asked_about_is_answered_once_in_order(asked, by_id) -> None:
    """Of a commit: what exists gets the group's outcome, each its own; the rest is unknown."""
    topics = [
        topic_of(
            name,
            by_id=by_id,
            partitions=[
                SimpleNamespace(partition_index=i, committed_offset=7, committed_metadata=None)
                for i in partitions
            ],
        )
        for name, partitions in asked
    ]
    plan = plan_commit(image(), topics)
    known = [(name, i) for name, partitions in asked for i in partitions if exists(name, i)]
    assert [(commit.topic, commit.partition) for commit in plan.commits] == known
    assert all(commit.topic_id == IDS[commit.topic] for commit in plan.commits)
    outcomes = [E(code) for code in range(len(known))]  # all different
    answer = plan.answer(outcomes)
    assert rows_of(answer) == asked
    told = [row["error_code"] for topic in answer for row in topic["partitions"]]
    expected = iter(outcomes)
    for (name, i), code in zip(((n, i) for n, p in asked for i in p), told, strict=True):
        if exists(name, i):
            assert code is next(expected)
        elif by_id and name == "gone":
            assert code is E.unknown_topic_id
        else:
            assert code is E.unknown_topic_or_partition
    refused = plan.answer(E.not_coordinator)
    assert rows_of(refused) == asked


@given(TOPICS, st.booleans())
def test_a_fetch_is_answered_in_the_order_of_its_topics(asked, by_id) -> None:
    topics = [topic_of(name, by_id=by_id, partition_indexes=parts) for name, parts in asked]
    body = SimpleNamespace(
        groups=[SimpleNamespace(group_id="g", topics=topics)], require_stable=True
    )
    (plan,) = plan_fetch(image(), SimpleNamespace(api_version=10 if by_id else 9), body)
    assert plan.command.require_stable
    assert plan.command.topics is not None
    for wanted in plan.command.topics:
        assert wanted.topic_id == (NO_TOPIC_ID if wanted.topic == "gone" else IDS[wanted.topic])
    found = [
        {
            "name": wanted.topic,
            "topic_id": wanted.topic_id,
            "partitions": [{"partition_index": i, "error_code": E.none} for i in wanted.partitions],
        }
        for wanted in plan.command.topics
    ]
    answer = plan.answer({"group_id": "g", "topics": found, "error_code": E.none})
    assert rows_of(answer["topics"]) == asked
    refused = plan.answer(E.not_coordinator)
    assert (refused["error_code"], refused["topics"]) == (E.not_coordinator, [])


def _positions(*committed: tuple[str, int, int, UUID]) -> OffsetsMachine:
    machine = OffsetsMachine(GroupConfig())
    for offset, (topic, partition, position, topic_id) in enumerate(committed):
        record = OffsetCommitted(
            group_id="g",
            topic=topic,
            partition=partition,
            committed_offset=position,
            commit_timestamp=1,
            topic_id=topic_id,
        )
        machine.apply(record, offset)
    return machine


def _all_of(machine: OffsetsMachine, version: int, **how: Any) -> dict[str, dict[int, Any]]:
    body = SimpleNamespace(groups=[SimpleNamespace(group_id="g", topics=None)], **how)
    (plan,) = plan_fetch(image(), SimpleNamespace(api_version=version), body)
    found = machine.fetch(plan.command)
    answer = plan.answer({"group_id": "g", "topics": found, "error_code": E.none})
    for topic in answer["topics"]:
        assert topic["topic_id"] == (NO_TOPIC_ID if topic["name"] == "gone" else IDS[topic["name"]])
        assert all("topic_id" not in row for row in topic["partitions"]), "no message has it there"
    return {
        topic["name"]: {
            row["partition_index"]: (row["committed_offset"], row["error_code"])
            for row in topic["partitions"]
        }
        for topic in answer["topics"]
    }


def test_of_all_positions_those_of_an_earlier_topic_of_that_name_are_left_out() -> None:
    """Records of Kafka's name no topic's id: they are of whatever has the name."""
    before = UUID(int=99)
    machine = _positions(
        ("a", 0, 1, before),
        ("b", 0, 2, before),
        ("b", 1, 3, IDS["b"]),
        ("b", 2, 4, NO_TOPIC_ID),
        ("gone", 0, 5, before),
    )
    of_b = {1: (3, E.none), 2: (4, E.none)}
    assert _all_of(machine, 9) == {"b": of_b, "gone": {0: (5, E.none)}}
    assert _all_of(machine, 10) == {"b": of_b}


def test_what_a_transaction_may_yet_change_is_told_so_whatever_was_there_before() -> None:
    machine = _positions(("b", 0, 2, UUID(int=99)))
    record = OffsetCommitted(
        group_id="g",
        topic="b",
        partition=0,
        committed_offset=8,
        commit_timestamp=1,
        topic_id=IDS["b"],
    )
    machine.apply(record, 7, producer_id=1)
    assert _all_of(machine, 9, require_stable=True)["b"][0][1] is E.unstable_offset_commit
    assert _all_of(machine, 9) == {}
    machine.end_transaction(1, commit=True)
    assert _all_of(machine, 9, require_stable=True) == {"b": {0: (8, E.none)}}


@given(TOPICS)
def test_a_deletion_is_answered_in_the_order_of_its_partitions(asked) -> None:
    topics = [
        topic_of(
            name, by_id=False, partitions=[SimpleNamespace(partition_index=i) for i in partitions]
        )
        for name, partitions in asked
    ]
    plan = plan_delete(image(), SimpleNamespace(topics=topics))
    known = [(name, tuple(i for i in parts if exists(name, i))) for name, parts in asked]
    assert list(plan.known) == known
    found = [
        {
            "name": name,
            "partitions": [{"partition_index": i, "error_code": E.none} for i in partitions],
        }
        for name, partitions in known
    ]
    answer = plan.answer({"error_code": E.none, "topics": found})
    assert rows_of(answer["topics"]) == asked
    for topic in answer["topics"]:
        for row in topic["partitions"]:
            unknown = E.unknown_topic_or_partition
            wanted = E.none if exists(topic["name"], row["partition_index"]) else unknown
            assert row["error_code"] is wanted


def test_a_time_may_come_as_a_number_and_a_topic_without_an_id() -> None:
    assert milliseconds(5) == 5
    assert topic_id_of(SimpleNamespace(topic_id=None)) == UUID(int=0)
