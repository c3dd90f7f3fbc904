"""What the suites of confluent-kafka share: clients with short waits, and loops that have an end."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from brokers import COPIES, SAFE, WAIT_S
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from fencepost.clients.transactional.kept_topics import make_topic


def _config(bootstrap: str, options: dict[str, Any]) -> dict[str, Any]:
    named = {name.replace("_", "."): value for name, value in options.items()}
    return {"bootstrap.servers": bootstrap, "log_level": 0, **named}


def producer_of(bootstrap: str, **options: Any) -> Producer:
    return Producer(_config(bootstrap, {"linger_ms": 2, **SAFE, **options}))


@contextmanager
def consumer_of(bootstrap: str, group: str = "unused", **options: Any) -> Iterator[Consumer]:
    defaults = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "group_id": group}
    if options.get("group_protocol") != "consumer":
        defaults |= {"session_timeout_ms": 6000, "heartbeat_interval_ms": 200}
    consumer = Consumer(_config(bootstrap, defaults | options))
    try:
        yield consumer
    finally:
        consumer.close()


@cache  # a future of an admin client dies with the client, so that one has to stay
def admin_of(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def create(bootstrap: str, topic: str, partitions: int = 1, **config: Any) -> None:
    settings = {name.replace("_", "."): str(value) for name, value in config.items()}
    new = NewTopic(topic, num_partitions=partitions, replication_factor=COPIES, config=settings)
    assert make_topic(admin_of(bootstrap), new, WAIT_S), f"{topic} was there before"


def send(
    producer: Producer, topic: str, values: Sequence[bytes | None], **options: Any
) -> list[Message]:
    """Produce all, wait for every acknowledgement, raise the first error."""
    done: list[Message] = []
    errors: list[KafkaError] = []

    def acknowledged(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        else:
            done.append(message)

    for value in values:
        producer.produce(topic, value, on_delivery=acknowledged, **options)
        producer.poll(0)
    left = producer.flush(WAIT_S)
    if errors:
        raise KafkaException(errors[0])
    assert left == 0, f"{left} records were never acknowledged"
    return done


def receive(consumer: Consumer, count: int, wait_s: float = WAIT_S) -> list[Message]:
    """The next `count` records; fails with what came when they don't."""
    got: list[Message] = []
    deadline = time.monotonic() + wait_s
    while len(got) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(got), timeout=0.2):
            if message.error():
                raise KafkaException(message.error())
            got.append(message)
    assert len(got) == count, f"{len(got)} of {count} records came"
    return got


def read_all(bootstrap: str, topic: str, count: int, partitions: int = 1) -> list[Message]:
    with consumer_of(bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        return receive(consumer, count)


def until(condition: Callable[[], bool], *, what: str, wait_s: float = WAIT_S) -> None:
    """Call `condition` (which may poll) until it holds."""
    deadline = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {wait_s:g} s in vain: {what}"


def error_code(caught: Any) -> int:
    """The code inside pytest's `raises` of a KafkaException."""
    return caught.value.args[0].code()
