"""The group APIs as a handler calls them: every version's own messages in, every version's own messages out."""

import asyncio
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import GROUP_OFFSETS_TOPIC
from fencepost.txn.groups.config import GroupConfig
from fencepost.txn.runtime.decision import Producer
from support.group_node import GroupNode, on_node

E = ErrorCode


def later(work: Any) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(work)


async def ready(node: GroupNode) -> None:
    """The offsets topic is there and loaded."""
    await node.service.coordinator_of("g")
    await asyncio.sleep(0.1)


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


# -- offsets -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 11))
def test_offsets_are_committed_in_every_version(version: int) -> None:
    async def scenario(node: GroupNode) -> None:
        await ready(node)
        named: dict[str, Any] = {"name": "t"}
        if version >= 10:
            named = {"topic_id": node.image.topics["t"].topic_id}
        rows = [
            {"partition_index": index, "committed_offset": 7, "committed_metadata": None}
            for index in (0, 5)
        ]
        unknown = {"name": "nothing"} if version < 10 else {"topic_id": None}
        topics = [{**unknown, "partitions": rows[:1]}, {**named, "partitions": rows}]
        reply = await node.commit(0, version=version, topics=topics)
        codes = [[row.error_code for row in topic.partitions] for topic in reply.topics]
        missing = E.unknown_topic_id if version >= 10 else E.unknown_topic_or_partition
        assert codes == [[missing], [E.none, E.unknown_topic_or_partition]]
        assert await node.fetch() == 7

    on_node(scenario)


@pytest.mark.parametrize("version", range(1, 11))
def test_offsets_are_fetched_in_every_version(version: int) -> None:
    async def scenario(node: GroupNode) -> None:
        await ready(node)
        await node.commit(7)
        named: dict[str, Any] = {"name": "t"}
        if version >= 10:
            named = {"topic_id": node.image.topics["t"].topic_id}
        group = {"group_id": "g", "topics": [{**named, "partition_indexes": [0, 1]}]}
        if version >= 8:
            (found,) = (await node.ask("offset_fetch", version, groups=[group])).groups
        else:
            found = await node.ask("offset_fetch", version, **group)
        (topic,) = found.topics
        offsets = [
            (row.partition_index, row.committed_offset, row.metadata) for row in topic.partitions
        ]
        assert offsets == [(0, 7, "m"), (1, -1, "")]

    on_node(scenario)


@pytest.mark.parametrize("version", [2, 7, 8, 10])
def test_all_offsets_of_a_group_are_fetched_by_naming_no_topic(version: int) -> None:
    async def scenario(node: GroupNode) -> None:
        await ready(node)
        await node.commit(7)
        group = {"group_id": "g", "topics": None}
        if version >= 8:
            (found,) = (await node.ask("offset_fetch", version, groups=[group])).groups
        else:
            found = await node.ask("offset_fetch", version, **group)
        (topic,) = found.topics
        assert topic.partitions[0].committed_offset == 7
        if version >= 10:
            assert topic.topic_id == node.image.topics["t"].topic_id

    on_node(scenario)


def _made_anew(node: GroupNode) -> None:
    """The topic is another, and nobody told the coordinator, as when it was not yet one."""
    before = node.image.topics.pop("t")
    del node.image.topics_by_id[before.topic_id]
    node.make_topic("t", 2)


@pytest.mark.parametrize("version", [2, 7, 8, 9, 10])
@pytest.mark.parametrize("asks", ["named", "all"])
def test_a_topic_that_is_made_anew_inherits_no_position(version: int, asks: str) -> None:
    """Its reader would skip what is before the old position, and never hear of it."""

    async def scenario(node: GroupNode) -> None:
        await ready(node)
        await node.commit(7)
        _made_anew(node)
        named = {"topic_id": node.image.topics["t"].topic_id} if version >= 10 else {"name": "t"}
        topics = None if asks == "all" else [{**named, "partition_indexes": [0]}]
        group = {"group_id": "g", "topics": topics}
        if version >= 8:
            (found,) = (await node.ask("offset_fetch", version, groups=[group])).groups
        else:
            found = await node.ask("offset_fetch", version, **group)
        rows = [row.committed_offset for topic in found.topics for row in topic.partitions]
        assert rows == ([] if asks == "all" else [-1])

    on_node(scenario)


def test_positions_are_of_the_topics_in_the_image_that_was_confirmed() -> None:
    """1. a fetch comes  2. this node hears of the new topic only while it makes sure  3. the position is the old's."""

    async def scenario(node: GroupNode) -> None:
        await ready(node)
        await node.commit(7)

        async def confirm() -> bool:
            _made_anew(node)
            return True

        node.service._confirm_image = confirm
        assert await node.fetch() == -1

    on_node(scenario)


