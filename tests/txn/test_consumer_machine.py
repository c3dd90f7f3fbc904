"""Heartbeats one by one: who is let in, who is fenced, what is refused, and in which words.

`test_consumer_transcript.py` compares a whole conversation with Kafka's; here are the corners.
"""

from dataclasses import replace
from uuid import UUID

import pytest
from consumer_world import GROUP, Coordinator, command, request
from fencepost.cluster.base.errors import ErrorCode as E
from fencepost.txn.groups.consumer_config import ConsumerConfig
from fencepost.txn.groups.consumer_group import GroupState
from fencepost.txn.groups.consumer_member import MemberState
from fencepost.txn.groups.consumer_records import CurrentAssigned, Forgotten, OwnedTopic
from fencepost.txn.runtime.decision import SetTimer

ORDERS, REFUNDS = UUID(int=1), UUID(int=2)


@pytest.fixture
def world() -> Coordinator:
    coordinator = Coordinator()
    coordinator.topics_are(orders=4, refunds=2)
    return coordinator


def _joined(world: Coordinator, *member_ids: str, **fields) -> int:
    epoch = 0
    for member_id in member_ids:
        epoch = world.hear(request(member_id, names=["orders"], **fields))["member_epoch"]
    return epoch


def _refusal(reply) -> tuple[E, str]:
    return reply["error_code"], reply["error_message"]


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
    assert _refusal(world.hear(body)) == (E.invalid_request, message)
    assert world.log == []


def test_an_assignor_that_is_not_there_is_refused_with_those_that_are(world) -> None:
    reply = world.hear(request("m", names=["orders"], server_assignor="best"))
    assert _refusal(reply) == (
        E.unsupported_assignor,
        "ServerAssignor best is not supported. Supported assignors: uniform, range.",
    )


@pytest.mark.parametrize(
    ("text", "why"), [("(", "missing closing )"), ("a**", "invalid nested repetition operator")]
)
def test_what_is_no_expression_is_refused_with_the_reason(world, text, why) -> None:
    reply = world.hear(request("m", names=[], subscribed_topic_regex=text))
    message = f"SubscribedTopicRegex `{text}` is not a valid regular expression: {why}."
    assert _refusal(reply) == (E.invalid_regular_expression, message)
    assert world.log == []


def test_a_version_0_client_is_given_a_member_id(world) -> None:
    reply = world.hear(request("", names=["orders"]), api_version=0, fresh_id="given")
    assert (reply["member_id"], reply["member_epoch"]) == ("given", 2)
    reply = world.hear(request("", 2), api_version=0)
    assert _refusal(reply) == (E.invalid_request, "MemberId can't be empty.")


