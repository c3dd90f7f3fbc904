"""Batches in flight while their partition comes to this node: a later one must not overtake one that was sent away."""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from fencepost.chaos.sim.cluster_nodes import CLIENT_PORT, node_name
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.metadata.topic_names import TOPIC_NAME_LENGTH_MAX
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient
from fencepost.cluster.wire.records import Record, build_batch
from fencepost.node.server.overtaking import REFUSED_MAX, RefusedBatches, Room
from fencepost.replication.beginnings import TRIES_BEHIND
from fencepost.replication.log.producer_snapshot import SEQUENCE_MAX
from sim_cluster import CLIENT, Cluster
from sim_node import NODE, PORT, SimNode

E = ErrorCode
BY_NAME = 12  # the last version of Produce that names topics
PLACE = ("t", 0)


def batch(
    sequence: int, *, producer_id: int = 7, producer_epoch: int = 0, transactional: bool = False
) -> bytes:
    rows = [Record(place, 1_000, None, b"%d" % (sequence + place), ()) for place in range(4)]
    return build_batch(
        rows,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def to_topic(data: bytes) -> dict[str, Any]:
    parts = [{"index": 0, "records": data}]
    return {
        "acks": -1, "timeout": 5_000, "transactional_id": None,
        "topic_data": [{"name": "t", "partition_data": parts}],
    }  # fmt: skip


def code_of(reply: Any) -> ErrorCode:
    return ErrorCode(reply.responses[0].partition_responses[0].error_code)


def test_a_batch_does_not_overtake_one_that_came_before_its_topic() -> None:
    """A partition takes any sequence of a producer that is new to it; the first batch would be out of order for ever."""
    node = SimNode(seed="overtaking")
    node.start()

    def send(sequence: int, **who: int) -> ErrorCode:
        data = batch(sequence, **who)
        return code_of(node.ask(ApiKey.produce, BY_NAME, **to_topic(data)))

    try:
        assert send(4) is E.unknown_topic_or_partition
        assert send(0) is E.unknown_topic_or_partition
        node.create_topic("t")
        assert send(4) is E.not_leader_or_follower
        assert send(4, producer_id=8) is E.none  # of another, nothing was sent away
        assert send(0) is E.none
        assert send(4) is E.none
        assert send(4) is E.none  # a retry
    finally:
        node.close()


def test_one_that_came_by_another_connection_is_waited_for_no_longer() -> None:
    """What follows on a full disk was counted from it: the third round was out of order, and its producer ended."""
    node = SimNode(seed="overtaking")
    node.start()

    def send(sequence: int, wire: WireClient) -> ErrorCode:
        async def produce() -> ErrorCode:
            fields = to_topic(batch(sequence))
            return code_of(await wire.request(ApiKey.produce, BY_NAME, **fields))

        return node.run(produce)

    other = WireClient(node.env, NODE, PORT, timeout_s=60.0)
    try:
        assert send(0, node.wire) is E.unknown_topic_or_partition
        node.create_topic("t")
        assert send(0, other) is E.none
        assert send(4, node.wire) is E.none
        for _ in range(3):
            disk = node.world.disk(NODE).faults
            disk.fail("append", path="*/t-0/*.log", number=errno.ENOSPC)
            for sequence in range(8, 24, 4):
                assert send(sequence, node.wire) is not E.out_of_order_sequence_number
    finally:
        node.run(other.close)
        node.close()


def test_a_batch_does_not_overtake_one_that_its_coordinator_sent_back_when_the_partition_had_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The partition that comes in its place knows nothing of it, and takes any sequence of a producer that is new to it."""
    node = SimNode(seed="overtaking")
    node.start()
    node.create_topic("t")
    node.ask(ApiKey.find_coordinator, 3, key="x", key_type=1)
    node.sleep(1.0)
    asked = {"transactional_id": "x", "transaction_timeout": 60_000}
    mine = node.ask(ApiKey.init_producer_id, 5, **asked)
    assert mine.error_code is E.none
    other = WireClient(node.env, NODE, PORT, timeout_s=60.0)

    async def send(sequence: int) -> ErrorCode:
        who = {"producer_id": mine.producer_id, "producer_epoch": mine.producer_epoch}
        fields = to_topic(batch(sequence, **who, transactional=True))
        fields["transactional_id"] = "x"
        return code_of(await node.wire.request(ApiKey.produce, BY_NAME, **fields))

    async def send_while_the_topic_goes() -> ErrorCode:
        gone = asyncio.Event()

        async def refused(_id: str, writes: Sequence[object], *, add: bool) -> list[ErrorCode]:
            await gone.wait()
            return [E.not_enough_replicas for _ in writes]

        with monkeypatch.context() as patch:
            patch.setattr(node.broker.verifier, "verify", refused)
            sending = asyncio.ensure_future(send(0))
            await asyncio.sleep(0.1)
            topics = [{"name": "t", "topic_id": None}]
            await other.request(ApiKey.delete_topics, topics=topics, timeout=5_000)
            gone.set()
            return await sending

    try:
        assert node.run(send_while_the_topic_goes) is E.not_enough_replicas
        node.create_topic("t")
        assert node.run(lambda: send(4)) is E.not_leader_or_follower
        assert node.run(lambda: send(0)) is E.none
        assert node.run(lambda: send(4)) is E.none
    finally:
        node.run(other.close)
        node.close()


@pytest.mark.slow
@pytest.mark.parametrize("is_known", [False, True])
def test_a_batch_does_not_overtake_one_that_came_before_the_lead(is_known: bool) -> None:
    """Nor is it called out of order: on that librdkafka begins a new epoch, and sends again what is written already."""
    cluster = Cluster(seed="overtaking the lead")

    async def scenario() -> None:
        await cluster.create("t")
        await cluster.until(lambda: len(cluster.partition().isr) == 3)
        leader = cluster.leaders()[0]
        follower = next(each for each in cluster.nodes.ids if each != leader)
        client = cluster.world.node(CLIENT)

        async def follower_leads() -> None:
            cluster.kill(leader)
            await cluster.until(lambda: cluster.leaders() not in ([], [leader]))
            if cluster.leaders()[0] != follower:
                pytest.fail("another node leads: choose another seed")

        async def work() -> None:
            before = WireClient(client, node_name(leader), CLIENT_PORT, timeout_s=60.0)
            if is_known:
                fields = to_topic(batch(0))
                assert code_of(await before.request(ApiKey.produce, BY_NAME, **fields)) is E.none
            await before.close()
            wire = WireClient(client, node_name(follower), CLIENT_PORT, timeout_s=60.0)

            async def send(sequence: int) -> ErrorCode:
                fields = to_topic(batch(sequence))
                return code_of(await wire.request(ApiKey.produce, BY_NAME, **fields))

            first = 4 if is_known else 0
            assert await send(first) is E.not_leader_or_follower
            await follower_leads()
            assert await send(first + 4) is E.not_leader_or_follower
            assert await send(first) is E.none
            assert await send(first + 4) is E.none
            await wire.close()

        await cluster.world.on(client, work())

    cluster.play(scenario)


def test_a_batch_that_is_garbage_or_has_no_sequence_is_not_remembered() -> None:
    refused = RefusedBatches(Room())
    refused.note(PLACE, memoryview(b"garbage"))
    refused.note(PLACE, memoryview(build_batch([Record(0, 1_000, None, b"x", ())])))
    assert not refused


def test_a_new_epoch_begins_anew() -> None:
    refused = RefusedBatches(Room())
    refused.note(PLACE, memoryview(batch(0)))
    assert refused.before(PLACE, memoryview(batch(4, producer_epoch=1))) is None
    waited_for = refused.before(PLACE, memoryview(batch(4)))
    assert waited_for is not None
    assert waited_for.base_sequence == 0


def test_of_a_name_that_no_topic_can_have_nothing_is_remembered() -> None:
    """A client may send any: ten thousand of 32 KB were 331 MB."""
    refused = RefusedBatches(Room())
    refused.note(("x" * (TOPIC_NAME_LENGTH_MAX + 1), 0), memoryview(batch(0)))
    assert not refused
    refused.note(("x" * TOPIC_NAME_LENGTH_MAX, 0), memoryview(batch(0)))
    assert refused


def test_the_last_sequence_number_is_not_behind_the_first() -> None:
    refused = RefusedBatches(Room())
    for sequence in (SEQUENCE_MAX, 0):
        refused.note(PLACE, memoryview(batch(sequence)))
    assert refused.before(PLACE, memoryview(batch(0))) is not None
    assert refused.before(PLACE, memoryview(batch(SEQUENCE_MAX))) is None


def on_a_new_leader(
    work: Callable[[Callable[[int, int], Awaitable[Any]], int, int], Awaitable[None]],
) -> None:
    """`work(send, leader, other)`: `send(node, sequence)` asks that node, by one connection each, for its part of the answer."""
    cluster = Cluster(seed="overtaking the lead")

    async def scenario() -> None:
        await cluster.create("t")
        await cluster.nodes.until_whole()
        image = cluster.nodes.image
        assert image is not None
        topic_id = image.topics["t"].topic_id
        first = cluster.leaders()[0]
        cluster.kill(first)
        await cluster.until(lambda: cluster.leaders() not in ([], [first]))
        leader = cluster.leaders()[0]
        other = next(each for each in cluster.nodes.ids if each not in (leader, first))
        client = cluster.world.node(CLIENT)
        wires = {
            each: WireClient(client, node_name(each), CLIENT_PORT, timeout_s=60.0)
            for each in (leader, other)
        }

        async def send(node_id: int, sequence: int) -> Any:
            fields = to_topic(batch(sequence))
            fields["topic_data"] = [{**fields["topic_data"][0], "topic_id": topic_id}]
            del fields["topic_data"][0]["name"]
            reply = await wires[node_id].request(ApiKey.produce, **fields)
            return reply.responses[0].partition_responses[0]

        await cluster.world.on(client, work(send, leader, other))
        for wire in wires.values():
            await cluster.world.on(client, wire.close())

    cluster.play(scenario)


def test_who_is_told_to_try_again_here_is_named_no_other_leader() -> None:
    """franz-go takes a leader that is named for one that has moved: it asked again at once, without a pause, five times."""

    async def work(send: Any, leader: int, other: int) -> None:
        for node_id, named in ((other, leader), (leader, -1)):
            part = await send(node_id, 40)
            assert part.error_code is E.not_leader_or_follower
            assert part.current_leader.leader_id == named

    on_a_new_leader(work)


def test_who_gives_the_first_batch_up_writes_what_comes_behind_it_by_the_same_connection() -> None:
    """The connection remembered what the partition itself had sent back, and had it waited for again each time, for ever."""

    async def work(send: Any, leader: int, _other: int) -> None:
        assert (await send(leader, 40)).error_code is E.not_leader_or_follower
        told = [(await send(leader, 44)).error_code for _ in range(2 + TRIES_BEHIND)]
        assert told[-1] is E.none

    on_a_new_leader(work)


def test_what_a_connection_has_remembered_is_bounded() -> None:
    refused = RefusedBatches(Room())
    for producer_id in range(REFUSED_MAX + 1):
        refused.note(PLACE, memoryview(batch(0, producer_id=producer_id)))
    assert refused.before(PLACE, memoryview(batch(4, producer_id=0))) is None
    assert refused.before(PLACE, memoryview(batch(4, producer_id=1))) is not None


def test_what_all_connections_have_remembered_is_bounded_and_given_back() -> None:
    """A stranger's 10,000 batches of a topic that is not there are not looked at: by each of a thousand connections they would
    fill the memory of the node."""
    room = Room()
    room.left = 3
    mine, yours = RefusedBatches(room), RefusedBatches(room)
    for producer_id in (1, 2):
        mine.note(PLACE, memoryview(batch(0, producer_id=producer_id)))
    for producer_id in (3, 4):
        yours.note(PLACE, memoryview(batch(0, producer_id=producer_id)))
    later = {each: memoryview(batch(1, producer_id=each)) for each in (1, 2, 3, 4)}
    assert [bool(mine.before(PLACE, later[each])) for each in (1, 2)] == [True, True]
    assert [bool(yours.before(PLACE, later[each])) for each in (3, 4)] == [False, True]
    assert room.left == 0
    mine.forget(PLACE, later[1])
    assert room.left == 1
    mine.close()
    mine.close()
    mine.note(PLACE, later[1])
    assert room.left == 2
    assert not mine
