"""Groups as a handler asks for them: which node answers for one, and what is told of it."""

import asyncio
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import GROUP_OFFSETS_TOPIC
from fencepost.txn.groups.config import GroupConfig
from support.group_node import GroupNode, on_node, ready

E = ErrorCode


def later(work: Any) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(work)


# -- where a group is ------------------------------------------------------------------------------


def test_the_first_who_asks_for_a_coordinator_has_the_topic_made_once() -> None:
    async def scenario(node: GroupNode) -> None:
        found = await asyncio.gather(*(node.service.coordinator_of(f"g{i}") for i in range(5)))
        assert found == [1] * 5
        assert node.created == 1

    on_node(scenario)


def test_who_had_the_topic_made_can_join_at_once() -> None:
    async def scenario(node: GroupNode) -> None:
        assert await node.service.coordinator_of("g") == 1
        assert (await node.join()).error_code is E.member_id_required

    on_node(scenario)


def test_while_the_topic_can_not_be_made_there_is_no_coordinator() -> None:
    async def scenario(node: GroupNode) -> None:
        node.create_fails = True
        assert await node.service.coordinator_of("g") is E.coordinator_not_available
        node.create_fails = False
        assert await node.service.coordinator_of("g") == 1

    on_node(scenario)


def test_only_the_leader_of_its_partition_answers_for_a_group() -> None:
    async def scenario(node: GroupNode) -> None:
        assert (await node.join()).error_code is E.not_coordinator
        await ready(node)
        assert (await node.join()).error_code is E.member_id_required
        for partition in range(3):
            node.lead(partition, 2)
        assert (await node.join()).error_code is E.not_coordinator
        assert await node.service.coordinator_of("g") == 2

    on_node(scenario)


def test_while_a_partition_is_loaded_its_groups_are_asked_to_wait_and_heartbeats_are_taken() -> (
    None
):
    async def scenario(node: GroupNode) -> None:
        await ready(node)
        for partition in range(3):
            node.lead(partition, 2)
            node.logs[partition].commits_at_once = False
            node.logs[partition].batches.clear()
            node.logs[partition].log_end_offset += 1
            node.lead(partition, 1, epoch=2)
        await asyncio.sleep(1)
        assert (await node.join()).error_code is E.coordinator_load_in_progress
        beat = {"group_id": "g", "generation_id": 1, "member_id": "m"}
        assert (await node.ask("heartbeat", 4, **beat)).error_code is E.none
        assert (await node.ask("list_groups", 5)).error_code is E.coordinator_load_in_progress

    on_node(scenario)


def test_a_parked_join_is_answered_when_the_partition_moves_away() -> None:
    async def scenario(node: GroupNode) -> None:
        await ready(node)
        member_id = (await node.join()).member_id
        waits = later(node.join(member_id))
        await asyncio.sleep(0.01)
        assert not waits.done()
        for partition in range(3):
            node.lead(partition, 2)
        assert (await waits).error_code is E.not_coordinator

    on_node(scenario, config=GroupConfig())


def test_a_full_disk_costs_a_commit_and_not_the_group() -> None:
    async def scenario(node: GroupNode) -> None:
        await ready(node)
        assert (await node.commit(5)).topics[0].partitions[0].error_code is E.none
        for log in node.logs.values():
            log.refuse = E.kafka_storage_error
        assert (await node.commit(6)).topics[0].partitions[0].error_code is E.not_coordinator
        for log in node.logs.values():
            log.refuse = E.none
        await asyncio.sleep(1)
        assert await node.fetch() == 5
        assert (await node.commit(7)).topics[0].partitions[0].error_code is E.none

    on_node(scenario)


# -- looking at groups -------------------------------------------------------------------------------


def test_groups_of_all_partitions_are_listed_described_and_deleted() -> None:
    async def scenario(node: GroupNode) -> None:
        await ready(node)
        names = [f"g{number}" for number in range(6)]
        for name in names:
            await node.commit(1, group_id=name)
        partitions = {node.service._coordinator.partition_of(name) for name in names}
        assert len(partitions) > 1
        listed = await node.ask("list_groups", 5, states_filter=["Empty"], types_filter=["classic"])
        assert sorted(row.group_id for row in listed.groups) == names
        asked = [*reversed(names), "nobody"]
        described = await node.ask(
            "describe_groups", 6, groups=asked, include_authorized_operations=False
        )
        assert [row.group_id for row in described.groups] == asked
        assert [row.group_state for row in described.groups] == ["Empty"] * 6 + ["Dead"]
        again = await node.ask(
            "describe_groups", 6, groups=asked * 3, include_authorized_operations=False
        )
        assert (
            again == described
        )  # a group of 1,000 members takes 5 bytes to name, and 100 KB to describe
        deleted = await node.ask("delete_groups", 2, groups_names=[*asked, names[0]])
        assert [(row.group_id, row.error_code) for row in deleted.results] == [
            *((name, E.none) for name in reversed(names)),
            ("nobody", E.group_id_not_found),
        ]
        assert (await node.ask("list_groups", 0)).groups == ()

    on_node(scenario)


@pytest.mark.parametrize("version", range(7))
def test_groups_are_described_in_every_version(version: int) -> None:
    async def scenario(node: GroupNode) -> None:
        await ready(node)
        member_id = (await node.join()).member_id
        await node.join(member_id)
        flags = {"include_authorized_operations": False} if version >= 3 else {}
        reply = await node.ask("describe_groups", version, groups=["g", "nobody"], **flags)
        assert [row.group_state for row in reply.groups] == ["CompletingRebalance", "Dead"]
        assert reply.groups[0].members[0].client_host == "/127.0.0.1"

    on_node(scenario)


def test_a_group_that_has_moved_is_described_by_its_error() -> None:
    async def scenario(node: GroupNode) -> None:
        for api, fields in (
            ("describe_groups", {"groups": ["g"], "include_authorized_operations": False}),
            (
                "consumer_group_describe",
                {"group_ids": ["g"], "include_authorized_operations": False},
            ),
        ):
            version = 6 if api == "describe_groups" else 1
            (row,) = (await node.ask(api, version, **fields)).groups
            assert row.error_code is E.not_coordinator
        (row,) = (await node.ask("delete_groups", 2, groups_names=["g"])).results
        assert row.error_code is E.not_coordinator

    on_node(scenario)


def test_the_offsets_topic_itself_is_an_ordinary_topic_of_the_image() -> None:
    async def scenario(node: GroupNode) -> None:
        await ready(node)
        assert len(node.image.topics[GROUP_OFFSETS_TOPIC].partitions) == 3
        node.delete_topic(GROUP_OFFSETS_TOPIC)
        assert (await node.join()).error_code is E.not_coordinator
        assert await node.service.coordinator_of("g") == 1
        assert node.created == 2

    on_node(scenario)
