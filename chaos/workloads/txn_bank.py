"""Bank transfers: each takes an amount from one account and gives it to another, in one transaction.

An account is a partition. A teller's twin has the same transactional id and does not know of the other: each that starts
fences the one before. Tellers pause between send and commit, change their mind, and crash.
"""

from collections.abc import Sequence

from ..checkers.txn_history import Txn
from .cluster_client import ClusterClient
from .txn_answers import Partition
from .txn_book import Book
from .txn_client import TransactionalProducer
from .txn_habits import Habits
from .txn_keys import key_of
from .txn_reader import CommittedReader
from .txn_transactor import Transactor


class Teller(Transactor):
    """One transfer after another."""

    def __init__(
        self,
        client: ClusterClient,
        book: Book,
        accounts: Sequence[Partition],
        transactional_id: str,
        habits: Habits,
    ) -> None:
        super().__init__(client, book, transactional_id, habits)
        self.accounts = list(accounts)

    async def work(self, producer: TransactionalProducer, op: Txn) -> None:
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
