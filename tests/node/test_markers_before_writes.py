"""A marker of the last transaction that is written between the look at the next one's batch and its write.

1. a transaction of an old client ends, and the next leader of its partition writes the marker   2. its leader of before,
which stood still and does not know that it is deposed, reads the next transaction's batch from a socket's buffer: of a
producer with this epoch a transaction is open there   3. the marker that was sent to it is read from another buffer
4. the batch is to be written.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.wire.api import ApiKey
from fencepost.txn.transactions.marker_sender import Marker
from sim_node import SimNode
from txn_answers import SETTINGS, prepare
from txn_talk import TOPIC, Producer, Talk, records

E = ErrorCode
FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
POSITIONS = TopicPartition("__consumer_offsets", 0)
OLD = 11  # of Produce: the client has one epoch for all transactions


@pytest.fixture
def node() -> Iterator[SimNode]:
    node = SimNode(seed="before writes", **SETTINGS)
    node.start()
    prepare(node)
    yield node
    node.close()


@pytest.fixture
def held(node: SimNode, monkeypatch: pytest.MonkeyPatch) -> list[Marker]:
    """The first markers, which are as good as written for their coordinator: another leader has done it."""
    markers: list[Marker] = []
    writer = node.broker.markers
    write_here = writer.write_here

    async def hold(sent: Sequence[Marker], **more: Any) -> Any:
        if markers:
            return await write_here(sent, **more)
        markers.extend(sent)
        return [dict.fromkeys(marker.partitions, E.none) for marker in sent]

    monkeypatch.setattr(writer, "write_here", hold)
    return markers


def test_has_the_producer_come_again(
    node: SimNode, held: list[Marker], monkeypatch: pytest.MonkeyPatch
) -> None:
    talk, broker = Talk(node), node.broker
    monkeypatch.setattr(broker.transactions._words._door, "tell", lambda *_: None)  # none arrives
    who = talk.begun("begin", "open yet", 4)
    talk.add("add", who)
    assert _codes(talk.produce("produce", who, OLD)) == [E.none]
    talk.end("end", who)
    talk.settle("open yet")
    talk.add("add to the next", who, **{TOPIC: [0, 1]})
    verify = broker.verifier.verify

    async def marked(*arguments: Any, **named: Any) -> list[ErrorCode]:
        assert await broker.markers.write_here(held) == [{FIRST: E.none}]
        return await verify(*arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(broker.verifier, "verify", marked)
        # The second partition's coordinator must be asked.
        assert _both(talk, "produce to the next", who) == [E.not_enough_replicas, E.none]
    assert _codes(talk.produce("produce again", who, OLD)) == [E.none]
    assert talk.end("end the next", who).error_code is E.none
    talk.settle("open yet")
    for place in FIRST, SECOND:
        assert broker.replicas.partitions[place].producers.open_count() == 0


def test_has_positions_come_again(
    node: SimNode, held: list[Marker], monkeypatch: pytest.MonkeyPatch
) -> None:
    talk, broker = Talk(node), node.broker
    who = talk.begun("begin", "positions", 4)
    talk.add_offsets("add offsets", who)
    talk.commit_offset("store", who)
    talk.end("end", who)
    talk.settle("positions")
    talk.add_offsets("add offsets to the next", who)
    verify = broker.verifier.verify_producer

    async def marked(*arguments: Any, **named: Any) -> ErrorCode:
        said = await verify(*arguments, **named)
        assert await broker.markers.write_here(held) == [{POSITIONS: E.none}]
        return said

    with monkeypatch.context() as patched:
        patched.setattr(broker.verifier, "verify_producer", marked)
        assert _stored(talk.commit_offset("store in the next", who)) is E.coordinator_not_available
    assert _stored(talk.commit_offset("store again", who)) is E.none
    assert talk.end("end the next", who).error_code is E.none
    talk.settle("positions")
    assert broker.replicas.partitions[POSITIONS].producers.open_count() == 0


def _both(talk: Talk, label: str, who: Producer) -> list[ErrorCode]:
    first, second = records(b"x", who), records(b"x", who.but())
    parts = [{"index": 0, "records": first}, {"index": 1, "records": second}]
    topic_data = [{"name": TOPIC, "partition_data": parts}]
    wanted = {"transactional_id": who.transactional_id, "acks": -1, "timeout": 5_000}
    return _codes(talk.ask(label, ApiKey.produce, OLD, **wanted, topic_data=topic_data))


def _codes(reply: Any) -> list[ErrorCode]:
    return [part.error_code for part in reply.responses[0].partition_responses]


def _stored(reply: Any) -> ErrorCode:
    code: ErrorCode = reply.topics[0].partitions[0].error_code
    return code
