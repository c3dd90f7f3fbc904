"""One partition in memory, for coordinators: what is appended is there at once, and committed when a test says so."""

import asyncio
from collections.abc import Callable

from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.base.ids import Offset
from fencepost.cluster.wire.batch import parse_header, splice
from fencepost.txn.runtime.decision import Producer

E = ErrorCode


class FakeLog:
    def __init__(self, *, commits_at_once: bool = True) -> None:
        self.batches: list[bytes] = []
        self.log_start_offset = Offset(0)
        self.log_end_offset = Offset(0)
        self.high_watermark = Offset(0)
        self.commits_at_once = commits_at_once
        self.refuse: ErrorCode = E.none  # what the next append is answered
        self.is_leader = True
        self.damages: list[str] = []
        self.fenced: tuple[Producer, ...] = ()  # whose transactions nothing is written in
        self._waiting: list[tuple[Offset, asyncio.Future[ErrorCode]]] = []
        self._told: list[tuple[Offset, Callable[[ErrorCode], None]]] = []

    def damaged(self, why: str) -> None:
        self.damages.append(why)
        self.is_leader = False

    def may_append(self, producer: Producer | None = None) -> ErrorCode:
        if not self.is_leader:
            return E.not_leader_or_follower
        if producer is not None and producer in self.fenced:
            return E.invalid_producer_epoch
        return E.not_enough_replicas if self.refuse is E.not_enough_replicas else E.none

    def append(
        self, batch: bytearray, now_ms: int, *, transaction_version: int = 0
    ) -> Offset | ErrorCode:
        if self.refuse is not E.none:
            return self.refuse
        if not self.is_leader:
            return E.not_leader_or_follower
        first = self.log_end_offset
        splice(batch, 0, first, 0)
        self.batches.append(bytes(batch))
        self.log_end_offset = Offset(parse_header(batch).next_offset)
        if self.commits_at_once:
            self.commit()
        return first

    async def committed(self, horizon: Offset) -> ErrorCode:
        if not self.is_leader:
            return E.not_leader_or_follower
        if horizon <= self.high_watermark:
            return E.none
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self._waiting.append((horizon, future))
        return await future

    def when_committed(
        self, horizon: Offset, tell: Callable[[ErrorCode], None]
    ) -> ErrorCode | None:
        if not self.is_leader:
            return E.not_leader_or_follower
        if horizon <= self.high_watermark:
            return E.none
        self._told.append((horizon, tell))
        return None

    async def read(self, offset: Offset, max_bytes: int) -> bytes | ErrorCode:
        if not self.is_leader:
            return E.not_leader_or_follower
        found = b""
        for batch in self.batches:
            header = parse_header(batch)
            if header.next_offset <= offset or header.next_offset > self.high_watermark:
                continue
            if found and len(found) + len(batch) > max_bytes:
                break
            found += batch
        return found

    # -- what a test does ------------------------------------------------------------------------

    def commit(self, up_to: int | None = None) -> None:
        """Move the high watermark to the end, or to there."""
        self.high_watermark = Offset(self.log_end_offset if up_to is None else up_to)
        self._answer()

    def resign(self) -> None:
        """Another node leads from now on; what was not committed is cut off."""
        self.is_leader = False
        for _, future in self._waiting:
            if not future.done():
                future.set_result(E.not_leader_or_follower)
        self._waiting.clear()
        told, self._told = self._told, []
        for _, tell in told:
            tell(E.not_leader_or_follower)
        self.batches = [
            b for b in self.batches if parse_header(b).next_offset <= self.high_watermark
        ]
        self.log_end_offset = self.high_watermark

    def _answer(self) -> None:
        due = [f for horizon, f in self._waiting if horizon <= self.high_watermark]
        self._waiting = [w for w in self._waiting if w[0] > self.high_watermark]
        for future in due:
            if not future.done():
                future.set_result(E.none)
        told = [tell for horizon, tell in self._told if horizon <= self.high_watermark]
        self._told = [each for each in self._told if each[0] > self.high_watermark]
        for tell in told:
            tell(E.none)
