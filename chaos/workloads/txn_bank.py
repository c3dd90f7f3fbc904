"""Bank transfers: each takes an amount from one account and gives it to another, in one transaction.

An account is a partition. A teller's twin has the same transactional id and does not know of the other: each that starts
fences the one before. Tellers pause between send and commit, change their mind, and crash.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ..checkers.observations import Ended, Refused
from ..checkers.txn_history import Txn
from .cluster_client import ClusterClient
from .txn_answers import Abortable, Fenced, Partition
from .txn_book import Book
from .txn_client import TransactionalProducer
from .txn_keys import key_of
from .txn_reader import CommittedReader

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

    async def maybe_dawdle(self, client: ClusterClient) -> None:
        rng = client.env.rng
        if rng.random() < self.dawdle_odds:
            await client.env.clock.sleep(rng.random() * 2 * self.timeout_ms / 1000)

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


class Teller:
    """One transactional id, one transfer after another."""

    def __init__(
        self,
        client: ClusterClient,
        book: Book,
        accounts: Sequence[Partition],
        transactional_id: str,
        habits: Habits,
    ) -> None:
        self.client = client
        self.book = book
        self.accounts = list(accounts)
        self.transactional_id = transactional_id
        self.habits = habits
        self.stopping = False
        self.acknowledged = 0
        self.producers: list[TransactionalProducer] = []

    async def run(self) -> None:
        rng, clock = self.client.env.rng, self.client.env.clock
        while not self.stopping:
            producer = self.habits.producer(self.client, self.transactional_id)
            self.producers.append(producer)
            try:
                await producer.init()
                while producer.alive and not self.stopping:
                    await self._transfer(producer)
                    await clock.sleep(rng.random() * 2 * self.habits.pause_s)
            except (Abortable, Fenced, Crashed):
                pass
            await clock.sleep(RESTART_S * rng.random())

    async def _transfer(self, producer: TransactionalProducer) -> None:
        op = self.book.open(self.client.name)

        async def work() -> None:
            await self._move_money(producer, op)
            await self.habits.maybe_dawdle(self.client)
            self.habits.maybe_crash(self.client)

        try:
            await self.habits.transact(producer, op, work)
        finally:
            self.book.close(op)
        self.acknowledged += op.type == "ok"

    async def _move_money(self, producer: TransactionalProducer, op: Txn) -> None:
        rng = self.client.env.rng
        amount = rng.randint(1, 100)
        # Often two partitions, sometimes twice the same one.
        source, target = rng.choice(self.accounts), rng.choice(self.accounts)
        await self.book.send(producer, op, source, (-amount,))
        await self.habits.maybe_touch_doomed(producer)
        self.habits.maybe_crash(self.client)
        cents = rng.randint(0, amount)
        parts = (amount - cents, cents) if rng.random() < 0.3 else (amount,)
        await self.book.send(producer, op, target, parts)


class Auditor:
    """Reads all accounts, a piece of one and a piece of another, and adds up."""

    def __init__(
        self,
        client: ClusterClient,
        book: Book,
        accounts: Sequence[Partition],
        reader: CommittedReader,
    ) -> None:
        self.client = client
        self.book = book
        self.accounts = list(accounts)
        self.reader = reader
        self.stopping = False

    async def run(self) -> None:
        rng, clock = self.client.env.rng, self.client.env.clock
        while not self.stopping:
            op = Txn("snapshot", "ok", self.client.name, began_s=clock.steady())
            for place in rng.sample(self.accounts, rng.randint(1, len(self.accounts))):
                op.polls += await self.reader.poll(*place) or []
            op.positions = {key_of(*at): where for at, where in self.reader.positions.items()}
            op.ended_s = clock.steady()
            self.book.close(op)
            await clock.sleep(0.1 * rng.random())
