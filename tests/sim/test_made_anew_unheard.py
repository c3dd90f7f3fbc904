"""A topic that was deleted and made anew, asked of the leader of the old one, who has not heard of that."""

import asyncio
from typing import Any

import pytest
from fencepost.chaos.sim.cluster_nodes import node_name
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.records import Record, build_batch
from group_coordinators import E, Groups, play
from test_topic_made_anew import T, create, internal_topics, make_anew

pytestmark = pytest.mark.slow
EARLIEST = -2
OLD_BEGINS, OLD_ENDS, NEW_ENDS = 100, 200, 300


async def write(groups: Groups, leader: int, count: int) -> None:
    records = [Record(at, groups.env.clock.now_ms(), None, b"v", ()) for at in range(count)]
    part = {"index": 0, "records": bytes(build_batch(records))}
    topics = [{"name": T, "partition_data": [part]}]
    asked = {"transactional_id": None, "acks": -1, "timeout_ms": 5_000, "topic_data": topics}
    reply = await groups.ask(leader, ApiKey.produce, 12, **asked)
    assert reply.responses[0].partition_responses[0].error_code is E.none


async def below_the_start(groups: Groups, node: int, topic_id: Any) -> Any:
    place = {"partition": 0, "fetch_offset": 5, "partition_max_bytes": 1 << 20}
    limits = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1}
    topics = [{"topic_id": topic_id, "partitions": [place]}]
    reply = await groups.ask(node, ApiKey.fetch, 13, **limits, topics=topics)
    return reply.responses[0].partitions[0].error_code


async def the_beginning(groups: Groups, node: int, _: Any) -> Any:
    topics = [{"name": T, "partitions": [{"partition_index": 0, "timestamp": EARLIEST}]}]
    reply = await groups.ask(node, ApiKey.list_offsets, 7, topics=topics)
    return reply.topics[0].partitions[0].error_code


async def where_the_epoch_ended(groups: Groups, node: int, _: Any) -> Any:
    place = {"partition": 0, "current_leader_epoch": 0, "leader_epoch": 0}
    topics = [{"topic": T, "partitions": [place]}]
    reply = await groups.ask(node, ApiKey.offset_for_leader_epoch, 4, topics=topics)
    answer = reply.topics[0].partitions[0]
    assert answer.error_code is E.none or answer.end_offset == -1
    return answer.error_code


@pytest.mark.parametrize("away", ["asleep", "not heard"])
@pytest.mark.parametrize("wanted", [below_the_start, the_beginning, where_the_epoch_ended])
def test_what_the_old_topic_has_not_is_not_said_of_the_new_one(away: str, wanted: Any) -> None:
    """A group has read and committed up to 5 of the new topic, or up to 250, and its member begins anew with metadata of before: it
    went on at 100, past 95 records that nobody had read, or back to 200."""

    async def scenario(groups: Groups, _: int) -> None:
        nodes, controller = groups.nodes, await internal_topics(groups)
        old, new = [int(each) for each in nodes.ids if each != controller][:2]
        old_id = await create(groups, controller, [old])
        await nodes.until_whole()
        await write(groups, old, OLD_ENDS)
        part = {"partition_index": 0, "offset": OLD_BEGINS}
        topics = [{"name": T, "partitions": [part]}]
        reply = await groups.ask(old, ApiKey.delete_records, 2, timeout_ms=5_000, topics=topics)
        assert reply.topics[0].partitions[0].error_code is E.none
        heard = await wanted(groups, old, old_id)
        assert heard is (E.offset_out_of_range if wanted is below_the_start else E.none)
        if away == "asleep":
            groups.world.pause(node_name(old))
        for other in nodes.ids if away != "asleep" else ():
            if other != old:
                groups.world.net.cut(node_name(old), node_name(other))
        await make_anew(groups, controller, [new])
        await write(groups, new, NEW_ENDS)
        asked = asyncio.ensure_future(wanted(groups, old, old_id))
        await asyncio.sleep(0.1)
        groups.world.resume(node_name(old))
        assert await asked in (
            E.not_leader_or_follower,
            E.offset_not_available,
            E.unknown_topic_or_partition,
            E.unknown_topic_id,
        )

    play(1, scenario)


@pytest.mark.parametrize("away", ["asleep", "not heard"])
def test_a_fetch_is_not_told_where_an_epoch_of_the_old_topic_ended(away: str) -> None:
    """By whoever names the epoch of what it read last (Fetch 12, `diverging_epoch`)."""

    async def scenario(groups: Groups, _: int) -> None:
        nodes, controller = groups.nodes, await internal_topics(groups)
        old, new = [int(each) for each in nodes.ids if each != controller][:2]
        old_id = await create(groups, controller, [old])
        await nodes.until_whole()
        await write(groups, old, OLD_ENDS)
        groups.world.kill(node_name(old))  # its next life has another epoch
        await asyncio.sleep(5)
        nodes.start_all()
        await nodes.until_ready()
        await nodes.until_whole()
        groups.forget(old)
        await write(groups, old, OLD_BEGINS)
        state = nodes.partition(T, 0)
        assert state is not None and state.leader_epoch > 0
        place = {"partition": 0, "fetch_offset": OLD_ENDS + 50, "partition_max_bytes": 1 << 20}
        place |= {"current_leader_epoch": state.leader_epoch, "last_fetched_epoch": 0}

        async def told() -> Any:
            limits = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1}
            topics = [{"topic_id": old_id, "partitions": [place]}]
            reply = await groups.ask(old, ApiKey.fetch, 13, **limits, topics=topics)
            return reply.responses[0].partitions[0]

        assert (await told()).diverging_epoch.end_offset == OLD_ENDS
        if away == "asleep":
            groups.world.pause(node_name(old))
        for other in nodes.ids if away != "asleep" else ():
            if other != old:
                groups.world.net.cut(node_name(old), node_name(other))
        await make_anew(groups, controller, [new])
        await write(groups, new, NEW_ENDS)
        asked = asyncio.ensure_future(told())
        await asyncio.sleep(0.1)
        groups.world.resume(node_name(old))
        said = await asked
        assert said.error_code is not E.none
        assert said.diverging_epoch.end_offset == -1

    play(1, scenario)
