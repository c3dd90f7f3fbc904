"""Heartbeats one by one: who is let in, who is fenced, what is refused, and in which words.

`test_consumer_transcript.py` compares a whole conversation with Kafka's; here are the corners."""

from dataclasses import replace

import pytest
from consumer_world import GROUP, Coordinator, command, request
from fencepost.cluster.base.errors import ErrorCode as E
from fencepost.txn.groups.consumer_config import ConsumerConfig
from fencepost.txn.groups.consumer_member import MemberState
from fencepost.txn.groups.consumer_records import CurrentAssigned, Forgotten, OwnedTopic
from fencepost.txn.runtime.decision import SetTimer
from heartbeat_scene import ORDERS, REFUNDS, joined, refusal_of, two_topics


@pytest.fixture
def world() -> Coordinator:
    return two_topics()


# ---- what no group would take -----------------------------------------------------------------


IMPOSSIBLE = [
    (request("", names=["orders"]), "MemberId can't be empty."),
    (request("m", group_id=" \t", names=["orders"]), "GroupId can't be empty."),
    (request("m", instance_id=" ", names=["orders"]), "InstanceId can't be empty."),
    (request("m", rack_id="", names=["orders"]), "RackId can't be empty."),
    (
        request("m", names=["orders"], rebalance_timeout_ms=-1),
        "RebalanceTimeoutMs must be provided in first request.",
    ),
    (
        request("m", names=["orders"], holding={ORDERS: {1}}),
        "TopicPartitions must be empty when (re-)joining.",
    ),
    (
        request("m", names=["orders"], holding=None),
        "TopicPartitions must be empty when (re-)joining.",
    ),
    (
        request("m"),
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    ),
    (request("m", -2), "InstanceId can't be null."),
    (request("m", -3), "MemberEpoch is invalid."),
]


@pytest.mark.parametrize(("body", "message"), IMPOSSIBLE)
def test_what_no_group_would_take_is_refused_in_kafka_s_words(world, body, message) -> None:
    assert refusal_of(world.hear(body)) == (E.invalid_request, message)
    assert world.log == []


def test_an_assignor_that_is_not_there_is_refused_with_those_that_are(world) -> None:
    reply = world.hear(request("m", names=["orders"], server_assignor="best"))
    assert refusal_of(reply) == (
        E.unsupported_assignor,
        "ServerAssignor best is not supported. Supported assignors: uniform, range.",
    )


@pytest.mark.parametrize(
    ("text", "why"), [("(", "missing closing )"), ("a**", "invalid nested repetition operator")]
)
def test_what_is_no_expression_is_refused_with_the_reason(world, text, why) -> None:
    reply = world.hear(request("m", names=[], subscribed_topic_regex=text))
    message = f"SubscribedTopicRegex `{text}` is not a valid regular expression: {why}."
    assert refusal_of(reply) == (E.invalid_regular_expression, message)
    assert world.log == []


def test_a_version_0_client_is_given_a_member_id(world) -> None:
    reply = world.hear(request("", names=["orders"]), api_version=0, fresh_id="given")
    assert (reply["member_id"], reply["member_epoch"]) == ("given", 2)
    reply = world.hear(request("", 2), api_version=0)
    assert refusal_of(reply) == (E.invalid_request, "MemberId can't be empty.")


def test_a_full_group_takes_no_one_but_those_it_has(world) -> None:
    world = Coordinator(
        ConsumerConfig(group_consumer_max_size=1, group_consumer_assignment_interval_ms=0)
    )
    world.topics_are(orders=4)
    joined(world, "m1")
    assert refusal_of(world.hear(request("m2", names=["orders"]))) == (
        E.group_max_size_reached,
        "The consumer group has reached its maximum capacity of 1 members.",
    )
    assert world.hear(request("m1", names=["orders"]))["error_code"] is E.none


@pytest.mark.parametrize(
    ("epoch", "message"),
    [(3, f"Consumer group {GROUP} not found."), (-1, f"Group {GROUP} not found.")],
)
def test_a_group_that_is_not_there_is_not_made_by_those_who_think_they_are_in_it(
    world, epoch, message
) -> None:
    assert refusal_of(world.hear(request("m", epoch))) == (E.group_id_not_found, message)
    assert world.machine.groups == {}


