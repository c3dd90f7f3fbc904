"""What others ask of a group: its description, and who may commit and fetch."""

from uuid import UUID

import pytest
from consumer_world import GROUP, Coordinator, request
from fencepost.cluster.base.errors import ErrorCode as E
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.render import render
from fencepost.txn.groups.commands import Commit, OffsetCommit, OffsetFetch, TxnOffsetCommit
from fencepost.txn.groups.consumer_records import ClassicMember, MemberSubscribed

ORDERS = UUID(int=1)
NO_ID = UUID(int=0)


@pytest.fixture
def world() -> Coordinator:
    """m1 has 2 and 3 of `orders` since epoch 2 and gives up 0 and 1; m2 waits for those at epoch 3."""
    world = Coordinator()
    world.topics_are(orders=4)
    world.hear(request("m1", names=["orders"], server_assignor="range"))
    world.hear(request("m0", names=["orders"]))
    world.hear(request("m1", 2))
    return world


def _commit(
    epoch: int, member_id: str = "m1", *partitions: int, by_name: bool = False, version: int = 9
):
    return OffsetCommit(
        group_id=GROUP,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        api_version=version,
        commits=tuple(
            Commit("orders", NO_ID if by_name else ORDERS, p, 1, -1, "") for p in partitions
        ),
    )


COMMITS = [
    ("its own epoch", _commit(2, "m1", 2, 3), E.none),
    ("its own epoch, even for what it does not own", _commit(2, "m1", 99), E.none),
    ("an epoch to come", _commit(3, "m1", 2), E.stale_member_epoch),
    ("an epoch before it had the partition", _commit(1, "m1", 2), E.stale_member_epoch),
    ("nobody of that name", _commit(2, "m9", 2), E.unknown_member_id),
    ("no name, in a group with members", _commit(-1, "", 2), E.unknown_member_id),
    ("a client that knows no member epochs", _commit(2, "m1", 2, version=8), E.unsupported_version),
]


@pytest.mark.parametrize(("why", "command", "expected"), COMMITS)
def test_who_may_commit(world, why, command, expected) -> None:
    assert world.machine.refuse_commit(command) is expected, why


def test_who_may_commit_is_decided_partition_by_partition(world) -> None:
    """KIP-1251: epoch 2 is old once m1 is at 3, but for what it had then and has still it is good enough."""
    world.hear(request("m1", 2, holding={ORDERS: {2, 3}}))
    assert world.group.members["m1"].member_epoch == 3
    assert world.machine.refuse_commit(_commit(2, "m1", 2, 3)) is E.none
    assert world.machine.refuse_commit(_commit(2, "m1", 2, 3, by_name=True)) is E.none
    assert world.machine.refuse_commit(_commit(2, "m1", 2, 0)) is E.stale_member_epoch
    assert world.machine.refuse_commit(_commit(1, "m1", 2)) is E.stale_member_epoch


def test_what_is_being_given_up_may_still_be_committed(world) -> None:
    """That is what a member commits in its revocation callback."""
    world.hear(request("m1", 2))
    member = world.group.members["m1"]
    assert set(member.pending_revocation[ORDERS]) == {0, 1}
    assert world.machine.refuse_commit(_commit(2, "m1", 0, 1)) is E.none


def test_an_empty_group_s_offsets_are_set_by_anyone(world) -> None:
    for member_id in ("m0", "m1"):
        world.hear(request(member_id, -1))
    assert world.machine.refuse_commit(_commit(-1, "", 0)) is E.none
    assert world.machine.refuse_commit(_commit(1, "m1", 0)) is E.unknown_member_id


def test_a_transaction_s_offsets_need_no_member_if_the_producer_knows_none(world) -> None:
    def txn(epoch: int, member_id: str) -> TxnOffsetCommit:
        return TxnOffsetCommit(
            group_id=GROUP,
            generation_id=epoch,
            member_id=member_id,
            producer_id=1,
            producer_epoch=0,
            commits=(Commit("orders", ORDERS, 2, 1, -1, ""),),
        )

    assert world.machine.refuse_commit(txn(-1, "")) is E.none
    assert world.machine.refuse_commit(txn(2, "m1")) is E.none
    assert world.machine.refuse_commit(txn(1, "m1")) is E.stale_member_epoch
    assert world.machine.refuse_commit(txn(2, "m9")) is E.unknown_member_id


def test_a_member_that_speaks_the_classic_protocol_is_answered_in_its_words(world) -> None:
    world.machine.apply(
        MemberSubscribed(
            group_id=GROUP,
            member_id="m1",
            client_id="",
            client_host="",
            subscribed_topic_names=("orders",),
            classic=ClassicMember(session_timeout_ms=1, protocols=(("range", b""),)),
        )
    )
    assert world.machine.refuse_commit(_commit(3, "m1", 2, version=2)) is E.illegal_generation
    assert world.machine.refuse_commit(_commit(1, "m1", 2, version=2)) is E.illegal_generation
    assert world.machine.refuse_commit(_commit(2, "m1", 2, version=2)) is E.none


@pytest.mark.parametrize(
    ("member_id", "epoch", "expected"),
    [
        (None, -1, E.none),
        ("m1", 2, E.none),
        ("m1", 1, E.stale_member_epoch),
        ("m1", 3, E.stale_member_epoch),
        ("m9", 2, E.unknown_member_id),
        (None, 2, E.unknown_member_id),
    ],
)
def test_who_may_fetch(world, member_id, epoch, expected) -> None:
    command = OffsetFetch(group_id=GROUP, member_id=member_id, member_epoch=epoch, topics=None)
    assert world.machine.refuse_fetch(command) is expected


@pytest.mark.parametrize("version", [0, 1])
def test_a_group_is_described_with_what_its_members_own_and_are_to_own(world, version) -> None:
    row = world.machine.describe(GROUP)
    body = render(ApiKey.consumer_group_describe, version, {"groups": [row]})
    (group,) = body.groups
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Reconciling", 3, 3)
    assert group.assignor_name == "range"
    m0, m1 = group.members
    (owned,) = m1.assignment.topic_partitions
    (target,) = m1.target_assignment.topic_partitions
    assert (owned.topic_name, owned.partitions) == ("orders", (0, 1, 2, 3))
    assert (target.topic_name, target.partitions) == ("orders", (2, 3))
    assert m0.assignment.topic_partitions == ()
    assert (m1.member_id, m1.member_epoch, m1.client_host) == ("m1", 2, "/127.0.0.1")


@pytest.mark.parametrize("version", [0, 1])
def test_an_answer_has_the_fields_of_its_version(world, version) -> None:
    reply = world.hear(request("m1", 2, holding={ORDERS: {2, 3}}))
    body = render(ApiKey.consumer_group_heartbeat, version, reply)
    assert (body.error_code, body.member_id, body.member_epoch) == (E.none, "m1", 3)
    assert body.heartbeat_interval.total_seconds() == 5


def test_a_group_knows_which_topics_it_reads(world) -> None:
    world.topics_are(refunds=1)
    world.hear(request("m2", names=[], subscribed_topic_regex="ref.*"))
    machine = world.machine
    assert machine.is_subscribed_to(GROUP, "orders")
    assert machine.is_subscribed_to(GROUP, "refunds")
    assert not machine.is_subscribed_to(GROUP, "other")
    assert not machine.is_empty(GROUP)
    assert list(machine.group_ids()) == [GROUP]
