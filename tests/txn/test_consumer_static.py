"""Static members: who comes back under an instance id, and who may not take it."""

import pytest
from consumer_world import Coordinator, request
from fencepost.cluster.base.errors import ErrorCode as E
from heartbeat_scene import joined, refusal_of, two_topics


@pytest.fixture
def world() -> Coordinator:
    return two_topics()


def test_a_static_member_that_will_be_back_keeps_its_partitions(world) -> None:
    epoch = joined(world, "m1", instance_id="i")
    reply = world.hear(request("m1", -2, instance_id="i"))
    assert (reply["error_code"], reply["member_epoch"]) == (E.none, -2)
    reply = world.hear(request("m2", names=["orders"], instance_id="i"))
    assert (reply["member_id"], reply["member_epoch"]) == ("m2", epoch)
    assert reply["assignment"]["topic_partitions"][0]["partitions"] == [0, 1, 2, 3]
    assert list(world.group.members) == ["m2"]
    assert world.group.epoch == epoch, "nobody else hears of it"


def test_an_instance_id_in_use_is_not_given_away(world) -> None:
    epoch = joined(world, "m1", instance_id="i")
    assert refusal_of(world.hear(request("m2", names=["orders"], instance_id="i"))) == (
        E.unreleased_instance_id,
        (
            "Static member m2 with instance id i cannot join the group because the instance id is "
            "owned by m1 member."
        ),
    )
    for fenced in (epoch, -1, -2):
        assert refusal_of(world.hear(request("m2", fenced, instance_id="i"))) == (
            E.fenced_instance_id,
            "Static member m2 with instance id i was fenced by member m1.",
        )
    for unknown in (epoch, -1, -2):
        assert refusal_of(world.hear(request("m1", unknown, instance_id="other"))) == (
            E.unknown_member_id,
            "Instance id other is unknown.",
        )


def test_a_static_member_whose_first_answer_was_lost_asks_again(world) -> None:
    """Kafka 4.3 refuses it until its own session is over: UNRELEASED_INSTANCE_ID for 45 s."""
    epoch = joined(world, "m1", instance_id="i")
    reply = world.hear(request("m1", names=["orders"], instance_id="i"))
    assert (reply["error_code"], reply["member_epoch"]) == (E.none, epoch)


def test_a_static_member_that_stays_away_is_gone_after_its_session(world) -> None:
    joined(world, "m1", instance_id="i")
    world.hear(request("m1", -2, instance_id="i"))
    world.sleep(44_999)
    assert list(world.group.members) == ["m1"]
    world.sleep(1)
    assert list(world.group.members) == []