# ---- epochs -----------------------------------------------------------------------------------


def test_a_member_with_an_epoch_that_is_not_its_own_is_fenced(world) -> None:
    epoch = joined(world, "m")
    for wrong, how in ((epoch + 1, "greater"), (epoch - 1, "smaller")):
        assert refusal_of(world.hear(request("m", wrong, holding={}))) == (
            E.fenced_member_epoch,
            (
                f"The consumer group member has a {how} member epoch ({wrong}) than the one known by "
                f"the group coordinator ({epoch}). The member must abandon all its partitions and rejoin."
            ),
        )
    assert world.hear(request("m", epoch))["error_code"] is E.none


def test_the_epoch_before_is_heard_when_its_answer_was_lost(world) -> None:
    """Only from a member that says what it holds, and holds no more than it was given."""
    old = joined(world, "m1")
    joined(world, "m2")
    owned = world.group.members["m1"].assigned[ORDERS]
    world.hear(request("m1", old))
    kept = set(world.group.members["m1"].assigned[ORDERS])
    new = world.hear(request("m1", old, holding={ORDERS: kept}))["member_epoch"]
    assert new == old + 1
    assert world.hear(request("m1", old, holding={ORDERS: kept}))["error_code"] is E.none
    for holding in (None, {ORDERS: set(owned)}, {REFUNDS: {0}}):
        reply = world.hear(request("m1", old, holding=holding))
        assert reply["error_code"] is E.fenced_member_epoch, holding


def test_a_fenced_member_joins_again_under_its_own_id(world) -> None:
    joined(world, "m1", "m2")
    reply = world.hear(request("m1", 99))
    assert reply["error_code"] is E.fenced_member_epoch
    reply = world.hear(request("m1", names=["orders"]))
    assert (reply["error_code"], reply["member_epoch"]) == (E.none, 3)


def test_an_unknown_member_is_told_so(world) -> None:
    joined(world, "m1")
    message = f"Member m2 is not a member of group {GROUP}."
    assert refusal_of(world.hear(request("m2", 3))) == (E.unknown_member_id, message)
    assert refusal_of(world.hear(request("m2", -1))) == (E.unknown_member_id, message)


def test_a_member_in_a_state_from_the_future_starts_over(world) -> None:
    """A newer Kafka may have written a state that we do not know (MemberState.UNKNOWN)."""
    epoch = joined(world, "m")
    world.machine.apply(
        CurrentAssigned(
            group_id=GROUP,
            member_id="m",
            member_epoch=epoch,
            previous_member_epoch=0,
            state=77,
            assigned=(OwnedTopic(topic_id=ORDERS, partitions=(0,), assignment_epochs=(2,)),),
        )
    )
    assert world.group.members["m"].state is MemberState.UNKNOWN
    assert refusal_of(world.hear(request("m", epoch, holding={ORDERS: {0}}))) == (
        E.fenced_member_epoch,
        (
            "The consumer group member is in a unknown state. "
            "The member must abandon all its partitions and rejoin."
        ),
    )
    reply = world.hear(request("m", names=["orders"]))
    assert reply["error_code"] is E.none
    assert world.group.members["m"].state is MemberState.STABLE


# ---- topics -------------------------------------------------------------------------------------


def test_new_partitions_raise_the_epoch_at_the_next_heartbeat(world) -> None:
    epoch = joined(world, "m")
    world.change(world.topics.grow("orders", 2))
    reply = world.hear(request("m", epoch))
    assert reply["member_epoch"] == epoch + 1
    assert reply["assignment"]["topic_partitions"][0]["partitions"] == [0, 1, 2, 3, 4, 5]


def test_a_topic_that_nobody_reads_raises_nothing(world) -> None:
    epoch = joined(world, "m")
    world.change(world.topics.grow("refunds", 2))
    written = len(world.log)
    assert world.hear(request("m", epoch))["member_epoch"] == epoch
    assert len(world.log) == written


def test_a_heartbeat_that_changes_nothing_writes_nothing(world) -> None:
    epoch = joined(world, "m")
    written = len(world.log)
    reply = world.hear(request("m", epoch, holding={ORDERS: {0, 1, 2, 3}}))
    assert reply["assignment"] is None
    assert len(world.log) == written


