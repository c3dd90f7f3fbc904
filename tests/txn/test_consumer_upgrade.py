"""A classic group that a first member of the new protocol takes along, and one that may not change (KIP-848)."""

import pytest
from consumer_world import GROUP, MixedCoordinator, command, request, subscription_bytes
from fencepost.cluster.base.errors import ErrorCode as E
from fencepost.txn.groups.classic_group import Phase
from fencepost.txn.groups.consumer_config import MigrationPolicy
from fencepost.txn.groups.consumer_embedded import write_assignment
from fencepost.txn.groups.consumer_records import ClassicMember
from fencepost.txn.runtime.encoding import encode
from migration_world import MANY, ORDERS, mixed_world, owned_by, stable_classic


@pytest.fixture
def world() -> MixedCoordinator:
    return mixed_world()


def test_the_first_member_of_the_new_protocol_takes_the_group_along(world) -> None:
    """As seen with a Kafka 4.3: the answers of each step, and what the classic member gives up."""
    a = stable_classic(world)
    reply = world.hear(request("c", names=["orders"]))
    assert (reply["member_epoch"], reply["assignment"]) == (2, {"topic_partitions": []})
    assert world.classic == {}
    assert world.group.members[a].classic == ClassicMember(
        session_timeout_ms=45_000, protocols=(("range", subscription_bytes(["orders"], {})),)
    )
    assert world.beat(a, 1) is E.rebalance_in_progress
    reply = world.join(a, ["orders"], {"orders": [0, 1, 2, 3]})
    assert (reply["error_code"], reply["generation_id"], reply["leader"]) == (E.none, 1, "")
    assert owned_by(world.sync(a, 1)) == {"orders": (2, 3)}
    assert world.beat(a, 1) is E.rebalance_in_progress, "it has not said that it gave up"
    reply = world.join(a, ["orders"], {"orders": [2, 3]})
    assert reply["generation_id"] == 2
    assert owned_by(world.sync(a, 2)) == {"orders": (2, 3)}
    assert world.beat(a, 2) is E.none
    reply = world.hear(request("c", 2))
    assert reply["assignment"]["topic_partitions"][0]["partitions"] == [0, 1]


def test_the_group_changes_its_kind_in_one_batch(world) -> None:
    stable_classic(world)
    decision = world.machine.decide(command(request("c", names=["orders"])), world.now_ms)
    kinds = [type(record).__name__ for record in decision.records]
    assert kinds == [
        "GroupForgotten",
        "MemberSubscribed",
        "GroupEpochBumped",
        "TargetAssigned",
        "TargetEpochReached",
        "CurrentAssigned",
        # and what the heartbeat does to it:
        "MemberSubscribed",
        "GroupEpochBumped",
        "TargetAssigned",
        "TargetAssigned",
        "TargetEpochReached",
        "CurrentAssigned",
    ]


def test_who_waits_in_the_classic_group_is_told_to_join_again(world) -> None:
    a = stable_classic(world)
    ticket = world.join("", ["orders"], requires_known=True, instance_id="i")
    assert isinstance(ticket, int), "it waits for the first member to join again"
    world.hear(request("c", names=["orders"]))
    assert world.answers[ticket]["error_code"] is E.rebalance_in_progress
    assert min(world.group.members) == "c"
    assert a in world.group.members


REFUSED_UPGRADES = [
    (MigrationPolicy.DISABLED, {}, "online upgrade is disabled."),
    (MigrationPolicy.DOWNGRADE, {}, "online upgrade is disabled."),
    (
        MigrationPolicy.UPGRADE,
        {"protocol_type": "connect"},
        "the group does not use the consumer embedded protocol.",
    ),
]


@pytest.mark.parametrize(("policy", "how", "why"), REFUSED_UPGRADES)
def test_a_group_that_may_not_change_refuses_the_new_protocol(policy, how, why) -> None:
    world = mixed_world(policy)
    member_id = world.join("", ["orders"], **how)["member_id"]
    world.join(member_id, ["orders"], **how)
    reply = world.hear(request("c", names=["orders"]))
    message = f"Cannot upgrade classic group {GROUP} to consumer group because {why}"
    assert (reply["error_code"], reply["error_message"]) == (E.group_id_not_found, message)
    assert GROUP in world.classic
    reply = world.hear(request("c", 3))
    assert reply["error_message"] == f"Group {GROUP} is not a consumer group."


def test_user_data_of_a_custom_assignor_would_be_lost_so_the_group_stays(world) -> None:
    stable_classic(world, user_data=b"x")
    reply = world.hear(request("c", names=["orders"]))
    assert reply["error_code"] is E.group_id_not_found
    assert "an unsupported custom assignor is in use." in reply["error_message"]