def test_several_groups_are_fetched_at_once_each_with_its_own_error() -> None:
    async def scenario(node: GroupNode) -> None:
        await ready(node)
        await node.commit(7, group_id="here")
        moved = node.service._coordinator.partition_of("moved")
        assert moved != node.service._coordinator.partition_of("here")
        node.lead(moved, 2)
        topics = [{"name": "t", "partition_indexes": [0]}]
        reply = await node.ask(
            "offset_fetch",
            9,
            groups=[{"group_id": name, "topics": topics} for name in ("moved", "here")],
        )
        assert [(g.group_id, g.error_code) for g in reply.groups] == [
            ("moved", E.not_coordinator),
            ("here", E.none),
        ]

    on_node(scenario)


def test_version_1_has_no_place_for_an_error_but_the_partitions() -> None:
    async def scenario(node: GroupNode) -> None:
        topics = [{"name": "t", "partition_indexes": [0]}]
        reply = await node.ask("offset_fetch", 1, group_id="g", topics=topics)
        assert reply.topics[0].partitions[0].error_code is E.not_coordinator

    on_node(scenario)


def committed_in_a_transaction(offset: int, **more: Any) -> dict[str, Any]:
    row = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    producer = {"transactional_id": "x", "producer_id": 7, "producer_epoch": 0}
    topics = [{"name": "t", "partitions": [row]}]
    return {"group_id": "g", **producer, "topics": topics, **more}


def test_an_offset_of_a_transaction_that_is_not_open_is_not_stored() -> None:
    """KIP-890: one that comes after its transaction has ended would leave the position unstable for ever."""

    async def scenario(node: GroupNode) -> None:
        await ready(node)
        assert await node.commit(1)
        node.verdict = E.invalid_txn_state
        reply = await node.ask("txn_offset_commit", 3, **committed_in_a_transaction(9))
        assert reply.topics[0].partitions[0].error_code is E.invalid_txn_state
        (asked,) = node.verified
        assert asked == await node.service.offsets_partition_of("g")
        assert await node.fetch() == 1

    on_node(scenario)


def test_nobody_is_asked_about_a_transaction_with_no_offset_that_can_be_stored() -> None:
    async def scenario(node: GroupNode) -> None:
        await ready(node)
        nowhere = committed_in_a_transaction(9)
        nowhere["topics"][0]["name"] = "no such topic"
        reply = await node.ask("txn_offset_commit", 3, **nowhere)
        assert reply.topics[0].partitions[0].error_code is E.unknown_topic_or_partition
        nobody = committed_in_a_transaction(9, group_id="")
        reply = await node.ask("txn_offset_commit", 3, **nobody)
        assert reply.topics[0].partitions[0].error_code is E.invalid_group_id
        assert node.verified == []

    on_node(scenario)


def test_an_offset_in_a_transaction_is_unstable_until_its_marker() -> None:
    async def scenario(node: GroupNode) -> None:
        await ready(node)
        stored = await node.ask("txn_offset_commit", 3, **committed_in_a_transaction(9))
        assert stored.topics[0].partitions[0].error_code is E.none

        async def fetched() -> Any:
            group = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}
            reply = await node.ask("offset_fetch", 9, groups=[group], require_stable=True)
            return reply.groups[0].topics[0].partitions[0]

        assert (await fetched()).error_code is E.unstable_offset_commit
        partition = node.service._coordinator.partition_of("g")
        code = await node.service.end_transaction(
            partition, Producer(7, 0), coordinator_epoch=0, commit=True
        )
        assert code is E.none
        assert (await fetched()).committed_offset == 9

    on_node(scenario)


def test_deleting_a_topic_deletes_its_offsets() -> None:
    async def scenario(node: GroupNode) -> None:
        await ready(node)
        await node.commit(7)
        node.delete_topic("t")
        await asyncio.sleep(0.1)
        node.make_topic("t", 2)
        assert await node.fetch() == -1

    on_node(scenario)


def test_offsets_are_deleted_partition_by_partition() -> None:
    async def scenario(node: GroupNode) -> None:
        await ready(node)
        await node.commit(7)
        topics = [
            {"name": "nothing", "partitions": [{"partition_index": 0}]},
            {"name": "t", "partitions": [{"partition_index": 9}, {"partition_index": 0}]},
        ]
        reply = await node.ask("offset_delete", 0, group_id="g", topics=topics)
        codes = [[row.error_code for row in topic.partitions] for topic in reply.topics]
        unknown = E.unknown_topic_or_partition
        assert codes == [[unknown], [unknown, E.none]]
        assert await node.fetch() == -1
        nobody = await node.ask("offset_delete", 0, group_id="nobody", topics=topics)
        assert nobody.error_code is E.group_id_not_found

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


def test_the_offsets_topic_itself_is_an_ordinary_topic_of_the_image() -> None:
    async def scenario(node: GroupNode) -> None:
        await ready(node)
        assert len(node.image.topics[GROUP_OFFSETS_TOPIC].partitions) == 3
        node.delete_topic(GROUP_OFFSETS_TOPIC)
        assert (await node.join()).error_code is E.not_coordinator
        assert await node.service.coordinator_of("g") == 1
        assert node.created == 2

    on_node(scenario)
