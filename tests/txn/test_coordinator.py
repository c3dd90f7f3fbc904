"""Seats, loads and losses: when a partition of ours takes commands."""

import asyncio
from uuid import UUID

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import GROUP_OFFSETS_TOPIC
from fencepost.cluster.metadata.image import ImageDelta, TopicState
from fencepost.txn.groups.commands import ListGroups
from fencepost.txn.runtime.shard import Shard
from support.fake_log import FakeLog
from support.group_node import GroupNode, on_node
from support.group_scene import Scene
from test_loader import fill

E = ErrorCode


def shard_of(node: GroupNode, partition: int = 0) -> Shard | ErrorCode:
    return node.service._coordinator.shard_at(partition)


async def created(node: GroupNode) -> None:
    await node.service.coordinator_of("g")
    await asyncio.sleep(0.1)


def test_a_command_is_refused_until_the_log_has_been_replayed() -> None:
    async def scenario(node: GroupNode) -> None:
        node.commits_at_once = False
        await node.create_offsets_topic(GROUP_OFFSETS_TOPIC)
        node.logs[0].log_end_offset += 1  # something that is not committed yet
        assert shard_of(node) is E.coordinator_load_in_progress
        await asyncio.sleep(1)
        assert shard_of(node) is E.coordinator_load_in_progress
        node.logs[0].commit()
        await asyncio.sleep(0.1)
        assert isinstance(shard_of(node), Shard)

    on_node(scenario, partitions=1)


def test_a_partition_whose_replica_is_not_ready_is_loaded_as_soon_as_it_is() -> None:
    async def scenario(node: GroupNode) -> None:
        await created(node)
        log = node.logs.pop(0)
        node.lead(0, 2)
        node.lead(0, 1)
        await asyncio.sleep(5)
        assert shard_of(node) is E.coordinator_load_in_progress
        node.logs[0] = log
        await asyncio.sleep(5)
        assert isinstance(shard_of(node), Shard)

    on_node(scenario, partitions=1)


def test_a_record_that_can_not_be_read_keeps_the_partition_closed_and_says_why() -> None:
    async def scenario(node: GroupNode) -> None:
        await created(node)
        from fencepost.cluster.wire.records import Record, build_batch

        node.lead(0, 2)
        node.logs[0].append(build_batch([Record(0, 0, b"\x00\x02\x00\x01g", b"\x00\x63")]), 0)
        node.lead(0, 1)
        await asyncio.sleep(1)
        assert shard_of(node) is E.not_coordinator
        assert (await node.ask("list_groups", 5)).error_code is E.none
        events = node.env.machine.events
        assert [line for line in events if "unreadable" in str(line)]
        (said,) = [fields for _, event, fields in events if event == "coordinator_left_out"]
        assert said == {"shard": f"{GROUP_OFFSETS_TOPIC}-0", "asked": "ListGroups"}

    on_node(scenario, partitions=1)


def test_a_list_that_a_partition_of_ours_was_lost_under_is_not_a_list_without_it() -> None:
    """1. Somebody asks for all groups, and the answer waits for a commit.  2. The log fails, and is read again here.
    3. The list had no groups of that partition, and no error.
    """

    async def scenario(node: GroupNode) -> None:
        await created(node)
        await node.commit(1)
        node.logs[0].commits_at_once = False
        tasks = asyncio.get_running_loop()
        waits = tasks.create_task(node.commit(2))
        await asyncio.sleep(0.01)
        lists = tasks.create_task(node.ask("list_groups", 5))
        await asyncio.sleep(0.01)
        node.logs[0].refuse = E.kafka_storage_error
        await node.commit(3)
        await waits
        assert (await lists).error_code is E.coordinator_load_in_progress
        node.logs[0].refuse = E.none
        node.logs[0].commit()
        await asyncio.sleep(5)
        assert [each.group_id for each in (await node.ask("list_groups", 5)).groups] == ["g"]

    on_node(scenario, partitions=1)


def test_a_bit_that_flipped_on_the_disk_is_not_coordinated_by_and_gives_up_the_replica() -> None:
    """It was believed: a committed offset, a state of a transaction. The other replicas have what was written."""

    async def scenario(node: GroupNode) -> None:
        await created(node)
        await node.commit(1)
        node.lead(0, 2)
        damaged = bytearray(node.logs[0].batches[-1])
        damaged[-3] ^= 4
        node.logs[0].batches[-1] = bytes(damaged)
        node.lead(0, 1)
        await asyncio.sleep(1)
        assert isinstance(shard_of(node), ErrorCode)
        (why,) = node.logs[0].damages
        assert "is not what was written" in why

    on_node(scenario, partitions=1)


