"""Positions of one transaction that arrive in the next one, by a connection that was given up. Up to EndTxn 4 both have one epoch."""

import asyncio
from functools import partial
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode, Trouble
from fencepost.cluster.wire.api import ApiKey
from fencepost.cluster.wire.client import WireClient
from fencepost.node.heard_over import REMEMBERED_MAX, HeardOver
from fencepost.node.transaction_frames import Question, Word
from sim_node import NODE, PORT, SimNode
from txn_talk import TOPIC, Producer, Talk

E = ErrorCode
OLD = 3  # of TxnOffsetCommit: of clients that have one epoch for all transactions


def row(who: Producer, offset: int) -> dict[str, Any]:
    rows = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]
    return {**who.fields, "group_id": "g", "topics": [{"name": TOPIC, "partitions": rows}]}


def store(talk: Talk, wire: WireClient, who: Producer, offset: int) -> ErrorCode:
    async def ask() -> Any:
        return await wire.request(ApiKey.txn_offset_commit, OLD, **row(who, offset))

    assert isinstance(talk.node, SimNode)
    return ErrorCode(talk.node.run(ask).topics[0].partitions[0].error_code)


def fetched(talk: Talk) -> int:
    groups = [{"group_id": "g", "topics": [{"name": TOPIC, "partition_indexes": [0]}]}]
    reply = talk.node.ask(ApiKey.offset_fetch, 8, groups=groups, require_stable=True)
    return int(reply.groups[0].topics[0].partitions[0].committed_offset)


@pytest.fixture
def talk():
    node = SimNode(seed="late positions")
    node.start()
    node.create_topic(TOPIC)
    node.ask(ApiKey.find_coordinator, 3, key="g", key_type=0)
    node.ask(ApiKey.find_coordinator, 3, key="pay", key_type=1)
    node.sleep(1.0)
    yield Talk(node)
    node.close()


def test_positions_of_the_last_transaction_do_not_count_for_the_next_one(talk: Talk) -> None:
    """They were sent again by a newer connection, and committed; the group stood at 100 when 200 was committed."""
    env = talk.node.env
    given_up, now = (WireClient(env, NODE, PORT, client_id="p", timeout_s=60.0) for _ in "ab")
    who = talk.begun("begin", "pay")
    talk.node.run(lambda: given_up.request(ApiKey.api_versions))  # the older of the two
    talk.add_offsets("add 1", who)
    assert store(talk, now, who, 100) is E.none
    talk.end("end 1", who, 4)
    talk.settle("pay")
    talk.add_offsets("add 2", who)
    assert store(talk, now, who, 200) is E.none
    assert store(talk, given_up, who, 100) is E.not_coordinator
    assert talk.end("end 2", who, 4).error_code is E.none
    talk.settle("pay")
    assert fetched(talk) == 200
    for wire in (given_up, now):
        talk.node.run(wire.close)


def test_nor_do_those_that_waited_for_a_word_meanwhile(talk: Talk, monkeypatch) -> None:
    """As between nodes: the word sent ahead was lost, the transaction's coordinator stood still, and its successor was asked."""
    assert isinstance(talk.node, SimNode)
    env, broker = talk.node.env, talk.node.broker
    assert broker is not None
    verifier = broker.verifier
    ask, is_first = verifier._ask, [True]

    async def ask_in_vain_first(question: Question) -> Word:
        if not is_first:
            return await ask(question)
        is_first.clear()
        await env.clock.sleep(2.0)
        return Word([E.network_exception] * len(question.partitions))

    monkeypatch.setattr(verifier, "_ask", ask_in_vain_first)
    monkeypatch.setattr(broker.transactions._words._door, "tell", lambda *_: None)
    given_up, now = (WireClient(env, NODE, PORT, client_id="p", timeout_s=60.0) for _ in "ab")
    who = talk.begun("begin", "pay")
    talk.node.run(lambda: given_up.request(ApiKey.api_versions))  # the older of the two
    talk.add_offsets("add 1", who)

    async def send_and_lose() -> None:
        sent = asyncio.ensure_future(
            given_up.request(ApiKey.txn_offset_commit, OLD, **row(who, 100))
        )
        await asyncio.sleep(0.1)
        await given_up.close()
        with pytest.raises(Trouble):
            await sent

    talk.node.run(send_and_lose)
    assert not is_first
    assert store(talk, now, who, 100) is E.none
    talk.end("end 1", who, 4)
    talk.settle("pay")
    talk.add_offsets("add 2", who)
    assert store(talk, now, who, 200) is E.none
    talk.node.sleep(3.0)  # meanwhile the first one's question is asked again
    assert talk.end("end 2", who, 4).error_code is E.none
    talk.settle("pay")
    assert fetched(talk) == 200
    talk.node.run(now.close)


def test_who_comes_again_by_the_older_one_has_two_connections() -> None:
    heard = HeardOver()
    came = [(1, False), (2, False), (1, True), (1, False), (2, False), (1, True)]
    assert [heard.is_late((7, 0), connection) for connection, _ in came] == [
        late for _, late in came
    ]
    assert not heard.is_late((7, 1), 0)
    assert not heard.is_late((8, 0), 0)


def test_so_many_producers_are_remembered() -> None:
    heard = HeardOver()
    for producer_id in range(REMEMBERED_MAX + 1):
        heard.is_late(producer_id, 5)
    assert heard.is_late(1, 4)
    assert not heard.is_late(0, 4)


def test_positions_by_two_connections_that_were_given_up_do_not_count_either(talk: Talk) -> None:
    env = talk.node.env
    one, two, now = (WireClient(env, NODE, PORT, client_id="p", timeout_s=60.0) for _ in "abc")
    who = talk.begun("begin", "pay")
    for given_up in (one, two):
        talk.node.run(partial(given_up.request, ApiKey.api_versions))
    talk.add_offsets("add 1", who)
    assert store(talk, now, who, 100) is E.none
    talk.end("end 1", who, 4)
    talk.settle("pay")
    talk.add_offsets("add 2", who)
    assert store(talk, now, who, 200) is E.none
    late = [store(talk, given_up, who, 100) for given_up in (one, two)]
    assert late == [E.not_coordinator, E.not_coordinator]
    assert talk.end("end 2", who, 4).error_code is E.none
    talk.settle("pay")
    assert fetched(talk) == 200
    for wire in (one, two, now):
        talk.node.run(wire.close)
