"""A transactional producer that tells how old its transaction was when it was fenced (`checkers/timeouts.py`)."""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from fencepost.cluster.base.errors import ErrorCode

from ..checkers.history import Anomaly
from ..checkers.timeouts import Timeouts
from .cluster_client import ClusterClient
from .txn_answers import Partition
from .txn_client import TransactionalProducer
from .txn_keys import Written

NO_ANSWER = "init_producer_id: unknown"  # as producers count it


class Timed:
    """Makes them, and knows them all."""

    def __init__(self, report: Callable[[list[Anomaly]], None]) -> None:
        self.timeouts = Timeouts()
        self.report = report
        self.numbers = count()

    def producer(
        self, client: ClusterClient, transactional_id: str, **named: Any
    ) -> TransactionalProducer:
        return TimedProducer(self, client, transactional_id, **named)


class TimedProducer(TransactionalProducer):
    def __init__(self, timed: Timed, client: ClusterClient, name: str, **named: Any) -> None:
        super().__init__(client, name, **named)
        self._timed = timed
        self._number = next(timed.numbers)
        self._opened_s = 0.0

    async def _init(self, producer_id: int, producer_epoch: int) -> None:
        timeouts, before = self._timed.timeouts, self.errors.get(NO_ANSWER, 0)
        timeouts.begins(self.transactional_id, self._number)
        is_sure = False
        try:
            await super()._init(producer_id, producer_epoch)
            is_sure = self.errors.get(NO_ANSWER, 0) == before
        finally:
            if not is_sure:
                timeouts.may_come_late(self.transactional_id)

    async def send(
        self, topic: str, partition: int, payloads: Sequence[bytes | Written]
    ) -> int | None:
        self._maybe_opened()
        return await super().send(topic, partition, payloads)

    async def send_offsets(
        self, group: str, offsets: Mapping[Partition, int], metadata: str, **member: Any
    ) -> None:
        self._maybe_opened()
        await super().send_offsets(group, offsets, metadata, **member)

    def _maybe_opened(self) -> None:
        if not self._open:
            self._opened_s = self._clock.steady()

    def _refused(self, error: ErrorCode) -> None:
        super()._refused(error)
        if self._open and error is not ErrorCode.invalid_txn_state:
            age_s = self._clock.steady() - self._opened_s
            timeouts, timeout_s = self._timed.timeouts, self.timeout_ms / 1000
            self._timed.report(timeouts.fenced(self.transactional_id, age_s, timeout_s))
