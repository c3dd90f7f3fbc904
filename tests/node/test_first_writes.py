"""The first batch of a transaction in a partition: its coordinator is asked, and only its word lets it in (KIP-890)."""

import asyncio
from collections.abc import Awaitable, Iterator
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import TopicPartition
from fencepost.cluster.controller.commands import CreatePartitions, MorePartitions
from fencepost.cluster.wire.api import ApiKey
from fencepost.node.verdict_codes import produce_word
from fencepost.txn.transactions.marker_sender import Marker
from sim_node import SimNode
from txn_answers import SETTINGS, prepare
from txn_talk import TOPIC, Producer, Talk, records

E = ErrorCode
FIRST = TopicPartition(TOPIC, 0)
GROWN = MorePartitions(name="grows", count=2)
OLD, NEW = 11, 12  # versions of Produce: the client adds partitions itself, or the broker does


@pytest.fixture(scope="module")
def node() -> Iterator[SimNode]:
    node = SimNode(seed="first writes", **SETTINGS)
    node.start()
    prepare(node)
    yield node
    node.close()


@pytest.fixture
def talk(node: SimNode) -> Talk:
    return Talk(node)


def code_of(reply: Any) -> ErrorCode:
    code: ErrorCode = reply.responses[0].partition_responses[0].error_code
    return code


def end(talk: Talk, who: Producer, version: int, label: str = "end") -> None:
    answer = talk.end(label, who, version)
    assert answer.error_code is E.none
    if version >= 5:
        who.became(answer)
    talk.settle(who.transactional_id)


def asked(node: SimNode) -> int:
    return node.broker.verifier.asked


