"""A broker that is a list, for the loop: a partition of inputs, producers that fence each other and whose time is up."""

import threading
import time
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from fencepost.clients.transactional import loop as loop_module

FATAL = KafkaException(KafkaError(KafkaError._FATAL, "Unable to produce message"))
FENCED = KafkaException(KafkaError(KafkaError._FENCED, "fenced by a newer instance", fatal=True))
# What a coordinator says to positions of a member that has left: librdkafka leaves for who did not poll.
HAS_LEFT = KafkaException(
    KafkaError(KafkaError.UNKNOWN_MEMBER_ID, "unknown member", txn_requires_abort=True)
)


class Input:
    def __init__(self, offset: int, error: KafkaError | None = None) -> None:
        self._offset, self._error = offset, error

    def topic(self) -> str:
        return "in"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return self._error


class Log:
    """What all producers and consumers see: one transactional id, one group."""

    def __init__(self, inputs: int, timeout_s: float = 60.0, max_poll_s: float = 300.0) -> None:
        self.inputs = inputs
        self.timeout_s = timeout_s
        self.max_poll_s = max_poll_s
        self.polled_at = 0.0
        self.epoch = 0
        self.position = -1001  # of the group
        self.outputs: list[Any] = []
        self.whole = threading.Lock()  # a request is answered before the next one changes anything
        self.errors: list[KafkaError] = []  # that a consumer is told once, behind what it reads
        self.resets = (
            0  # how often a consumer that asks for the position is sent to the beginning instead
        )

    def give_to(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(loop_module, "Consumer", lambda _: Reads(self))
        monkeypatch.setattr(loop_module, "TellingProducer", lambda _: Writes(self))


class Reads:
    def __init__(self, log: Log) -> None:
        self._log = log
        self.seek(TopicPartition("in", 0, max(log.position, 0)))

    def consume(self, most: int, _timeout: float) -> list[Input]:
        self._log.polled_at = time.monotonic()
        last = min(self._next + most, self._log.inputs)
        found = [Input(offset) for offset in range(self._next, last)]
        self._next = last
        found += [Input(-1, error) for error in self._log.errors]
        self._log.errors.clear()
        return found

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("in", 0)]

    def committed(self, *_: Any) -> list[TopicPartition]:
        return [TopicPartition("in", 0, self._log.position)]

    def seek(self, to: TopicPartition) -> None:
        """A leader that was deposed says that it is out of range."""
        is_reset = to.offset > 0 and self._log.resets > 0
        self._log.resets -= is_reset
        self._next = 0 if is_reset else to.offset

    def __getattr__(self, name: str) -> Any:
        """subscribe, close, consumer_group_metadata: nothing comes of them."""
        return lambda *_, **__: None


class Writes:
    """The clock of a transaction begins with its first record, as in a broker."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._epoch = 0
        self._began: float | None = None
        self._outputs: list[Any] = []
        self._position = 0

    def init_transactions(self, _timeout: float) -> None:
        with self._log.whole:
            self._log.epoch += 1
            self._epoch = self._log.epoch

    def _is_fenced(self) -> bool:
        if self._began is not None and time.monotonic() - self._began > self._log.timeout_s:
            self._log.epoch += self._epoch == self._log.epoch
        return self._epoch != self._log.epoch

    def begin_transaction(self) -> None:
        self._outputs, self._began = [], None

    def produce(self, _topic: str, *, value: Any, **_fields: Any) -> None:
        if self._is_fenced():
            raise FATAL
        self._began = self._began or time.monotonic()
        self._outputs.append(value)

    def send_offsets_to_transaction(self, offsets: list[TopicPartition], *_: Any) -> None:
        if self._is_fenced():
            raise FENCED
        if time.monotonic() - self._log.polled_at > self._log.max_poll_s:
            raise HAS_LEFT
        self._position = offsets[0].offset

    def commit_transaction(self, _timeout: float) -> None:
        with self._log.whole:
            if self._is_fenced():
                raise FENCED
            self._log.outputs += self._outputs
            self._log.position = self._position

    def abort_transaction(self, _timeout: float) -> None:
        if self._is_fenced():
            raise FENCED

    def poll(self, _timeout: float) -> None:
        pass
