"""Coordinators' words that come before anybody has asked: when they count, and when they don't."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import msgpack
import pytest
from fencepost.cluster.base.errors import ErrorCode, FrameRefused
from fencepost.cluster.base.ids import TopicPartition
from fencepost.node.transaction_frames import pack_word, read_word
from fencepost.node.transaction_words import WordsAhead
from fencepost.txn.transactions.word_sender import Place, Word
from sim_cluster import Cluster
from sim_node import SimNode
from txn_answers import SETTINGS, prepare
from txn_talk import TOPIC, Producer, Talk

E = ErrorCode
FIRST = TopicPartition(TOPIC, 0)
OLD = 11  # version of Produce: the client adds partitions itself


@pytest.fixture(scope="module")
def node() -> Iterator[SimNode]:
    node = SimNode(seed="words", **SETTINGS)
    node.start()
    prepare(node)
    yield node
    node.close()


@pytest.fixture
def talk(node: SimNode) -> Talk:
    return Talk(node)


def words_of(node: SimNode) -> WordsAhead:
    words: Any = node.broker.transactions._words._door
    assert isinstance(words, WordsAhead)
    return words


def code_of(reply: Any) -> ErrorCode:
    code: ErrorCode = reply.responses[0].partition_responses[0].error_code
    return code


def word_on(node: SimNode, who: Producer, **more: Any) -> Word:
    partition = node.broker.replicas.partitions[FIRST]
    epoch = more.get("leader_epoch", partition.leader_epoch)
    return Word(
        producer_id=who.producer_id,
        producer_epoch=more.get("producer_epoch", who.producer_epoch),
        started_ms=more.get(
            "started_ms", node.broker.transactions.started_ms(who.transactional_id)
        ),
        places=(Place(more.get("topic_id", partition.topic_id), 0, epoch),),
    )


def asked(node: SimNode) -> int:
    return node.broker.verifier.asked


def test_a_leader_that_was_told_need_not_ask(node: SimNode, talk: Talk) -> None:
    who = talk.begun("begin", "told", 4)
    before = asked(node)
    for number in range(3):
        talk.add(f"add {number}", who)
        assert code_of(talk.produce(f"produce {number}", who, OLD)) is E.none
        assert talk.end(f"end {number}", who).error_code is E.none
        talk.settle("told")
    assert asked(node) == before


def test_a_word_that_comes_after_its_transaction_has_ended_counts_for_nothing(
    node: SimNode, talk: Talk
) -> None:
    """Nothing would ever end what is written on it."""
    who = talk.begun("begin", "late word", 4)
    talk.add("add", who)
    late = word_on(node, who)
    assert code_of(talk.produce("produce", who, OLD)) is E.none
    assert talk.end("end", who).error_code is E.none
    talk.settle("late word")
    stable = node.broker.replicas.partitions[FIRST].last_stable_offset
    words_of(node).take(late)
    assert code_of(talk.produce("produce late", who, OLD)) is E.transaction_abortable
    assert node.broker.replicas.partitions[FIRST].last_stable_offset == stable


def test_a_word_that_comes_after_an_end_without_a_write_counts_for_nothing(
    node: SimNode, talk: Talk
) -> None:
    who = talk.begun("begin", "nothing written", 4)
    talk.add("add", who)
    late = word_on(node, who)
    assert talk.end("end", who, commit=False).error_code is E.none
    talk.settle("nothing written")
    words_of(node).take(late)
    assert code_of(talk.produce("produce late", who, OLD)) is E.transaction_abortable


@pytest.mark.parametrize(
    "more", [{"leader_epoch": 99}, {"leader_epoch": -1}, {"topic_id": UUID(int=99)}]
)
def test_a_word_for_another_term_of_the_leader_or_another_topic_counts_for_nothing(
    node: SimNode, talk: Talk, more: dict[str, Any]
) -> None:
    who = talk.begun("begin", f"another term {more}", 4)
    before = words_of(node).taken
    words_of(node).take(word_on(node, who, started_ms=10**13, **more))
    assert words_of(node).taken == before
    assert code_of(talk.produce("produce", who, OLD)) is E.transaction_abortable


def test_a_word_on_an_epoch_that_was_fenced_counts_for_nothing(node: SimNode, talk: Talk) -> None:
    old = talk.begun("begin", "fenced", 4)
    talk.add("add", old)
    late = word_on(node, old)
    who = talk.begun("begin anew", "fenced", 4)
    talk.add("add anew", who)
    assert code_of(talk.produce("produce anew", who, OLD)) is E.none
    before = words_of(node).taken
    words_of(node).take(late)
    assert words_of(node).taken == before
    assert code_of(talk.produce("produce", old, OLD)) is E.invalid_producer_epoch
    assert talk.end("end", who).error_code is E.none
    talk.settle("fenced")


def test_who_was_told_still_keeps_the_order_of_batches(node: SimNode, talk: Talk) -> None:
    """The first that comes says which sequence is the lowest."""
    who = talk.begun("begin", "in order", 4)
    talk.add("add", who)
    assert code_of(talk.produce("produce", who, OLD)) is E.none
    ahead = who.but()
    ahead.sequence = 5
    assert code_of(talk.produce("produce ahead", ahead, OLD)) is E.out_of_order_sequence_number
    assert code_of(talk.produce("produce next", who, OLD)) is E.none
    assert talk.end("end", who).error_code is E.none
    talk.settle("in order")


def test_offsets_need_not_be_asked_about_either(node: SimNode, talk: Talk) -> None:
    who = talk.begun("begin", "offsets", 4)
    before = asked(node)
    assert talk.add_offsets("add offsets", who).error_code is E.none
    reply = talk.commit_offset("commit offset", who, 3)
    assert reply.topics[0].partitions[0].error_code is E.none
    assert asked(node) == before
    assert talk.end("end", who).error_code is E.none
    talk.settle("offsets")


def test_a_word_comes_out_as_it_went_in() -> None:
    word = Word(producer_id=7, producer_epoch=3, started_ms=99, places=(Place(UUID(int=5), 0, 4),))
    assert read_word(pack_word(word)) == word


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\x90",
        b"\x93\x01\x02\x03",
        b"\x91\x94\x01\x02\x03\x04",
        msgpack.packb([(1, 2, 3, [("t", 0, 4)])]),
        msgpack.packb([(1, 2, 3, [(b"short", 0, 4)])]),
    ],
)
def test_what_is_no_word_is_refused(damaged: bytes) -> None:
    with pytest.raises(FrameRefused):
        read_word(damaged)


@pytest.mark.slow
def test_a_word_reaches_leaders_on_other_nodes() -> None:
    cluster = Cluster(3, seed="words between nodes")

    async def scenario() -> None:
        await cluster.create(TOPIC)
        leader = cluster.partition(0).leader
        others = [each for each in cluster.nodes.ids if each != leader]
        partition = cluster.nodes.broker(leader).replicas.partitions[FIRST]
        word = Word(
            producer_id=4711,
            producer_epoch=0,
            started_ms=1,
            places=(Place(partition.topic_id, 0, partition.leader_epoch),),
        )
        words: Any = cluster.nodes.broker(others[0]).transactions._words._door
        words.tell(leader, word)
        heard = partition.producers.verifications
        await cluster.until(lambda: heard.is_confirmed(4711, 0))

    cluster.play(scenario)
