"""What a cluster is watched under: transactions that commit and abort, plain records, a group that reads them."""

import threading
import time
from itertools import count
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from fencepost.clients.transactional.kept_topics import make_topic

PARTITIONS = 6
ABORT_EVERY = 5
PAUSE_S = 0.02
TOO_LARGE = 2_000_000  # bytes; max.message.bytes is half of it


class Load:
    """Two threads, until the block ends. What a client was refused for good is in `refused`."""

    def __init__(self, bootstrap: str, topic: str = "orders") -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.ended = 0
        self.consumed = 0
        self.refused: list[str] = []
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=work, name=work.__name__)
            for work in (self._produce, self._consume)
        ]

    def __enter__(self) -> Self:
        self.make_topic(self.topic)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def make_topic(self, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        assert make_topic(admin, NewTopic(name, PARTITIONS, 3))

    def one_that_is_too_large(self) -> None:
        """So that answers hold an error that nobody is to blame for."""
        told: list[KafkaError | None] = []
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "message.max.bytes": 4 * TOO_LARGE}
        )
        producer.produce(
            self.topic, bytes(TOO_LARGE), on_delivery=lambda error, _message: told.append(error)
        )
        producer.flush(30)
        assert told[0] is not None and told[0].code() == KafkaError.MSG_SIZE_TOO_LARGE, told

    def until(self, *, transactions: int, consumed: int, wait_s: float) -> None:
        deadline = time.monotonic() + wait_s
        while self.ended < transactions or self.consumed < consumed:
            assert time.monotonic() < deadline, (self.ended, self.consumed, self.refused)
            time.sleep(0.05)

    def _produce(self) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "linger.ms": 0}
        plain = Producer({**settings, "enable.idempotence": True})
        whole = Producer({**settings, "transactional.id": "billing-1"})
        whole.init_transactions(30)
        for number in count():
            if self._over.is_set():
                break
            try:
                self._transaction(whole, commit=number % ABORT_EVERY != 0)
                plain.produce(self.topic, b"plain", on_delivery=self._delivered)
                plain.poll(0)
            except KafkaException as refused:
                self.refused.append(str(refused))
            time.sleep(PAUSE_S)
        plain.flush(30)

    def _transaction(self, producer: Producer, *, commit: bool) -> None:
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(self.topic, b"whole", partition=partition)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
        self.ended += 1

    def _delivered(self, error: KafkaError | None, _message: Any) -> None:
        if error is not None:
            self.refused.append(str(error))

    def _consume(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "billing",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([self.topic])
        while not self._over.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.consumed += 1
        consumer.close()