def test_a_full_group_takes_no_one_but_those_it_has(world) -> None:
    world = Coordinator(
        ConsumerConfig(group_consumer_max_size=1, group_consumer_assignment_interval_ms=0)
    )
    world.topics_are(orders=4)
    _joined(world, "m1")
    assert _refusal(world.hear(request("m2", names=["orders"]))) == (
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
    assert _refusal(world.hear(request("m", epoch))) == (E.group_id_not_found, message)
    assert world.machine.groups == {}


# ---- epochs -----------------------------------------------------------------------------------


def test_a_member_with_an_epoch_that_is_not_its_own_is_fenced(world) -> None:
    epoch = _joined(world, "m")
    for wrong, how in ((epoch + 1, "greater"), (epoch - 1, "smaller")):
        assert _refusal(world.hear(request("m", wrong, holding={}))) == (
            E.fenced_member_epoch,
            (
                f"The consumer group member has a {how} member epoch ({wrong}) than the one known by "
                f"the group coordinator ({epoch}). The member must abandon all its partitions and rejoin."
            ),
        )
    assert world.hear(request("m", epoch))["error_code"] is E.none


def test_the_epoch_before_is_heard_when_its_answer_was_lost(world) -> None:
    """Only from a member that says what it holds, and holds no more than it was given."""
    old = _joined(world, "m1")
    _joined(world, "m2")
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
    _joined(world, "m1", "m2")
    reply = world.hear(request("m1", 99))
    assert reply["error_code"] is E.fenced_member_epoch
    reply = world.hear(request("m1", names=["orders"]))
    assert (reply["error_code"], reply["member_epoch"]) == (E.none, 3)


def test_an_unknown_member_is_told_so(world) -> None:
    _joined(world, "m1")
    message = f"Member m2 is not a member of group {GROUP}."
    assert _refusal(world.hear(request("m2", 3))) == (E.unknown_member_id, message)
    assert _refusal(world.hear(request("m2", -1))) == (E.unknown_member_id, message)


def test_a_member_in_a_state_from_the_future_starts_over(world) -> None:
    """A newer Kafka may have written a state that we do not know (MemberState.UNKNOWN)."""
    epoch = _joined(world, "m")
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
    assert _refusal(world.hear(request("m", epoch, holding={ORDERS: {0}}))) == (
        E.fenced_member_epoch,
        (
            "The consumer group member is in a unknown state. "
            "The member must abandon all its partitions and rejoin."
        ),
    )
    reply = world.hear(request("m", names=["orders"]))
    assert reply["error_code"] is E.none
    assert world.group.members["m"].state is MemberState.STABLE


# ---- static members -----------------------------------------------------------------------------


def test_a_static_member_that_will_be_back_keeps_its_partitions(world) -> None:
    epoch = _joined(world, "m1", instance_id="i")
    reply = world.hear(request("m1", -2, instance_id="i"))
    assert (reply["error_code"], reply["member_epoch"]) == (E.none, -2)
    reply = world.hear(request("m2", names=["orders"], instance_id="i"))
    assert (reply["member_id"], reply["member_epoch"]) == ("m2", epoch)
    assert reply["assignment"]["topic_partitions"][0]["partitions"] == [0, 1, 2, 3]
    assert list(world.group.members) == ["m2"]
    assert world.group.epoch == epoch, "nobody else hears of it"


def test_an_instance_id_in_use_is_not_given_away(world) -> None:
    epoch = _joined(world, "m1", instance_id="i")
    assert _refusal(world.hear(request("m2", names=["orders"], instance_id="i"))) == (
        E.unreleased_instance_id,
        (
            "Static member m2 with instance id i cannot join the group because the instance id is "
            "owned by m1 member."
        ),
    )
    for fenced in (epoch, -1, -2):
        assert _refusal(world.hear(request("m2", fenced, instance_id="i"))) == (
            E.fenced_instance_id,
            "Static member m2 with instance id i was fenced by member m1.",
        )
    for unknown in (epoch, -1, -2):
        assert _refusal(world.hear(request("m1", unknown, instance_id="other"))) == (
            E.unknown_member_id,
            "Instance id other is unknown.",
        )


def test_a_static_member_whose_first_answer_was_lost_asks_again(world) -> None:
    """Kafka 4.3 refuses it until its own session is over: UNRELEASED_INSTANCE_ID for 45 s."""
    epoch = _joined(world, "m1", instance_id="i")
    reply = world.hear(request("m1", names=["orders"], instance_id="i"))
    assert (reply["error_code"], reply["member_epoch"]) == (E.none, epoch)


def test_a_static_member_that_stays_away_is_gone_after_its_session(world) -> None:
    _joined(world, "m1", instance_id="i")
    world.hear(request("m1", -2, instance_id="i"))
    world.sleep(44_999)
    assert list(world.group.members) == ["m1"]
    world.sleep(1)
    assert list(world.group.members) == []


# ---- time ---------------------------------------------------------------------------------------


def test_a_silent_member_is_gone_after_its_session_and_its_partitions_are_free(world) -> None:
    _joined(world, "m1", "m2")
    world.sleep(30_000)
    epoch = world.hear(request("m2", 3))["member_epoch"]
    world.sleep(15_000)
    assert list(world.group.members) == ["m2"]
    reply = world.hear(request("m2", epoch))
    assert reply["assignment"]["topic_partitions"][0]["partitions"] == [0, 1, 2, 3]


def test_a_member_that_does_not_give_up_in_time_is_thrown_out(world) -> None:
    _joined(world, "m1", rebalance_timeout_ms=20_000)
    _joined(world, "m2")
    world.hear(request("m1", 2))
    assert world.group.members["m1"].state is MemberState.UNREVOKED_PARTITIONS
    world.sleep(15_000)
    world.hear(request("m1", 2, holding={ORDERS: {0, 1, 2, 3}}))
    world.sleep(5_000)
    assert list(world.group.members) == ["m2"]
    assert world.hear(request("m1", 2))["error_code"] is E.unknown_member_id


def test_a_member_that_gives_up_in_time_stays(world) -> None:
    _joined(world, "m1", rebalance_timeout_ms=20_000)
    _joined(world, "m2")
    world.hear(request("m1", 2))
    kept = set(world.group.members["m1"].assigned[ORDERS])
    world.hear(request("m1", 2, holding={ORDERS: kept}))
    world.sleep(30_000)
    assert sorted(world.group.members) == ["m1", "m2"]


def test_an_assignment_waits_for_the_interval_since_the_last_one() -> None:
    """KIP-1263: a second member within a second of the first is a member at once and served later."""
    world = Coordinator(ConsumerConfig())
    world.topics_are(orders=4)
    assert _joined(world, "m1") == 2
    reply = world.hear(request("m2", names=["orders"]))
    assert (reply["member_epoch"], reply["assignment"]) == (2, {"topic_partitions": []})
    assert world.group.state is GroupState.ASSIGNING
    world.sleep(999)
    assert world.hear(request("m2", 2))["member_epoch"] == 2
    world.sleep(1)
    assert world.hear(request("m2", 2))["member_epoch"] == 3


def test_a_clock_that_is_set_back_does_not_hold_up_an_assignment() -> None:
    """The time of the last one is in the log, and the next coordinator's clock may be behind too."""
    world = Coordinator(ConsumerConfig())
    world.topics_are(orders=4)
    assert _joined(world, "m1") == 2
    world.now_ms -= 600_000
    reply = world.hear(request("m2", names=["orders"]))
    assert reply["member_epoch"] == 3
    reply = world.hear(request("m3", names=["orders"]))
    assert reply["member_epoch"] == 3, "the interval is kept from there on"
    world.sleep(1_000)
    assert world.hear(request("m3", 3))["member_epoch"] == 4


def test_a_group_s_own_times_are_in_force_and_held_to_the_broker_s_bounds(world) -> None:
    world.overrides[GROUP] = {
        "consumer.session.timeout.ms": "50000",
        "consumer.heartbeat.interval.ms": "99999",
    }
    reply = world.hear(request("m", names=["orders"]))
    assert reply["heartbeat_interval_ms"] == 15_000
    world.sleep(49_999)
    assert list(world.group.members) == ["m"]
    world.sleep(1)
    assert list(world.group.members) == []


# ---- topics -------------------------------------------------------------------------------------


def test_new_partitions_raise_the_epoch_at_the_next_heartbeat(world) -> None:
    epoch = _joined(world, "m")
    world.change(world.topics.grow("orders", 2))
    reply = world.hear(request("m", epoch))
    assert reply["member_epoch"] == epoch + 1
    assert reply["assignment"]["topic_partitions"][0]["partitions"] == [0, 1, 2, 3, 4, 5]


def test_a_topic_that_nobody_reads_raises_nothing(world) -> None:
    epoch = _joined(world, "m")
    world.change(world.topics.grow("refunds", 2))
    written = len(world.log)
    assert world.hear(request("m", epoch))["member_epoch"] == epoch
    assert len(world.log) == written


def test_a_heartbeat_that_changes_nothing_writes_nothing(world) -> None:
    epoch = _joined(world, "m")
    written = len(world.log)
    reply = world.hear(request("m", epoch, holding={ORDERS: {0, 1, 2, 3}}))
    assert reply["assignment"] is None
    assert len(world.log) == written


def test_a_full_request_is_answered_in_full(world) -> None:
    epoch = _joined(world, "m")
    reply = world.hear(
        request("m", epoch, holding={}, names=["orders"], rebalance_timeout_ms=60_000)
    )
    assert reply["assignment"]["topic_partitions"][0]["partitions"] == [0, 1, 2, 3]


def test_a_deleted_topic_is_taken_away(world) -> None:
    epoch = _joined(world, "m")
    world.change(world.topics.delete("orders"))
    reply = world.hear(request("m", epoch))
    assert reply["assignment"] == {"topic_partitions": []}


def test_the_legacy_topic_record_of_an_older_kafka_is_deleted_at_the_next_look(world) -> None:
    from fencepost.txn.groups.consumer_records import Kind, LegacyTopicsNoted

    epoch = _joined(world, "m")
    world.machine.apply(LegacyTopicsNoted(group_id=GROUP, topics=()))
    world.change(world.topics.grow("orders", 1))
    decision = world.machine.decide(command(request("m", epoch)), world.now_ms)
    assert Forgotten(kind=Kind.PARTITION_METADATA, group_id=GROUP) in decision.records


# ---- the machine ----------------------------------------------------------------------------------


def test_deciding_twice_gives_the_same_decision_and_changes_nothing(world) -> None:
    _joined(world, "m1", "m2")
    before = world.replayed().groups
    for body in (request("m1", 2), request("m3", names=["refunds"]), request("m2", -1)):
        first = world.machine.decide(command(body), world.now_ms)
        second = world.machine.decide(command(body), world.now_ms)
        assert first == second
        assert world.machine.groups == before


def test_a_coordinator_that_takes_over_gives_everyone_a_whole_session(world) -> None:
    _joined(world, "m1", rebalance_timeout_ms=20_000)
    _joined(world, "m2")
    world.hear(request("m1", 2))
    effects = world.replayed().loaded(world.now_ms).effects
    assert set(effects) == {
        SetTimer(("consumer-session", GROUP, "m1"), 45_000),
        SetTimer(("consumer-rebalance", GROUP, "m1"), 20_000),
        SetTimer(("consumer-session", GROUP, "m2"), 45_000),
    }


def test_the_tombstones_of_a_group_leave_nothing_of_it(world) -> None:
    _joined(world, "m1")
    world.hear(request("m2", names=[], subscribed_topic_regex="orders.*"))
    for record in world.machine.tombstones(GROUP):
        world.machine.apply(record)
    assert world.machine.groups == {}
    for member_id in ("m1", "m2"):
        assert world.machine.tick(("consumer-session", GROUP, member_id), 0).records == ()


def test_a_timer_of_a_member_that_is_gone_does_nothing(world) -> None:
    _joined(world, "m1")
    for kind in ("session", "rebalance", "join", "sync"):
        assert world.machine.tick((f"consumer-{kind}", GROUP, "m2"), 0).records == ()
        assert world.machine.tick((f"consumer-{kind}", "other", "m1"), 0).records == ()


def test_the_preferred_assignor_is_the_one_that_most_members_ask_for(world) -> None:
    _joined(world, "m1", server_assignor="range")
    _joined(world, "m2", server_assignor="range")
    _joined(world, "m3", server_assignor="uniform")
    assert world.machine.describe(GROUP)["assignor_name"] == "range"
    assert [sorted(world.group.target[m][ORDERS]) for m in ("m1", "m2", "m3")] == [[0, 1], [2], [3]]


def test_an_assignor_that_nobody_has_any_more_counts_for_nothing(world) -> None:
    """A member from before the settings changed, or from a Kafka with assignors of its own."""
    epoch = _joined(world, "m")
    body = request("m", epoch, server_assignor="range")
    world.hear(body)
    record = world.group.members["m"].subscribed_record(GROUP)
    world.machine.apply(replace(record, server_assignor="com.example.Best"))
    world.change(world.topics.grow("orders", 1))
    reply = world.hear(request("m", epoch))
    assert reply["assignment"]["topic_partitions"][0]["partitions"] == [0, 1, 2, 3, 4]
