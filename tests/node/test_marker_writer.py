"""Markers: who may write them, what they do, when they are answered for."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import BrokerId, TopicPartition
from fencepost.cluster.wire.api import ApiKey
from fencepost.node.marker_writer import MarkerWriter
from fencepost.txn.transactions.marker_sender import Marker
from sim_cluster import Cluster
from sim_node import SimNode
from txn_answers import SETTINGS, prepare
from txn_talk import TOPIC, Producer, Talk

E = ErrorCode
FIRST = TopicPartition(TOPIC, 0)


@pytest.fixture(scope="module")
def node() -> Iterator[SimNode]:
    node = SimNode(seed="markers", **SETTINGS)
    node.start()
    prepare(node)
    yield node
    node.close()


@pytest.fixture
def talk(node: SimNode) -> Talk:
    return Talk(node)


def marker_of(who: Producer, *places: TopicPartition, **more: Any) -> Marker:
    fields = {"coordinator_epoch": 0, "commit": False, "transaction_version": 0, **more}
    return Marker(
        **{"producer_id": who.producer_id, "producer_epoch": who.producer_epoch, **fields},
        partitions=places,
    )


def write(node: SimNode, *markers: Marker) -> list[dict[TopicPartition, ErrorCode]]:
    return node.run(lambda: node.broker.markers.write_here(markers))


def opened(talk: Talk, name: str, version: int = 4) -> Producer:
    who = talk.begun(f"begin {name}", name, version)
    if version == 4:
        talk.add(f"add {name}", who)
    talk.produce(f"produce {name}", who, 11 if version == 4 else 12)
    return who


def partition(node: SimNode) -> Any:
    return node.broker.replicas.partitions[FIRST]


def test_a_marker_ends_what_its_producer_has_open_and_may_come_twice(
    node: SimNode, talk: Talk
) -> None:
    who = opened(talk, "twice")
    assert partition(node).last_stable_offset < partition(node).high_watermark
    for _ in range(2):
        assert write(node, marker_of(who, FIRST, coordinator_epoch=3)) == [{FIRST: E.none}]
        assert partition(node).last_stable_offset == partition(node).high_watermark


def test_many_markers_of_one_request_leave_turns_to_others(
    node: SimNode, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """90,000 of them are 1 MB, and took 8 s in which nobody else was heard."""
    turns: list[int] = []
    begin = MarkerWriter._begin

    def counted(self: MarkerWriter, *args: Any) -> Any:
        if not turns or turns[-1] == 0:
            asyncio.get_running_loop().call_soon(turns.append, 0)
        if not turns:
            turns.append(0)
        turns[-1] += 1
        return begin(self, *args)

    monkeypatch.setattr(MarkerWriter, "_begin", counted)
    unknown = Producer("unknown", 1 << 40, 0)
    markers = [marker_of(unknown, FIRST, coordinator_epoch=each) for each in range(250)]
    assert len(write(node, *markers)) == 250
    assert turns == [100, 100, 50, 0]


def test_a_marker_that_ends_nothing_is_written_once_the_quorum_has_said_that_the_topic_is_of_now(
    node: SimNode, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic may have been made anew elsewhere, and what is to be ended is open there. What is open here waits for nobody."""
    writer, idle = node.broker.markers, Producer("idle", 1 << 41, 0)
    open_here = opened(talk, "open here")
    epochs = (partition(node).leader_epoch,)
    is_of_now = False

    async def confirm(within_s: float) -> bool:
        return is_of_now

    monkeypatch.setattr(writer, "_confirm_image", confirm)
    written = writer.written
    both = [marker_of(each, FIRST, leader_epochs=epochs) for each in (idle, open_here)]
    assert write(node, *both) == [{FIRST: E.not_leader_or_follower}, {FIRST: E.none}]
    assert writer.written == written + 1
    is_of_now = True
    assert write(node, *both) == [{FIRST: E.none}] * 2
    is_of_now = False
    by_a_person = marker_of(idle, FIRST)
    assert write(node, by_a_person) == [{FIRST: E.none}]


