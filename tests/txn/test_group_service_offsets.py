"""Positions of groups as a handler asks for them: committed, fetched and deleted, each in every version."""

import asyncio
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.runtime.decision import Producer
from support.group_node import GroupNode, on_node, ready

E = ErrorCode


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


@pytest.mark.parametrize("api", ["offset_commit", "txn_offset_commit"])
@pytest.mark.parametrize("hears", ["of another", "that it is gone", "nothing"])
def test_a_position_for_a_name_is_acknowledged_only_of_the_topic_that_has_it_now(
    api: str, hears: str
) -> None:
    """1. a client works in a topic that was made anew  2. this node knows the old one  3. its position would go with that."""

    async def scenario(node: GroupNode) -> None:
        await ready(node)

        async def confirm() -> bool:
            if hears == "of another":
                _made_anew(node)
            elif hears == "that it is gone":
                node.delete_topic("t")
            return hears != "nothing"

        before = node.service._confirm_image
        node.service._confirm_image = confirm

        async def commit() -> Any:
            if api == "offset_commit":
                reply = await node.commit(7)
            else:
                reply = await node.ask(api, 3, **committed_in_a_transaction(7))
            return reply.topics[0].partitions[0].error_code

        assert await commit() is E.coordinator_load_in_progress
        node.service._confirm_image = before
        again = await commit()
        assert again is (E.unknown_topic_or_partition if hears == "that it is gone" else E.none)
        if api == "offset_commit" and again is E.none:
            assert await node.fetch() == 7

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
