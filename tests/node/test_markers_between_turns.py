"""A marker for a group's positions is written a turn of the loop after it was looked at: what may begin meanwhile."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TopicPartition
from fencepost.txn.groups.commands import Commit, TxnOffsetCommit
from fencepost.txn.groups.records import NO_TOPIC_ID
from fencepost.txn.transactions.marker_sender import Marker
from sim_node import SimNode
from txn_answers import SETTINGS, prepare
from txn_talk import TOPIC, Producer, Talk

E = ErrorCode
POSITIONS = TopicPartition("__consumer_offsets", 0)


@pytest.fixture
def node() -> Iterator[SimNode]:
    node = SimNode(seed="between turns", **SETTINGS)
    node.start()
    prepare(node)
    yield node
    node.close()


def test_a_late_marker_of_the_last_transaction_commits_no_positions_of_the_next(
    node: SimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. a transaction of an old client is committed, its marker was sent twice   2. the client begins the next one
    3. the second marker is read: of the next nothing is known here   4. in the same turn of the loop the word on it comes,
    and positions are stored in it   5. the turn after the marker is written.
    """
    talk, broker = Talk(node), node.broker
    who = talk.begun("begin", "late", 4)
    talk.add_offsets("add offsets", who)
    talk.commit_offset("store", who)
    late = _marker_of(who, broker.transactions.started_ms("late"))
    talk.end("end", who)
    talk.settle("late")
    node.sleep(0.1)
    ahead: Any = broker.transactions._words._door
    words: list[Any] = []
    monkeypatch.setattr(ahead, "tell", lambda _, word: words.append(word))
    talk.add_offsets("add offsets to the next", who)

    async def store() -> Any:
        for word in words:
            ahead.take(word)
        said = await broker.verifier.verify_producer(
            POSITIONS, transactional_id="late", **_identity(who), add=False
        )
        assert said is E.none
        commit = Commit(TOPIC, NO_TOPIC_ID, 0, 99, -1, "")
        command = TxnOffsetCommit(group_id="g", **_identity(who), commits=(commit,))
        return await broker.groups._execute("g", command)

    async def both() -> Any:
        return await asyncio.gather(broker.markers.write_here([late]), store())

    (codes,), stored = node.run(both)
    assert stored == [E.none]
    assert codes == {POSITIONS: E.invalid_producer_epoch}
    assert broker.replicas.partitions[POSITIONS].producers.open_count() == 1
    talk.end("abort the next", who, commit=False)
    talk.settle("late")
    machine: Any = broker.groups._coordinator.machines()[0]
    assert machine.offsets.positions["g"][TopicPartition(TOPIC, 0)].offset == 7


def _identity(who: Producer) -> dict[str, int]:
    return {"producer_id": who.producer_id, "producer_epoch": who.producer_epoch}


def _marker_of(who: Producer, started_ms: int) -> Marker:
    return Marker(
        **_identity(who),
        coordinator_epoch=0,
        commit=True,
        partitions=(POSITIONS,),
        transaction_version=0,
        started_ms=started_ms,
    )