def test_a_coordinator_that_was_replaced_ends_nothing(node: SimNode, talk: Talk) -> None:
    who = opened(talk, "replaced")
    write(node, marker_of(who, FIRST, coordinator_epoch=5))
    talk.produce("produce again", who)
    fenced = write(node, marker_of(who, FIRST, coordinator_epoch=4))
    assert fenced == [{FIRST: E.transaction_coordinator_fenced}]
    assert partition(node).last_stable_offset < partition(node).high_watermark
    write(node, marker_of(who, FIRST, coordinator_epoch=5))


def test_a_late_marker_of_the_last_transaction_does_not_end_the_next(
    node: SimNode, talk: Talk
) -> None:
    """From transaction.version 2 on a marker's epoch is above that of what it ends (KIP-890)."""
    who = opened(talk, "late", 5)
    late = who.but(producer_epoch=who.producer_epoch + 1)
    who.became(talk.end("end", who, 5))
    talk.settle("late")
    talk.produce("produce", who, 12)
    again = write(node, marker_of(late, FIRST, transaction_version=2))
    assert again == [{FIRST: E.invalid_producer_epoch}]
    assert partition(node).last_stable_offset < partition(node).high_watermark
    talk.end("end the next", who, 5)
    talk.settle("late")
    assert partition(node).last_stable_offset == partition(node).high_watermark


def test_a_marker_that_was_sent_twice_does_not_end_the_next_transaction_of_an_old_client(
    node: SimNode, talk: Talk
) -> None:
    """All its transactions have one epoch; but the partition was told when the one began that is open there."""
    who = opened(talk, "sent twice")
    started = node.broker.transactions.started_ms("sent twice")
    late = marker_of(who, FIRST, commit=True, started_ms=started)
    talk.end("end", who)
    talk.settle("sent twice")
    node.sleep(0.1)
    talk.add("add to the next", who)
    talk.produce("produce to the next", who)
    assert write(node, late) == [{FIRST: E.invalid_producer_epoch}]
    assert partition(node).last_stable_offset < partition(node).high_watermark
    talk.end("end the next", who)
    talk.settle("sent twice")
    assert partition(node).last_stable_offset == partition(node).high_watermark


def test_a_marker_that_was_meant_for_an_earlier_term_of_the_leader_ends_nothing(
    node: SimNode, talk: Talk
) -> None:
    """It waited while others led, and ended what it is about; which this node would not remember."""
    who = opened(talk, "another term")
    epoch = partition(node).leader_epoch
    for other in (epoch - 1, epoch + 1):
        late = marker_of(who, FIRST, leader_epochs=(other,))
        assert write(node, late) == [{FIRST: E.not_leader_or_follower}]
        assert partition(node).last_stable_offset < partition(node).high_watermark
    assert write(node, marker_of(who, FIRST, leader_epochs=(epoch,))) == [{FIRST: E.none}]
    assert partition(node).last_stable_offset == partition(node).high_watermark


def test_markers_for_many_are_answered_one_by_one(node: SimNode, talk: Talk) -> None:
    who = opened(talk, "many")
    nowhere, state = TopicPartition("nowhere", 0), TopicPartition("__transaction_state", 0)
    groups = TopicPartition("__consumer_offsets", 0)
    found = write(
        node,
        marker_of(who, FIRST, nowhere, state, groups),
        marker_of(who, FIRST, producer_epoch=-1),
    )
    assert found == [
        {
            FIRST: E.none,
            nowhere: E.unknown_topic_or_partition,
            # Kafka's coordinators may be asked to add it; ours wrote nothing there, and must not.
            state: E.unsupported_for_message_format,
            groups: E.none,
        },
        {FIRST: E.unknown_server_error},
    ]


