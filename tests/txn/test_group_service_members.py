"""Members as a handler calls for them, of the classic protocol in every version of it and of the new one."""

import asyncio
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from support.group_node import GroupNode, on_node, ready

E = ErrorCode

# -- the classic protocol ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(10))
def test_a_consumer_of_every_version_joins_syncs_and_leaves(version: int) -> None:
    async def scenario(node: GroupNode) -> None:
        await ready(node)
        member_id = ""
        if version >= 4:
            member_id = (await node.join(version=version)).member_id
        joined = await node.join(member_id, version=version)
        assert joined.error_code is E.none
        assert (joined.leader, joined.generation_id) == (joined.member_id, 1)
        assert joined.protocol_name == "range"
        member = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id}
        named = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
        synced = await node.ask(
            "sync_group",
            min(version, 5),
            assignments=[{"member_id": joined.member_id, "assignment": b"all"}],
            **member,
            **named,
        )
        assert synced.assignment == b"all"
        assert (await node.ask("heartbeat", min(version, 4), **member)).error_code is E.none
        if version >= 3:
            left = await node.ask(
                "leave_group",
                min(version, 5),
                group_id="g",
                members=[{"member_id": joined.member_id}, {"member_id": "x"}],
            )
            assert left.error_code is E.none
            codes = [row.error_code for row in left.members]
            assert codes == [E.none, E.unknown_member_id]
        else:
            one = {"group_id": "g", "member_id": joined.member_id}
            assert (await node.ask("leave_group", version, **one)).error_code is E.none
            again = await node.ask("leave_group", version, **one)
            assert again.error_code is E.unknown_member_id

    on_node(scenario)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, E.invalid_group_id),
        ({"session_timeout_ms": 5_999}, E.invalid_session_timeout),
        ({"session_timeout_ms": 1_800_001}, E.invalid_session_timeout),
        ({"session_timeout_ms": 6_000}, E.member_id_required),
    ],
)
def test_a_join_is_refused_before_any_group_is_asked(fields, error) -> None:
    async def scenario(node: GroupNode) -> None:
        await ready(node)
        assert (await node.join(**fields)).error_code is error

    on_node(scenario)


@pytest.mark.parametrize(
    ("api", "version", "fields"),
    [
        ("sync_group", 4, {"generation_id": 1, "member_id": "m", "assignments": []}),
        ("heartbeat", 4, {"generation_id": 1, "member_id": "m"}),
        ("leave_group", 5, {"members": []}),
        ("offset_delete", 0, {"topics": []}),
    ],
)
def test_an_empty_group_id_is_no_group_id(api, version, fields) -> None:
    async def scenario(node: GroupNode) -> None:
        await ready(node)
        assert (
            await node.ask(api, version, group_id="", **fields)
        ).error_code is E.invalid_group_id

    on_node(scenario)


def test_before_v7_a_protocol_that_is_not_agreed_on_is_the_empty_string() -> None:
    async def scenario(node: GroupNode) -> None:
        await ready(node)
        assert (await node.join("nobody", version=6)).protocol_name == ""
        assert (await node.join("nobody", version=7)).protocol_name is None

    on_node(scenario)


def test_from_v5_on_a_sync_must_name_the_protocol() -> None:
    async def scenario(node: GroupNode) -> None:
        await ready(node)
        fields = {"group_id": "g", "generation_id": 1, "member_id": "m", "assignments": []}
        assert (await node.ask("sync_group", 5, **fields)).error_code is (
            E.inconsistent_group_protocol
        )
        assert (await node.ask("sync_group", 4, **fields)).error_code is E.unknown_member_id

    on_node(scenario)


def test_a_silent_member_is_thrown_out_by_the_clock() -> None:
    async def scenario(node: GroupNode) -> None:
        await ready(node)
        member_id = (await node.join()).member_id
        await node.join(member_id)
        beat = {"group_id": "g", "generation_id": 1, "member_id": member_id}
        await asyncio.sleep(9.9)
        assert (await node.ask("heartbeat", 4, **beat)).error_code is E.none
        await asyncio.sleep(10.1)
        assert (await node.ask("heartbeat", 4, **beat)).error_code is E.unknown_member_id

    on_node(scenario)


def test_a_name_that_no_record_can_hold_is_refused_and_harms_nobody() -> None:
    """Flexible versions carry strings of any length; a key in the log has 32,767 bytes for one."""

    async def scenario(node: GroupNode) -> None:
        await ready(node)
        long = "x" * 40_000
        for fields in (
            {"group_id": long},
            {"group_instance_id": long},
            {"protocol_type": long},
            {"protocols": [{"name": long, "metadata": b""}]},
        ):
            assert (await node.join(**fields)).error_code is E.invalid_request
        code = (await node.commit(1, group_id=long)).topics[0].partitions[0].error_code
        assert code is E.unknown_server_error
        forever = await node.commit(1, version=3, retention_time_ms=2**63 - 1)
        assert forever.topics[0].partitions[0].error_code is E.none
        assert await node.fetch() == 1

    on_node(scenario)


# -- the new protocol --------------------------------------------------------------------------------


def test_a_consumer_of_the_new_protocol_gets_its_partitions() -> None:
    """KIP-848 from the wire down; what it can do beyond that is in its own tests."""

    async def scenario(node: GroupNode) -> None:
        await ready(node)
        joining = {
            "group_id": "new",
            "member_id": "AAAAAAAAAAAAAAAAAAAAAA",
            "member_epoch": 0,
            "rebalance_timeout_ms": 30_000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
        }
        joined = await node.ask("consumer_group_heartbeat", 1, **joining)
        assert joined.error_code is E.none
        (assigned,) = joined.assignment.topic_partitions
        assert assigned.topic_id == node.image.topics["t"].topic_id
        assert sorted(assigned.partitions) == [0, 1]
        described = await node.ask(
            "consumer_group_describe", 1, group_ids=["new", ""], include_authorized_operations=False
        )
        assert [row.error_code for row in described.groups] == [E.none, E.invalid_group_id]
        assert len(described.groups[0].members) == 1
        again = await node.ask(
            "consumer_group_describe",
            1,
            group_ids=["new", "", "new", ""],
            include_authorized_operations=False,
        )
        assert again == described
        listed = await node.ask("list_groups", 5, types_filter=["consumer"])
        assert [row.group_id for row in listed.groups] == ["new"]
        refused = await node.join(group_id="new")
        assert refused.error_code is E.member_id_required  # it may come: groups migrate

    on_node(scenario)


def test_members_that_are_heard_while_nothing_can_be_written_stay() -> None:
    """A partition comes, so each heartbeat has something to write: after 45 s their sessions were over, and they were thrown out as soon
    as there were enough replicas again."""

    async def scenario(node: GroupNode) -> None:
        async def beat(epoch: int) -> Any:
            return await node.ask(
                "consumer_group_heartbeat",
                1,
                group_id="g",
                member_id="m",
                member_epoch=epoch,
                server_assignor=None,
                rebalance_timeout_ms=-1 if epoch else 60_000,
                subscribed_topic_names=None if epoch else ["t"],
                topic_partitions=None if epoch else [],
            )

        await ready(node)
        node.make_topic("t", 2)
        epoch = (await beat(0)).member_epoch
        log = node.logs[node.service.coordinator.partition_of("g")]
        log.refuse = E.not_enough_replicas
        node.add_partition("t")
        for _ in range(12):
            await node.env.clock.sleep(5)
            assert (await beat(epoch)).error_code is E.coordinator_not_available
        log.refuse = E.none
        await node.env.clock.sleep(1)
        assert (await beat(epoch)).error_code is E.none

    on_node(scenario)