def test_a_lost_shard_is_built_anew_after_a_pause_that_grows() -> None:
    async def scenario(node: GroupNode) -> None:
        await created(node)
        node.logs[0].refuse = E.kafka_storage_error
        reads = 0
        read = node.logs[0].committed

        async def counting(horizon: int) -> ErrorCode:
            nonlocal reads
            reads += 1
            return await read(horizon)

        node.logs[0].committed = counting  # type: ignore[method-assign]
        for _ in range(100):
            await node.commit(1)
            await asyncio.sleep(0.1)
        assert reads < 10, "a full disk must not mean to replay the log all day"

    on_node(scenario, partitions=1)


def test_when_the_node_stops_nobody_is_left_waiting() -> None:
    async def scenario(node: GroupNode) -> None:
        node.commits_at_once = False
        await created(node)
        waits = asyncio.get_running_loop().create_task(node.commit(1))
        await asyncio.sleep(0.01)
        assert not waits.done()
        await node.service.stop()
        code = (await waits).topics[0].partitions[0].error_code
        assert code is E.not_coordinator
        assert shard_of(node) is E.not_coordinator

    on_node(scenario, partitions=1)


def test_a_second_election_of_the_same_leader_keeps_the_shard() -> None:
    async def scenario(node: GroupNode) -> None:
        await created(node)
        before = shard_of(node)
        node.lead(0, 1, epoch=1)
        assert shard_of(node) is before
        node.lead(0, 1, epoch=2)
        assert shard_of(node) is before

    on_node(scenario, partitions=1)


def test_a_term_of_another_that_was_never_heard_of_discards_the_shard() -> None:
    """A node that was away gets the image of a snapshot: 1 led, 2 led, 1 leads. What 2 wrote is not in its memory."""

    async def scenario(node: GroupNode) -> None:
        await created(node)
        await node.commit(5)
        before = shard_of(node)
        assert isinstance(before, Shard)
        other = Scene()
        other.commit(("t", 0, 9))
        fill(node.logs[0], other)
        node.lead(0, 1, epoch=2)
        assert shard_of(node) is E.coordinator_load_in_progress
        assert await before.execute(ListGroups()) is E.not_coordinator
        await asyncio.sleep(1)
        assert await node.fetch() == 9

    on_node(scenario, partitions=1)


def test_a_topic_made_anew_under_its_name_has_no_groups() -> None:
    async def scenario(node: GroupNode) -> None:
        await created(node)
        await node.commit(5)
        topic = node.image.topics[GROUP_OFFSETS_TOPIC]
        node.logs[0] = FakeLog()
        again = TopicState(topic.name, UUID(int=999), topic.partitions)
        node.image.topics[topic.name] = again
        delta = ImageDelta(node.image)
        delta.partitions_changed.append((again, again.partitions[0]))
        node.service.on_image(delta)  # as from a snapshot: nobody says that the old one was deleted
        await asyncio.sleep(1)
        assert await node.fetch() == -1

    on_node(scenario, partitions=1)


def test_joining_members_hear_that_the_coordinator_moved_and_leave_nothing_behind() -> None:
    """Who waits for a rebalance is memory of the coordinator: the next one has never heard of them."""

    async def scenario(node: GroupNode) -> None:
        await created(node)
        await node.commit(5)
        first = await node.join()
        joining = asyncio.get_running_loop().create_task(node.join(first.member_id))
        other = await node.join()
        await asyncio.sleep(0)
        node.logs[0].resign()
        node.lead(0, 2, epoch=1)
        assert (await joining).error_code is E.not_coordinator
        assert (await node.join(other.member_id)).error_code is E.not_coordinator
        node.logs[0].is_leader = True
        node.lead(0, 1, epoch=2)
        await asyncio.sleep(1)
        assert (await node.join(other.member_id)).error_code is E.unknown_member_id
        assert (await node.ask("list_groups", 5)).groups[0].group_state == "Empty"

    on_node(scenario, partitions=1)


def test_a_new_leader_sees_what_the_old_one_committed_and_nothing_else() -> None:
    async def scenario(node: GroupNode) -> None:
        await created(node)
        await node.commit(5)
        log: FakeLog = node.logs[0]
        log.commits_at_once = False
        waits = asyncio.get_running_loop().create_task(node.commit(6))
        await asyncio.sleep(0.01)
        log.resign()
        node.lead(0, 2)
        assert (await waits).topics[0].partitions[0].error_code is E.not_coordinator
        log.is_leader = log.commits_at_once = True
        node.lead(0, 1, epoch=3)
        await asyncio.sleep(1)
        assert await node.fetch() == 5
        shard = shard_of(node)
        assert isinstance(shard, Shard)
        assert len(await shard.execute(ListGroups())) == 1

    on_node(scenario, partitions=1)