def test_a_person_ends_a_transaction_that_hangs(node: SimNode, talk: Talk) -> None:
    """What `kafka-transactions abort` sends."""
    who = opened(talk, "hangs")
    marker = {
        "producer_id": who.producer_id,
        "producer_epoch": who.producer_epoch,
        "transaction_result": False,
        "coordinator_epoch": 1,
        "topics": [{"name": TOPIC, "partition_indexes": [0, 0]}],
    }
    reply = node.ask(ApiKey.write_txn_markers, 1, markers=[marker, marker])
    (row,) = reply.markers
    assert [each.error_code for each in row.topics[0].partitions] == [E.none]
    assert partition(node).last_stable_offset == partition(node).high_watermark


@pytest.mark.slow
def test_a_marker_is_answered_for_when_it_is_committed() -> None:
    """The followers are cut off: the marker is in the leader's log, and nobody is told that it is."""
    cluster = Cluster(3, seed="a marker that is not committed")

    async def scenario() -> None:
        await cluster.create(TOPIC)
        leader = cluster.partition(0).leader
        others = [each for each in cluster.nodes.ids if each != leader]
        broker = cluster.nodes.broker(leader)
        await cluster.until(lambda: FIRST in broker.replicas.partitions)
        who = Producer("x", 4711, 0)
        write = broker.markers.write_here([marker_of(who, FIRST)])
        assert await write == [{FIRST: E.none}]
        end = broker.replicas.partitions[FIRST].log_end_offset
        for other in others:
            cluster.world.net.cut(_name(leader), _name(other))
        late = await broker.markers.write_here([marker_of(who, FIRST)], wait_s=0.5)
        assert late == [{FIRST: E.request_timed_out}]
        # It is sent again, and waited for; written it is once.
        writing = broker.env.tasks.spawn(
            broker.markers.write_here([marker_of(who, FIRST)]), name="write"
        )
        await broker.env.clock.sleep(1.0)
        assert broker.replicas.partitions[FIRST].log_end_offset == end + 1
        assert not writing.done()
        for other in others:
            cluster.world.net.heal(_name(leader), _name(other))
        (answer,) = await writing
        # Another may lead by now, which has the marker or does not: then we can't say.
        assert answer[FIRST] in (E.none, E.not_leader_or_follower)

    cluster.play(scenario)


@pytest.mark.slow
def test_a_coordinator_writes_to_partitions_of_other_nodes() -> None:
    cluster = Cluster(3, seed="markers between nodes")

    async def scenario() -> None:
        await cluster.create(TOPIC)
        leader = cluster.partition(0).leader
        for node_id in cluster.nodes.ids:
            doors = cluster.nodes.broker(node_id).transactions.sender._door
            who = Producer("x", 4711, node_id)
            nowhere = TopicPartition("nowhere", 0)
            found = await doors.write(BrokerId(leader), [marker_of(who, FIRST, nowhere)])
            assert list(found) == [{FIRST: E.none, nowhere: E.unknown_topic_or_partition}]

    cluster.play(scenario)


def _name(node_id: int) -> str:
    from fencepost.chaos.sim.cluster_nodes import node_name

    return node_name(node_id)


def test_a_yes_of_a_coordinator_that_has_gone_lets_no_late_marker_end_the_next_transaction(
    node: SimNode, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. a transaction of an old client is committed, its marker was sent twice   2. the leader asks about the next one,
    and its coordinator goes as it answers: yes, but not of which transaction   3. the marker is read from a socket."""
    service, words = node.broker.transactions, node.broker.transactions._words._door
    who = opened(talk, "gone")
    late = marker_of(who, FIRST, commit=True, started_ms=service.started_ms("gone"))
    talk.end("end", who)
    talk.settle("gone")
    node.sleep(0.1)
    monkeypatch.setattr(words, "tell", lambda *_: None)  # it may be lost
    known, said = service.started_ms, [-1]  # what it says of a shard that is not here any more
    monkeypatch.setattr(service, "started_ms", lambda name: said.pop() if said else known(name))
    talk.add("add to the next", who)
    talk.produce("produce to the next", who)
    assert partition(node).last_stable_offset < partition(node).high_watermark
    assert write(node, late) == [{FIRST: E.invalid_producer_epoch}]
    assert partition(node).last_stable_offset < partition(node).high_watermark