def test_an_assignor_that_gave_a_partition_twice_is_no_reason_to_die(world) -> None:
    a = stable_classic(world)
    ticket = world.join("", ["orders"], instance_id="i")
    joined = world.join(a, ["orders"])
    b = world.answers[ticket]["member_id"]
    all_of_it = write_assignment({"orders": (0, 1, 2, 3)}, 3)
    world.sync(joined["leader"], joined["generation_id"], {a: all_of_it, b: all_of_it})
    reply = world.hear(request("c", names=["orders"]))
    assert "an unsupported custom assignor is in use." in reply["error_message"]


@pytest.mark.parametrize("partition", [-1, 4])
def test_nor_is_one_that_gave_a_partition_that_does_not_exist(partition) -> None:
    world = mixed_world(size=9)
    a = stable_classic(world, (0, 1, 2, partition))
    reply = world.hear(request("c", names=["orders"], server_assignor="uniform"))
    assert reply["error_code"] is E.none
    target = [p for member_id in (a, "c") for p in world.group.target[member_id][ORDERS]]
    assert sorted(target) == [0, 1, 2, 3]


@pytest.mark.parametrize("partition", [-1, 4])
def test_nor_is_a_member_that_says_it_owns_a_partition_that_does_not_exist(partition) -> None:
    world = mixed_world(size=9)
    owned = {"orders": [partition]}
    b = world.join("", ["orders"], owned, instance_id="i")["member_id"]
    assert world.classic[GROUP].phase is Phase.COMPLETING_REBALANCE
    reply = world.hear(request("c", names=["orders"], server_assignor="uniform"))
    assert reply["error_code"] is E.none
    target = [p for member_id in (b, "c") for p in world.group.target[member_id][ORDERS]]
    assert sorted(target) == [0, 1, 2, 3]


def test_metadata_that_can_t_be_read_is_no_reason_to_die(world) -> None:
    member_id = world.join("", [], metadata=b"\0")["member_id"]
    world.join(member_id, [], metadata=b"\0")
    reply = world.hear(request("c", names=["orders"]))
    assert "the embedded consumer protocol is malformed." in reply["error_message"]


@pytest.mark.parametrize("order", [("range", "mine"), ("mine", "range")])
def test_nor_is_metadata_of_a_protocol_that_was_not_agreed_on(world, order) -> None:
    """`a` can only "range". In the middle of a rebalance the claims of `b` are read from what it put first."""
    a = stable_classic(world)
    good = subscription_bytes(["orders"], {})
    metadata = {name: b"\xff" if name == "mine" else good for name in order}
    ticket = world.join("", [], protocols=order, metadata_of=metadata, instance_id="i")
    world.join(a, ["orders"])
    assert world.answers[ticket]["protocol_name"] == "range"
    assert world.classic[GROUP].phase is Phase.COMPLETING_REBALANCE
    reply = world.hear(request("c", names=["orders"]))
    assert reply["error_code"] is E.group_id_not_found
    assert "the embedded consumer protocol is malformed." in reply["error_message"]


def test_a_group_over_the_new_limit_stays_classic(world) -> None:
    a = stable_classic(world)
    tickets = [world.join("", ["orders"], instance_id=f"i{n}") for n in range(3)]
    assert len(world.classic[GROUP].members) == 4
    reply = world.hear(request("c", names=["orders"]))
    assert "exceeds the consumer group maximum size." in reply["error_message"]
    assert a in world.classic[GROUP].members
    assert tickets


def test_a_heartbeat_that_is_refused_changes_nothing(world) -> None:
    stable_classic(world)
    reply = world.hear(request("c", names=[], subscribed_topic_regex="("))
    assert reply["error_code"] is E.invalid_regular_expression
    assert world.classic[GROUP].phase is Phase.STABLE
    assert world.groups == {}


def test_an_empty_group_changes_its_kind_without_ado(world) -> None:
    world.hear(request("c", names=["orders"]))
    world.hear(request("c", -1))
    a = world.join("", ["orders"])["member_id"]
    world.join(a, ["orders"])
    assert world.groups == {}
    world.leave(a)
    assert world.hear(request("c", names=["orders"]))["error_code"] is E.none
    assert world.classic == {}


# ---- more than a record holds ---------------------------------------------------------------------


def test_a_group_that_fits_no_batch_is_not_taken_along_by_half() -> None:
    """Two batches, with a crash between them: some members were known, owned nothing, and the others' partitions were given away."""
    world = mixed_world(size=10)
    world.topics_are(**dict.fromkeys(MANY, 1))
    how = {"protocols": ("range", "cooperative-sticky"), "metadata": subscription_bytes(MANY, {})}
    members = [world.join("", MANY, **how)["member_id"] for _ in range(6)]
    for member_id in members:
        world.join(member_id, MANY, **how)
    decision = world.machine.decide(command(request("c", names=MANY)), world.now_ms)
    assert decision.whole
    assert len(encode(decision.records, world.now_ms, None)) > 1
