"""Outputs that no broker takes, told by a producer that is a list, and by a real broker that has a limit."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from brokers import IN_CHAOS
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from fencepost.clients.transactional import (
    Output,
    OutputRefused,
    TransactionalLoop,
    topic_limits,
)
from fencepost.clients.transactional import loop as loop_module
from librdkafka import consumer_of, create, producer_of, send, until

TOO_LARGE = KafkaError.MSG_SIZE_TOO_LARGE
NOT_YOURS = KafkaError.TOPIC_AUTHORIZATION_FAILED


def asks_for_abort(code: int) -> KafkaException:
    return KafkaException(KafkaError(code, txn_requires_abort=True))


class Input:
    def topic(self) -> str:
        return "in"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 5

    def error(self) -> None:
        return None


class Written:
    def __init__(self, topic: str, fields: dict[str, Any]) -> None:
        self._topic, self._fields = topic, fields

    def topic(self) -> str:
        return self._topic

    def key(self) -> Any:
        return self._fields.get("key")

    def value(self) -> Any:
        return self._fields.get("value")


class Broker:
    """The loop's consumer and its producers in one: one input that is read until its position is committed."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.made = 0
        self.at_once: int | None = None  # what `produce` raises
        self.later: int | None = None  # what a delivery says, and why the commit is refused
        self.offsets: int | None = None  # why the positions are refused
        self._deliveries: list[Callable[[], None]] = []

    def producer(self, config: Any) -> "Broker":
        self.made += 1
        return self

    def begin_transaction(self) -> None:
        self._deliveries.clear()

    def produce(self, topic: str, *, on_delivery: Any, **fields: Any) -> None:
        if self.at_once is not None:
            raise KafkaException(KafkaError(self.at_once))
        error = None if self.later is None else KafkaError(self.later)
        self._deliveries.append(lambda: on_delivery(error, Written(topic, fields)))

    def send_offsets_to_transaction(self, *_: Any) -> None:
        if self.offsets is not None:
            raise asks_for_abort(self.offsets)

    def commit_transaction(self, timeout_s: float) -> None:
        self._deliver()
        if self.later is not None:
            raise asks_for_abort(self.later)
        self.said.append("commit")

    def abort_transaction(self, timeout_s: float) -> None:
        self._deliver()
        self.said.append("abort")

    def _deliver(self) -> None:
        for each in self._deliveries:
            each()
        self._deliveries.clear()

    def consume(self, *_: Any) -> list[Input]:
        return [Input()]

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("in", 0)]

    def committed(self, *_: Any) -> list[TopicPartition]:
        return [TopicPartition("in", 0, 5)]

    def seek(self, to: TopicPartition) -> None:
        self.said.append(f"seek {to.offset}")

    def __getattr__(self, name: str) -> Any:
        """init_transactions, poll, subscribe, close, consumer_group_metadata: nothing comes of them."""
        return lambda *_, **__: None


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    found = Broker()
    monkeypatch.setattr(loop_module, "Consumer", lambda _: found)
    monkeypatch.setattr(loop_module, "TellingProducer", found.producer)
    monkeypatch.setattr(topic_limits, "bytes_max", lambda *_: None)
    return found


def loop_of(transform: Callable[[Any], list[Output]]) -> TransactionalLoop:
    return TransactionalLoop(
        bootstrap="nowhere:1", topics=["in"], group_id="g", transform=transform
    )


def step(**fields: Any) -> int:
    return loop_of(lambda _: [Output("out", key=b"k-7", value=b"xxx", **fields)]).step()


@pytest.mark.parametrize(
    ("code", "next_step"),
    [
        (TOO_LARGE, "Raise message.max.bytes in producer_config and max.message.bytes of the"),
        (KafkaError._UNKNOWN_PARTITION, "Create the topic or the partition"),
        (KafkaError._INVALID_ARG, "its message comes again"),
    ],
)
def test_an_output_that_no_broker_takes_ends_run_and_not_the_producer(
    broker: Broker, code: int, next_step: str
) -> None:
    broker.at_once = code
    said = rf"an output for out with the key b'k-7' and a value of 3 bytes.*{next_step}"
    with pytest.raises(OutputRefused, match=said):
        step()
    assert (broker.said, broker.made) == (["abort", "seek 5"], 1)


