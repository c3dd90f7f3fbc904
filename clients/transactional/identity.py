"""Which producer id and epoch librdkafka works with: it tells them in its statistics, and nowhere else."""

import json
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaException

from .resting_producer import RestingProducer

STATISTICS_MS: Final = 200
POLL_S: Final = 0.05
START_S: Final = 60.0


class ProducerIdentity(NamedTuple):
    producer_id: int
    producer_epoch: int


class Statistics:
    """What librdkafka told last. It does not know its producer: a producer that is in a circle with what it calls back lives
    until Python looks for circles, with four threads and eight descriptors."""

    def __init__(self) -> None:
        self.identity: ProducerIdentity | None = None

    def take(self, text: str) -> None:
        told = json.loads(text).get("eos", {})
        producer_id, epoch = told.get("producer_id", -1), told.get("producer_epoch", -1)
        if producer_id >= 0 and epoch >= 0:
            self.identity = ProducerIdentity(producer_id, epoch)


class IdentifiedProducer:
    """A transactional producer that can say who it is. For one thread at a time."""

    def __init__(
        self,
        bootstrap: str,
        transactional_id: str,
        config: Mapping[str, Any] | None = None,
        *,
        statistics_ms: int = STATISTICS_MS,
    ) -> None:
        self.transactional_id = transactional_id
        self._statistics = Statistics()
        self.producer = RestingProducer(
            {
                "bootstrap.servers": bootstrap,
                **(config or {}),
                "transactional.id": transactional_id,
                "statistics.interval.ms": statistics_ms,
                "stats_cb": self._statistics.take,
            }
        )

    def start(self, timeout_s: float = START_S) -> None:
        """Fence whoever worked under this id before, and abort what it left open."""
        retrying(lambda: self.producer.init_transactions(5.0), timeout_s)
        self.identity(fresh=True, timeout_s=timeout_s)

    def identity(self, *, fresh: bool = False, timeout_s: float = START_S) -> ProducerIdentity:
        """`fresh` after an error: librdkafka may have gone on to another epoch."""
        if fresh:
            self.producer.poll(0)  # what was told before is not fresh
            self._statistics.identity = None
        deadline = time.monotonic() + timeout_s
        while self._statistics.identity is None:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{self.transactional_id}: librdkafka did not tell its producer id in {timeout_s:g} s"
                )
            self.producer.poll(POLL_S)
        return self._statistics.identity


def retrying(call: Any, timeout_s: float) -> Any:
    """Again, as long as librdkafka says that it may help; the last error when the time is over."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return call()
        except KafkaException as trouble:
            if not trouble.args[0].retriable() or time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)
