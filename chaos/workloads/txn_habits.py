"""How the clients of transactional workloads behave: they pause, change their mind, crash, and begin again."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from ..checkers.observations import Ended, Refused
from ..checkers.txn_history import Txn
from .cluster_client import ClusterClient
from .txn_book import Book
from .txn_client import TransactionalProducer

RESTART_S: Final = 1.0
CRASH_S: Final = 0.6  # about as long as a transaction takes while things fail


class Crashed(Exception):
    """The client ends in the middle of what it did; nobody says goodbye."""


@dataclass(frozen=True, slots=True)
class Habits:
    """How a client of these workloads behaves."""

    new_protocol: bool
    timeout_ms: int = 10_000
    pause_s: float = 0.05
    abort_odds: float = 0.1
    crash_odds: float = 0.02
    # A pause before the commit, of up to twice the transaction's timeout.
    dawdle_odds: float = 0.02
    doomed: tuple[str, ...] = ()  # topics that somebody deletes
    on_refusal: Callable[[Refused], None] = lambda _: None
    make: Callable[..., TransactionalProducer] = TransactionalProducer
    on_end: Callable[[Ended], None] = lambda _: None

    def producer(self, client: ClusterClient, transactional_id: str) -> TransactionalProducer:
        return self.make(
            client,
            transactional_id,
            new_protocol=self.new_protocol,
            timeout_ms=self.timeout_ms,
            doomed=self.doomed,
            on_refusal=self.on_refusal,
            on_end=self.on_end,
        )

    async def maybe_dawdle(self, client: ClusterClient, book: Book, op: Txn) -> None:
        rng = client.env.rng
        if rng.random() < self.dawdle_odds:
            seconds = rng.random() * 2 * self.timeout_ms / 1000
            book.dawdles(op, seconds)
            await client.env.clock.sleep(seconds)

    def maybe_crash(self, client: ClusterClient) -> None:
        if client.env.rng.random() < self.crash_odds:
            raise Crashed(client.name)

    async def transact(
        self, producer: TransactionalProducer, op: Txn, work: Callable[[], Awaitable[None]]
    ) -> None:
        """Aborted on purpose now and then; or the client crashes at any moment of it, also with its commit on the way."""
        rng = producer.client.env.rng
        commit = rng.random() >= self.abort_odds
        if rng.random() >= self.crash_odds:
            await producer.transact(op, work, commit=commit)
            return
        try:
            async with asyncio.timeout(rng.random() ** 2 * CRASH_S):
                await producer.transact(op, work, commit=commit)
        except TimeoutError:
            raise Crashed(producer.client.name) from None

    async def maybe_touch_doomed(self, producer: TransactionalProducer) -> None:
        """A record to a topic that may be gone before the transaction ends. It is in no history: it may vanish."""
        rng = producer.client.env.rng
        if self.doomed and rng.random() < 0.2:
            await producer.send(rng.choice(self.doomed), 0, [b"0/0/0"])
