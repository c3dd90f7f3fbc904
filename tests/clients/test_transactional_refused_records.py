"""What is said of a record that no broker takes, to whoever wrote it; by brokers that have limits."""

import os
from typing import Any

import pytest
from confluent_kafka import KafkaError
from fencepost.clients.transactional import (
    GroupMember,
    HalfMessageProducer,
    Output,
    OutputRefused,
    TransactionalLoop,
    topic_limits,
)
from fencepost.clients.transactional.refused_records import RefusedRecords, Words
from librdkafka import consumer_of, create, producer_of, receive, send, until

WORDS = Words("a record", "config", "write another", "do it again")
TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
QUIET = {"log_level": 0}


class Written:
    def __init__(self, size: int, topic: str = "t") -> None:
        self._size, self._topic = size, topic

    def topic(self) -> str:
        return self._topic

    def key(self) -> bytes:
        return b"%d" % self._size

    def value(self) -> bytes:
        return b"x" * self._size


def refused(*sizes: int, **client: Any) -> RefusedRecords:
    found = RefusedRecords({"bootstrap.servers": "nowhere:1", **client}, WORDS)
    for size in sizes:
        found.delivered(TOO_LARGE, Written(size))
    return found


@pytest.mark.parametrize(
    ("sizes", "client", "said", "fits"),
    [
        ([100, 900, 300], {}, "value of 900 .*which t takes: .*Say batch.size in config=5000", 5_000),
        ([100, 9_000, 300], {}, "value of 9,000 .*t takes 5,000 .*write smaller records", None),
        ([900], {"batch.size": "4000"}, "value of 900 .*t takes 5,000", None),
    ],
)  # fmt: skip
def test_the_largest_record_of_a_batch_is_named_and_what_helps(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int], client: Any, said: str, fits: int | None
) -> None:
    monkeypatch.setattr(topic_limits, "bytes_max", lambda *_: 5_000)
    found = refused(*sizes, **client)
    assert found.batch_that_fits() == fits
    raised = found.refusal()
    assert raised is not None
    with pytest.raises(OutputRefused, match=f"a record for t with the key b'{max(sizes)}'.*{said}"):
        raise raised


def test_what_may_go_well_the_next_time_is_no_refusal() -> None:
    found = refused()
    found.delivered(None, Written(1))
    found.delivered(KafkaError(KafkaError._MSG_TIMED_OUT), Written(1))
    assert found.refusal() is None
    assert found.batch_that_fits() is None


def test_a_limit_is_asked_for_without_what_makes_a_producer(monkeypatch) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(topic_limits, "bytes_max", lambda client, _: asked.append(client))
    found = refused(9, **{"transactional.id": "x", "transaction.timeout.ms": 5, "log_level": 0})
    found.refusal()
    assert asked == [{"bootstrap.servers": "nowhere:1", "log_level": 0}]


@pytest.mark.slow
def test_outputs_that_fit_one_by_one_are_sent_in_smaller_batches(bootstrap, fresh, group) -> None:
    """50 values of 5 kB for a topic that takes 20 kB: librdkafka sends a megabyte at once."""
    source, sink = fresh("in"), fresh("out")
    create(bootstrap, source)
    create(bootstrap, sink, max_message_bytes=20_000)
    send(producer_of(bootstrap), source, [os.urandom(5_000) for _ in range(50)])
    with TransactionalLoop(
        bootstrap=bootstrap,
        topics=[source],
        group_id=group,
        transform=lambda message: [Output(sink, value=message.value())],
        consumer_config={"session.timeout.ms": 6_000, **QUIET},
        producer_config=QUIET,
    ) as loop:
        until(lambda: loop.step() >= 0 and loop.committed >= 50, what="all is committed")
    with consumer_of(bootstrap, group=f"{group}.check") as consumer:
        consumer.subscribe([sink])
        assert {len(each.value()) for each in receive(consumer, 50)} == {5_000}


@pytest.mark.slow
def test_a_batch_size_that_was_said_stays_and_is_named(bootstrap, fresh, group) -> None:
    source, sink = fresh("in"), fresh("out")
    create(bootstrap, source)
    create(bootstrap, sink, max_message_bytes=20_000)
    send(producer_of(bootstrap), source, [b"one"])
    many = [Output(sink, value=os.urandom(5_000)) for _ in range(50)]
    said = "it is the batch that it was sent in. Say batch.size in producer_config=20000"
    with (
        TransactionalLoop(
            bootstrap=bootstrap,
            topics=[source],
            group_id=group,
            transform=lambda _: many,
            consumer_config={"session.timeout.ms": 6_000, **QUIET},
            producer_config={**QUIET, "batch.size": 500_000},
        ) as loop,
        pytest.raises(OutputRefused, match=said),
    ):
        loop.run()


@pytest.mark.slow
def test_a_member_is_told_of_its_batches_and_of_what_librdkafka_does_not_take(
    bootstrap, topic, group
) -> None:
    create(bootstrap, topic, max_message_bytes=20_000)
    member = GroupMember(bootstrap, group, "m", QUIET)
    member.start()
    member.begin()
    for _ in range(50):
        member.produce(topic, value=os.urandom(5_000))
    with pytest.raises(OutputRefused, match=r"Say batch\.size in config=20000"):
        member.wrote()
    member.finish("abort")
    member.begin()
    with pytest.raises(OutputRefused, match=r"can't be committed.*Raise message\.max\.bytes in"):
        member.produce(topic, value=b"x" * 2_000_000)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "said"),
    [
        (2_000_000, r"Raise message\.max\.bytes in config and max\.message\.bytes of the topic"),
        (30_000, r"takes 20,000 \(max\.message\.bytes\): raise max\.message\.bytes of the topic"),
    ],
)
def test_a_half_message_that_is_too_large_says_what_to_do(
    bootstrap, topic, group, size, said
) -> None:
    create(bootstrap, topic, max_message_bytes=20_000)
    producer = HalfMessageProducer(bootstrap, group, None, config=QUIET)  # type: ignore[arg-type]
    with pytest.raises(
        OutputRefused, match=rf"half message o for .*Its transaction was aborted\..*{said}"
    ):
        producer.send_half(topic, half_id="o", value=os.urandom(size))