@pytest.mark.parametrize("code", [TOO_LARGE, NOT_YOURS, KafkaError.UNKNOWN_TOPIC_OR_PART])
def test_a_delivery_that_never_helps_is_raised_after_the_abort(broker: Broker, code: int) -> None:
    broker.later = code
    name = KafkaError(code).name()
    with pytest.raises(OutputRefused, match=rf"output for out with the key b'k-7'.*{name}"):
        step()
    assert (broker.said, broker.made) == (["abort", "seek 5"], 1)


def test_an_authorization_that_is_missing_is_raised_with_the_topics(broker: Broker) -> None:
    """The coordinator refuses, and no delivery tells of it."""
    broker.offsets = KafkaError.GROUP_AUTHORIZATION_FAILED
    with pytest.raises(OutputRefused, match=r"outputs for out was refused: GROUP_AUTH.*Grant what"):
        step()
    assert (broker.said, broker.made) == (["abort", "seek 5"], 1)


@pytest.mark.parametrize("code", [KafkaError._STATE, KafkaError._FATAL, KafkaError._FENCED])
def test_an_output_is_not_blamed_for_its_producer(broker: Broker, code: int) -> None:
    broker.at_once = code
    assert step() == 0
    broker.at_once = None
    assert step() == 1
    assert broker.said[-1] == "commit"


def test_an_output_that_fails_the_transaction_while_others_are_produced_is_named(
    broker: Broker,
) -> None:
    """`produce` says _STATE of the ones behind it, and the delivery that tells why may come with the abort."""

    def two(_: Any) -> Any:
        yield Output("out", key=b"k-7", value=b"xxx")
        broker.at_once = KafkaError._STATE
        yield Output("out", key=b"k-8", value=b"x")

    broker.later = TOO_LARGE
    with pytest.raises(OutputRefused, match=r"output for out with the key b'k-7'.*MSG_SIZE"):
        loop_of(two).step()
    assert (broker.said, broker.made) == (["abort", "seek 5"], 1)


def test_a_delivery_that_may_go_well_the_next_time_is_read_again(broker: Broker) -> None:
    broker.later = KafkaError._MSG_TIMED_OUT
    assert step() == 0
    broker.later = None
    assert step() == 1
    assert broker.said == ["abort", "seek 5", "commit"]


@pytest.mark.parametrize("name", ["on_delivery", "callback"])
def test_an_output_may_ask_for_its_delivery_itself(broker: Broker, name: str) -> None:
    told: list[Any] = []
    broker.later = TOO_LARGE
    with pytest.raises(OutputRefused):
        step(**{name: lambda error, message: told.append((error.code(), message.topic()))})
    assert told == [(TOO_LARGE, "out")]


@pytest.mark.slow
@pytest.mark.parametrize("outputs", [1, 2_000], ids=["in the commit", "while it produces"])
def test_a_value_over_the_topics_limit_is_named_and_the_loop_goes_on_without_it(
    bootstrap: str, fresh: Callable[[str], str], group: str, outputs: int
) -> None:
    """Librdkafka takes it, and its broker does not."""
    source, sink = fresh("in"), fresh("out")
    create(bootstrap, source)
    create(bootstrap, sink, max_message_bytes=1_000)
    send(producer_of(bootstrap), source, [b"first"])
    small = [Output(sink, value=b"small")] * (outputs - 1)
    first = [Output(sink, key=b"k-7", value=bytes(range(256)) * 20)]
    options: dict[str, Any] = {
        "bootstrap": bootstrap,
        "topics": [source],
        "group_id": group,
        "consumer_config": {"session.timeout.ms": 6_000, "log_level": 0},
        "producer_config": {"log_level": 0, "linger.ms": 0, "batch.num.messages": 1},
    }
    said = rf"output for {re.escape(sink)} with the key b'k-7' and a value of 5,120 bytes was"
    with TransactionalLoop(transform=lambda _: first + small, **options) as loop:
        with pytest.raises(OutputRefused, match=said):
            loop.run()
        assert loop.committed == 0
        assert loop.aborted == 1 or IN_CHAOS
    with TransactionalLoop(transform=lambda _: small[:3], **options) as loop:
        until(lambda: loop.step() >= 0 and loop.committed == 1, what="it goes on")
    with consumer_of(bootstrap) as consumer:
        consumer.assign([TopicPartition(sink, 0, 0)])
        found = consumer.consume(10, timeout=2)
    assert [each.value() for each in found] == [b"small"] * min(3, len(small))
