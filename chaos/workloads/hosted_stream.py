"""Idempotent producers and readers of `cluster_stream.py` in real processes, whose notes are those of all other clients there.

A batch is one `send` with several values, written down before it is sent: each is there once, in its place, or nobody was told
that it is. Each life of a process is other producers, with ids of their own.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from ..checkers.txn_history import Polled, Sent, Txn
from .cluster_client import ClusterClient
from .cluster_stream import Batch, StreamProducer, StreamReader, ToldToEnd
from .hosted_book import NotedBook
from .txn_answers import BrokenPromise, Partition
from .txn_keys import payload

TELL_S: Final = 1.0  # that nothing was shown has to be known, too
PAUSE_S: Final = 0.1


class HostedProducer(StreamProducer):
    """Values that are unique in the run stand for those that it counts."""

    # Kafka calls it out of order: here it is compared, and librdkafka itself overtakes in other workloads.
    overtaken_odds = 0.0

    def __init__(
        self, client: ClusterClient, book: NotedBook, place: Partition, *, pause_s: float
    ) -> None:
        super().__init__(client, *place, [], pause_s=pause_s)
        self._book = book
        self._sent: dict[int, Txn] = {}  # by base sequence
        self._payloads: dict[int, bytes] = {}

    async def run(self) -> None:
        try:
            await super().run()
        except ToldToEnd as told:
            raise BrokenPromise(str(told)) from told

    def payload_of(self, value: int) -> bytes:
        return self._payloads[value]

    def _new_batch(self) -> Batch:
        batch = super()._new_batch()
        op = Txn("send", "info", self.name, self._book.next_number())
        op.began_s = self.env.clock.steady()
        for count in batch.values:
            value = self._book.next_value()
            op.sends.append(Sent(self.key, value))
            self._payloads[count] = payload(op.number, value, value)  # as the reader takes it apart
        self._book.begun(op)
        self._sent[batch.base_sequence] = op
        return batch

    def _acknowledge(self, batch: Batch, base_offset: int | None) -> None:
        super()._acknowledge(batch, base_offset)
        self.history.clear()
        op = self._sent.pop(batch.base_sequence)
        for place, count in enumerate(batch.values):
            del self._payloads[count]
            if base_offset is not None:
                op.sends[place] = op.sends[place]._replace(offset=base_offset + place)
        op.type, op.ended_s = "ok", self.env.clock.steady()
        self._book.close(op)


class HostedReader(StreamReader):
    """All of one partition, from its beginning."""

    def __init__(self, client: ClusterClient, book: NotedBook, place: Partition) -> None:
        super().__init__(client, *place, [])
        self._book = book

    async def run(self) -> None:
        clock, rng = self.client.env.clock, self.client.env.rng
        begins = Txn("assign", "ok", self.name)
        begins.positions, begins.begins = {self.key: 0}, {self.key: 0}
        self._book.close(begins)
        told_s = 0.0
        while not self.stopping:
            op = Txn("read", "ok", self.name, began_s=clock.steady())
            try:
                await self.step()
            except ToldToEnd as told:
                raise BrokenPromise(str(told)) from told
            op.polls, op.ended_s = self._polled(), clock.steady()
            if op.polls or op.ended_s - told_s >= TELL_S:
                self._book.close(op)
                told_s = op.ended_s
            if not op.polls:
                await clock.sleep(PAUSE_S * rng.random())

    def _polled(self) -> list[Polled]:
        found = []
        for each in self.history:
            assert each.offset is not None, "it was read there"
            number = int(str(each.writer).partition("/")[0])
            found.append(Polled(self.key, each.offset, each.value, number, each.value))
        self.history.clear()
        return found


class Several:
    """Clients that begin and end together."""

    def __init__(self, some: Sequence[Any]) -> None:
        self.some = list(some)
        self._stopping = False

    @property
    def acknowledged(self) -> int:
        return sum(each.acknowledged for each in self.some)

    @property
    def stopping(self) -> bool:
        return self._stopping

    @stopping.setter
    def stopping(self, is_to_stop: bool) -> None:
        self._stopping = is_to_stop
        for each in self.some:
            each.stopping = is_to_stop

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for each in self.some:
                group.create_task(each.run())
