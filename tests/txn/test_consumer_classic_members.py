"""A classic member of a consumer group: how it comes, what it is refused, and when it is thrown out (KIP-848)."""

import pytest
from consumer_world import MixedCoordinator, request, subscription_bytes
from fencepost.cluster.base.errors import ErrorCode as E
from fencepost.txn.groups.commands import Leaving
from fencepost.txn.groups.consumer_member import MemberState
from migration_world import ORDERS, mixed_group, mixed_world, owned_by


@pytest.fixture
def world() -> MixedCoordinator:
    return mixed_world()


def test_a_new_classic_member_is_first_given_an_id(world) -> None:
    world.hear(request("c", names=["orders"]))
    reply = world.join("", ["orders"])
    assert reply["error_code"] is E.member_id_required
    assert list(world.group.members) == ["c"]
    reply = world.join(reply["member_id"], ["orders"])
    assert (reply["generation_id"], reply["protocol_name"]) == (3, "range")


def test_a_classic_member_must_share_a_protocol_with_the_others(world) -> None:
    world.hear(request("c", names=["orders"]))
    a = world.join("", ["orders"])["member_id"]
    world.join(a, ["orders"], protocols=("range", "sticky"))
    for protocols, how, expected in (
        (("roundrobin",), {}, E.inconsistent_group_protocol),
        (("sticky",), {"protocol_type": "connect"}, E.inconsistent_group_protocol),
        (("sticky",), {"metadata": b"\0"}, E.unknown_server_error),
        (("roundrobin", "sticky"), {}, E.none),
    ):
        reply = world.join("b", ["orders"], protocols=protocols, **how)
        assert reply["error_code"] is expected, protocols


def test_a_protocol_that_can_t_be_read_is_refused_wherever_it_stands(world) -> None:
    """A classic group may agree on any of them, and Kafka reads the first only. Seen to end every coordinator."""
    world.hear(request("c", names=["orders"]))
    protocols = {"range": subscription_bytes(["orders"], {}), "roundrobin": b""}
    a = world.join("", [], protocols=tuple(protocols), metadata_of=protocols)["member_id"]
    reply = world.join(a, [], protocols=tuple(protocols), metadata_of=protocols)
    assert reply["error_code"] is E.unknown_server_error
    assert list(world.group.members) == ["c"]


def test_a_purely_classic_group_takes_any_bytes(world) -> None:
    for metadata in ({"range": b""}, {"mine": b"\xff\xff", "range": b"?"}):
        how = {"protocols": tuple(metadata), "metadata_of": metadata}
        a = world.join("", [], **how)["member_id"]
        assert world.join(a, [], **how)["error_code"] is E.none
        world.leave(a)


def test_a_full_group_takes_no_classic_member_either(world) -> None:
    for member_id in ("c1", "c2", "c3"):
        world.hear(request(member_id, names=["orders"]))
    assert world.join("a", ["orders"])["error_code"] is E.group_max_size_reached


def test_who_speaks_with_the_wrong_words_is_told_so(world) -> None:
    a, generation = mixed_group(world)
    assert world.beat("nobody", generation) is E.unknown_member_id
    assert world.beat("c", 3) is E.unknown_member_id, "it speaks the other protocol"
    assert world.beat(a, generation + 1) is E.illegal_generation
    assert world.sync(a, generation - 1)["error_code"] is E.illegal_generation
    wrong = world.sync(a, generation, protocol_name="sticky")
    assert wrong["error_code"] is E.inconsistent_group_protocol
    wrong = world.sync(a, generation, protocol_type="connect")
    assert wrong["error_code"] is E.inconsistent_group_protocol
    assert world.sync(a, generation)["error_code"] is E.none


def test_a_classic_member_waits_for_what_others_still_have(world) -> None:
    world.hear(request("c", names=["orders"]))
    a = world.join("", ["orders"])["member_id"]
    generation = world.join(a, ["orders"])["generation_id"]
    assert world.group.members[a].state is MemberState.UNRELEASED_PARTITIONS
    assert owned_by(world.sync(a, generation)) == {}
    assert world.beat(a, generation) is E.none, "there is nothing to join again for yet"
    world.hear(request("c", 2))
    kept = sorted(world.group.members["c"].assigned[ORDERS])
    world.hear(request("c", 2, holding={ORDERS: kept}))
    assert world.beat(a, generation) is E.rebalance_in_progress
    generation = world.join(a, ["orders"])["generation_id"]
    assert len(owned_by(world.sync(a, generation))["orders"]) == 2


def test_a_classic_member_s_own_session_timeout_counts(world) -> None:
    world.hear(request("c", names=["orders"]))
    world.sleep(40_000)
    world.hear(request("c", 2))
    a = world.join("", ["orders"])["member_id"]
    world.join(a, ["orders"], session_timeout_ms=10_000)
    world.sleep(9_999)
    assert a in world.group.members
    world.sleep(1)
    assert a not in world.group.members


def test_a_classic_member_that_does_not_join_again_in_time_is_thrown_out(world) -> None:
    a, generation = mixed_group(world)
    world.sync(a, generation)
    world.hear(request("d", names=["orders"]))
    for _ in range(6):
        assert world.beat(a, generation) is E.rebalance_in_progress
        world.sleep(9_999)
        for member_id in ("c", "d"):
            world.hear(request(member_id, names=["orders"]))
    assert a in world.group.members
    world.sleep(1_000)
    assert a not in world.group.members
    assert sorted(world.group.members) == ["c", "d"]


def test_a_classic_member_that_does_not_sync_in_time_is_thrown_out(world) -> None:
    world.hear(request("c", names=["orders"]))
    a = world.join("", ["orders"])["member_id"]
    generation = world.join(a, ["orders"], session_timeout_ms=300_000)["generation_id"]
    for _ in range(2):
        world.sleep(29_999)
        world.beat(a, generation)
        world.hear(request("c", names=["orders"]))
    assert a in world.group.members
    world.sleep(2)
    assert a not in world.group.members


def test_members_of_both_protocols_are_taken_out_by_leave_group(world) -> None:
    a, _ = mixed_group(world)
    world.hear(request("s", names=["orders"], instance_id="i"))
    reply = world.leave(a, "nobody", Leaving("", "i"), Leaving("x", "j"))
    codes = [row["error_code"] for row in reply["members"]]
    assert codes == [E.none, E.unknown_member_id, E.none, E.unknown_member_id]
    assert list(world.group.members) == ["c"]


def test_a_static_member_changes_its_protocol_without_leaving(world) -> None:
    world.hear(request("c", names=["orders"]))
    a = world.join("", ["orders"], instance_id="i")["member_id"]
    reply = world.hear(request("b", names=["orders"], instance_id="i"))
    assert reply["error_code"] is E.none
    assert sorted(world.group.members) == ["b", "c"]
    assert a not in world.group.members
    assert world.group.members["b"].classic is None