def test_only_the_first_batch_of_a_transaction_is_asked_about(
    node: SimNode, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one that nobody was told of: no coordinator's word has to arrive."""
    words = node.broker.transactions._words._door
    monkeypatch.setattr(words, "tell", lambda *_: None)
    who = talk.begun("begin", "asked once", 4)
    talk.add("add", who, **{TOPIC: [0, 1]})
    before = asked(node)
    for number in range(3):
        assert code_of(talk.produce(f"produce {number}", who, OLD)) is E.none
    assert asked(node) == before + 1
    end(talk, who, 3)
    talk.add("add to the next", who)
    assert code_of(talk.produce("produce to the next", who, OLD)) is E.none
    assert asked(node) == before + 2
    end(talk, who, 3, "end the next")


def test_a_late_write_of_a_finished_transaction_is_refused(node: SimNode, talk: Talk) -> None:
    """It would hang there for ever: its coordinator has told this partition how it ended."""
    old, new = talk.begun("begin", "late old", 4), talk.begun("begin anew", "late new", 5)
    talk.add("add", old)
    assert code_of(talk.produce("produce", old, OLD)) is E.none
    assert code_of(talk.produce("produce anew", new, NEW)) is E.none
    late = new.but()
    end(talk, old, 3)
    end(talk, new, 5, "end anew")
    stable = node.broker.replicas.partitions[FIRST].last_stable_offset
    assert code_of(talk.produce("late", old, OLD)) is E.transaction_abortable
    assert code_of(talk.produce("late, of long ago", old.but(), 9)) is E.invalid_txn_state
    assert code_of(talk.produce("late anew", late, NEW)) is E.invalid_producer_epoch
    partition = node.broker.replicas.partitions[FIRST]
    assert partition.last_stable_offset == stable == partition.high_watermark


def test_writing_makes_a_partition_part_of_its_transaction(node: SimNode, talk: Talk) -> None:
    who = talk.begun("begin", "adds itself", 5)
    assert code_of(talk.produce("produce", who, NEW)) is E.none
    assert code_of(talk.produce("produce elsewhere", who.but(), NEW, partition=1)) is (
        E.out_of_order_sequence_number  # an epoch begins at sequence 0, in each partition
    )
    first = who.but()
    first.sequence = 0
    assert code_of(talk.produce("produce elsewhere from 0", first, NEW, partition=1)) is E.none
    (row,) = talk.describe("describe", "adds itself").transaction_states
    assert [list(topic.partitions) for topic in row.topics] == [[0, 1]]
    end(talk, who, 5)


def test_a_first_write_that_comes_before_the_last_marker_is_taken(
    node: SimNode, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator's word waits for that marker, which ends what the partition has begun to ask about."""
    who = talk.begun("begin", "ahead of markers", 5)
    broker, questions = node.broker, []
    answer = broker.transactions.verify

    async def verify(*question: Any, add: bool) -> Any:
        found = await answer(*question, add=add)
        questions.append(question)
        if len(questions) == 1:
            ended = {"producer_id": who.producer_id, "producer_epoch": who.producer_epoch}
            last = Marker(
                **ended,
                coordinator_epoch=0,
                commit=True,
                partitions=(FIRST,),
                transaction_version=2,
            )
            assert await broker.markers.write_here([last]) == [{FIRST: E.none}]
        return found

    monkeypatch.setattr(broker.transactions, "verify", verify)
    assert code_of(talk.produce("produce", who, NEW)) is E.none
    assert len(questions) == 2
    end(talk, who, 5)


def test_batches_behind_the_first_keep_their_order_while_it_waits(
    node: SimNode, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = talk.begun("begin", "pipelined", 5)
    broker = node.broker
    answer = broker.transactions.verify

    async def verify(*question: Any, add: bool) -> Any:
        await broker.env.clock.sleep(0.3)
        return await answer(*question, add=add)

    monkeypatch.setattr(broker.transactions, "verify", verify)
    before, first_offset = asked(node), broker.replicas.partitions[FIRST].log_end_offset

    async def send(sequence: int) -> Any:
        batch = who.but()
        batch.sequence = sequence
        return await node.wire.request(
            ApiKey.produce,
            NEW,
            transactional_id="pipelined",
            acks=-1,
            timeout=5_000,
            topic_data=[
                {"name": TOPIC, "partition_data": [{"index": 0, "records": records(b"x", batch)}]}
            ],
        )

    replies = node.run(lambda: _together(*(send(sequence) for sequence in range(4))))
    parts = [reply.responses[0].partition_responses[0] for reply in replies]
    assert [(part.error_code, part.base_offset) for part in parts] == [
        (E.none, first_offset + place) for place in range(4)
    ]
    assert asked(node) == before + 1
    end(talk, who, 5)


async def _together(*work: Awaitable[Any]) -> list[Any]:
    return list(await asyncio.gather(*work))


def test_a_coordinator_that_is_on_the_move_is_asked_again(
    node: SimNode, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the client is sent away, which would come again after its own back-off."""
    who = talk.begun("begin", "on the move", 5)
    answer, refusals = node.broker.transactions.verify, [E.not_coordinator] * 3

    async def verify(*question: Any, add: bool) -> Any:
        if refusals:
            return dict.fromkeys(question[3], refusals.pop())
        return await answer(*question, add=add)

    monkeypatch.setattr(node.broker.transactions, "verify", verify)
    assert code_of(talk.produce("produce", who, NEW)) is E.none
    assert not refusals
    end(talk, who, 5)


def test_a_coordinator_that_is_away_for_long_sends_producers_away(
    node: SimNode, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an error on which old clients, too, just send again, and then nothing is lost."""
    who = talk.begun("begin", "away", 5)

    async def away(*question: Any, add: bool) -> Any:
        return dict.fromkeys(question[3], E.coordinator_load_in_progress)

    with monkeypatch.context() as patched:
        patched.setattr(node.broker.transactions, "verify", away)
        assert code_of(talk.produce("produce", who, NEW)) is E.not_enough_replicas
    behind = who.but()
    behind.sequence = 1
    assert code_of(talk.produce("overtake", behind, NEW)) is E.not_enough_replicas
    assert code_of(talk.produce("produce again", who, NEW)) is E.none
    end(talk, who, 5)


def test_a_partition_that_comes_while_another_is_asked_about_sends_its_producer_away(
    node: SimNode, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asked about it when the others were: INVALID_TXN_STATE would end a producer that did nothing wrong."""
    who = talk.begun("begin", "grows", 5)
    node.create_topic("grows")
    broker = node.broker
    answer, asked_for = broker.transactions.verify, []

    async def verify(*question: Any, add: bool) -> Any:
        asked_for.append(question[3])
        if len(asked_for) == 1:
            await broker.controller.execute(CreatePartitions(topics=(GROWN,)))
        return await answer(*question, add=add)

    def send(label: str) -> list[ErrorCode]:
        parts = [{"index": place, "records": records(b"x", who)} for place in range(2)]
        reply = talk.ask(
            label,
            ApiKey.produce,
            NEW,
            transactional_id=who.transactional_id,
            acks=-1,
            timeout=5_000,
            topic_data=[{"name": "grows", "partition_data": parts}],
        )
        return [part.error_code for part in reply.responses[0].partition_responses]

    monkeypatch.setattr(broker.transactions, "verify", verify)
    assert send("produce") == [E.none, E.not_leader_or_follower]
    assert send("produce again") == [E.none, E.none]
    end(talk, who, 5)


def test_a_marker_between_the_coordinators_word_and_the_write_has_the_producer_come_again(
    node: SimNode, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. Two partitions are asked about, the word on one comes too late and is asked for anew. 2. The marker of the
    transaction before is sent once more to the other, whose word it voids. INVALID_TXN_STATE ended the producer.
    """
    who = talk.begun("begin", "voided", 5)
    broker = node.broker
    verify = broker.verifier.verify

    async def voided(*arguments: Any, **named: Any) -> list[ErrorCode]:
        codes = await verify(*arguments, **named)
        broker.replicas.partitions[FIRST].producers.verifications.ended(who.producer_id)
        return codes

    with monkeypatch.context() as patched:
        patched.setattr(broker.verifier, "verify", voided)
        assert code_of(talk.produce("produce", who, NEW)) is E.not_enough_replicas
    assert code_of(talk.produce("produce again", who, NEW)) is E.none
    end(talk, who, 5)


def test_a_coordinator_that_may_be_deposed_gives_no_word(
    node: SimNode, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It slept, and its successor has ended the transaction: the late write that it let in would hang there for ever."""
    monkeypatch.setattr(node.broker.transactions._words._door, "tell", lambda *_: None)
    who = talk.begun("begin", "unsure", 5)
    talk.add("add", who)
    confirmed: list[bool] = []

    async def confirm(_within_s: float) -> bool:
        confirmed.append(bool(confirmed))
        return confirmed[-1]

    monkeypatch.setattr(node.broker.verifier, "_confirm_image", confirm)
    assert code_of(talk.produce("produce", who, OLD)) is E.none
    assert confirmed == [False, True], "asked again"
    end(talk, who, 3)


@pytest.mark.parametrize(
    ("version", "told"), [(OLD, E.not_enough_replicas), (NEW, E.concurrent_transactions)]
)
def test_what_follows_a_batch_that_its_coordinator_sent_back_is_not_out_of_order(
    node: SimNode, talk: Talk, monkeypatch: pytest.MonkeyPatch, version: int, told: ErrorCode
) -> None:
    """1. The word on batch 0 is "not now". 2. Batch 1, which was on its way, is asked about anew, and may be written."""
    monkeypatch.setattr(node.broker.transactions._words._door, "tell", lambda *_: None)
    who = talk.begun("begin", f"behind {version}", 5)
    if version == OLD:
        talk.add("add", who)
    broker, first, second = node.broker, who.but(), who.but()
    second.sequence = 1

    async def not_now(_name: str, writes: list[Any], **_: Any) -> list[ErrorCode]:
        return [E.concurrent_transactions] * len(writes)

    with monkeypatch.context() as patched:
        patched.setattr(broker.verifier, "verify", not_now)
        assert code_of(talk.produce("produce", first, version)) is told
    assert code_of(talk.produce("produce what follows", second, version)) is told
    first.sequence = 0
    assert code_of(talk.produce("produce again", first, version)) is E.none
    second.sequence = 1
    assert code_of(talk.produce("produce what follows again", second, version)) is E.none
    end(talk, who, 5 if version == NEW else 3)


def test_producers_that_nobody_knows_leave_nothing_behind(node: SimNode, talk: Talk) -> None:
    waiting = node.broker.replicas.partitions[FIRST].producers.verifications
    for producer_id in range(5_000, 5_010):
        nobody = Producer("nobody", producer_id, 0)
        said = talk.produce(f"produce as {producer_id}", nobody, OLD)
        assert code_of(said) is E.invalid_producer_id_mapping
        assert waiting.of(producer_id) is None


def test_two_producers_in_one_request_are_both_refused(node: SimNode, talk: Talk) -> None:
    who, other = talk.begun("begin", "one", 5), talk.begun("begin another", "another", 5)
    rows = [
        {"index": 0, "records": records(b"x", who)},
        {"index": 1, "records": records(b"x", other)},
    ]
    reply = node.ask(
        ApiKey.produce,
        NEW,
        transactional_id="one",
        acks=-1,
        timeout=5_000,
        topic_data=[{"name": TOPIC, "partition_data": rows}],
    )
    codes = [row.error_code for row in reply.responses[0].partition_responses]
    assert codes == [E.invalid_producer_id_mapping] * 2
    (row,) = talk.describe("describe", "one").transaction_states
    assert row.transaction_state == "Empty"


def test_without_verification_a_partition_takes_what_comes(node: SimNode, talk: Talk) -> None:
    who = talk.begun("begin", "unverified", 4)

    def set_to(value: str) -> None:
        config = {"name": "transaction.partition.verification.enable", "config_operation": 0}
        reply = node.ask(
            ApiKey.incremental_alter_configs,
            resources=[
                {
                    "resource_type": 4,
                    "resource_name": "",
                    "configs": [{**config, "value": value}],
                }
            ],
        )
        assert reply.responses[0].error_code is E.none, reply

    set_to("false")
    try:
        before = asked(node)
        assert code_of(talk.produce("produce", who, OLD)) is E.none
        assert asked(node) == before
    finally:
        set_to("true")
    # It hangs now, as such transactions do; a person ends it.
    marker = {**who.fields, "transaction_result": False, "coordinator_epoch": 0}
    del marker["transactional_id"]
    topics = [{"name": TOPIC, "partition_indexes": [0]}]
    node.ask(ApiKey.write_txn_markers, 1, markers=[{**marker, "topics": topics}])


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        (E.none, 12, E.none),
        (E.invalid_txn_state, 12, E.invalid_txn_state),
        (E.transaction_abortable, 11, E.transaction_abortable),
        (E.transaction_abortable, 10, E.invalid_txn_state),
        (E.producer_fenced, 12, E.invalid_producer_epoch),
        (E.invalid_producer_id_mapping, 12, E.invalid_producer_id_mapping),
        (E.concurrent_transactions, 12, E.concurrent_transactions),
        (E.concurrent_transactions, 11, E.not_enough_replicas),
        (E.network_exception, 12, E.not_enough_replicas),
        (E.coordinator_load_in_progress, 12, E.not_enough_replicas),
        (E.coordinator_not_available, 12, E.not_enough_replicas),
        (E.not_coordinator, 12, E.not_enough_replicas),
    ],
)
def test_producers_hear_words_that_they_know(
    said: ErrorCode, version: int, told: ErrorCode
) -> None:
    """ReplicaManager.handleProduceAppend, AddPartitionsToTxnManager."""
    assert produce_word(said, version=version) is told