def test_a_full_request_is_answered_in_full(world) -> None:
    epoch = joined(world, "m")
    reply = world.hear(
        request("m", epoch, holding={}, names=["orders"], rebalance_timeout_ms=60_000)
    )
    assert reply["assignment"]["topic_partitions"][0]["partitions"] == [0, 1, 2, 3]


def test_a_deleted_topic_is_taken_away(world) -> None:
    epoch = joined(world, "m")
    world.change(world.topics.delete("orders"))
    reply = world.hear(request("m", epoch))
    assert reply["assignment"] == {"topic_partitions": []}


def test_the_legacy_topic_record_of_an_older_kafka_is_deleted_at_the_next_look(world) -> None:
    from fencepost.txn.groups.consumer_records import Kind, LegacyTopicsNoted

    epoch = joined(world, "m")
    world.machine.apply(LegacyTopicsNoted(group_id=GROUP, topics=()))
    world.change(world.topics.grow("orders", 1))
    decision = world.machine.decide(command(request("m", epoch)), world.now_ms)
    assert Forgotten(kind=Kind.PARTITION_METADATA, group_id=GROUP) in decision.records


# ---- the machine ----------------------------------------------------------------------------------


def test_deciding_twice_gives_the_same_decision_and_changes_nothing(world) -> None:
    joined(world, "m1", "m2")
    before = world.replayed().groups
    for body in (request("m1", 2), request("m3", names=["refunds"]), request("m2", -1)):
        first = world.machine.decide(command(body), world.now_ms)
        second = world.machine.decide(command(body), world.now_ms)
        assert first == second
        assert world.machine.groups == before


def test_a_coordinator_that_takes_over_gives_everyone_a_whole_session(world) -> None:
    joined(world, "m1", rebalance_timeout_ms=20_000)
    joined(world, "m2")
    world.hear(request("m1", 2))
    effects = world.replayed().loaded(world.now_ms).effects
    assert set(effects) == {
        SetTimer(("consumer-session", GROUP, "m1"), 45_000),
        SetTimer(("consumer-rebalance", GROUP, "m1"), 20_000),
        SetTimer(("consumer-session", GROUP, "m2"), 45_000),
    }


def test_the_tombstones_of_a_group_leave_nothing_of_it(world) -> None:
    joined(world, "m1")
    world.hear(request("m2", names=[], subscribed_topic_regex="orders.*"))
    for record in world.machine.tombstones(GROUP):
        world.machine.apply(record)
    assert world.machine.groups == {}
    for member_id in ("m1", "m2"):
        assert world.machine.tick(("consumer-session", GROUP, member_id), 0).records == ()


def test_a_timer_of_a_member_that_is_gone_does_nothing(world) -> None:
    joined(world, "m1")
    for kind in ("session", "rebalance", "join", "sync"):
        assert world.machine.tick((f"consumer-{kind}", GROUP, "m2"), 0).records == ()
        assert world.machine.tick((f"consumer-{kind}", "other", "m1"), 0).records == ()


def test_the_preferred_assignor_is_the_one_that_most_members_ask_for(world) -> None:
    joined(world, "m1", server_assignor="range")
    joined(world, "m2", server_assignor="range")
    joined(world, "m3", server_assignor="uniform")
    assert world.machine.describe(GROUP)["assignor_name"] == "range"
    assert [sorted(world.group.target[m][ORDERS]) for m in ("m1", "m2", "m3")] == [[0, 1], [2], [3]]


def test_an_assignor_that_nobody_has_any_more_counts_for_nothing(world) -> None:
    """A member from before the settings changed, or from a Kafka with assignors of its own."""
    epoch = joined(world, "m")
    body = request("m", epoch, server_assignor="range")
    world.hear(body)
    record = world.group.members["m"].subscribed_record(GROUP)
    world.machine.apply(replace(record, server_assignor="com.example.Best"))
    world.change(world.topics.grow("orders", 1))
    reply = world.hear(request("m", epoch))
    assert reply["assignment"]["topic_partitions"][0]["partitions"] == [0, 1, 2, 3, 4]
