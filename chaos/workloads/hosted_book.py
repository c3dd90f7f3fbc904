"""What the simulator's clients share, where each lives in a process of its own that may be killed: their notes in a file.

INVARIANT  a transaction is written down with all that it has sent before the last of that is sent (of a long one: most of it), and
           with all of it, what it has polled and where it puts its group before it can be committed. Of a number the last line counts. Numbers and values are
           unique in a run, and rise with the time.
PREVENTS   a record of a killed process that nobody has sent; a position that names nobody's transaction.
PROVED BY  tests/chaos/test_hosted_book.py::test_what_a_killed_process_had_sent_was_written_down_before
"""

import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TextIO

from fencepost.cluster.base.errors import Trouble
from fencepost.cluster.wire.api import ApiKey

from ..checkers.availability import NO_END
from ..checkers.txn_history import Txn, to_line
from .cluster_client import ClusterClient, Damaged
from .group_member import GroupMember
from .txn_answers import Partition
from .txn_book import NOT_ENDED, Book
from .txn_client import TransactionalProducer
from .txn_process import SLOTS_MAX
from .txn_reader import C_END

NEW_SINCE: Final = 2  # of `transaction.version`: KIP-890
STAYS: Final = (30, 120)  # rounds of a member between one leave and the next
# Sends of one transaction from which on it is not written down again with each batch, but when they are twice as many.
LONG: Final = 64


class NotedBook(Book):
    """A book whose lines outlive its process."""

    def __init__(self, notes: TextIO, slot: int) -> None:
        super().__init__()
        self.is_to_sleep = False  # before its next commit
        self._notes = notes
        self._slot = slot
        self._last = 0
        self._noted = 0, 0  # the number of the last that was under way, and its sends then

    def _next(self) -> int:
        now = time.monotonic_ns() // 1000 * SLOTS_MAX + self._slot
        self._last = max(now, self._last + SLOTS_MAX)
        return self._last

    def next_number(self) -> int:
        return self._next()

    def next_value(self) -> int:
        return self._next()

    def begun(self, op: Txn) -> None:
        if op.sends:
            op.sent_s.setdefault(op.sends[-1].key, time.monotonic())
        number, sends = self._noted
        if op.number == number and LONG < len(op.sends) < 2 * sends:
            return
        self.whole(op)

    def whole(self, op: Txn) -> None:
        """Before it can be committed."""
        self._noted = op.number, len(op.sends)
        began_s = op.began_s or time.monotonic()
        self._note(replace(op, type="info", why=NO_END, began_s=began_s, ended_s=0.0))

    def dawdles(self, op: Txn, seconds: float) -> None:
        """Written down before it does: it may be killed meanwhile."""
        super().dawdles(op, seconds)
        self.whole(op)

    def close(self, op: Txn) -> None:
        now_s = time.monotonic()
        op.ended_s = op.ended_s or now_s
        op.began_s = op.began_s or now_s
        if op.why == NOT_ENDED:
            op.why = NO_END
        self._note(op)

    def _note(self, op: Txn) -> None:
        self._notes.write(f"{to_line(op)}\n")
        self._notes.flush()

    def maybe_sleep(self, op: Txn | None) -> None:
        """Its records are at the brokers and its commit is not: the whole process stands still until SIGCONT."""
        if self.is_to_sleep and (op is None or op.sends):
            self.is_to_sleep = False
            os.kill(os.getpid(), signal.SIGSTOP)


class NotedClient(ClusterClient):
    """Says where it was served damage; of each place once."""

    def __init__(self, *arguments: Any, book: NotedBook, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._book = book
        self._damaged_at: set[tuple[str, int]] = set()

    def served_damage(self, key: str, offset: int, damage: Damaged) -> None:
        super().served_damage(key, offset, damage)
        if (key, offset) not in self._damaged_at:
            self._damaged_at.add((key, offset))
            op = Txn("damaged", "info", self.name, why=str(damage))
            op.positions = {key: offset}
            self._book.close(op)


class NotedProducer(TransactionalProducer):
    """Writes a transaction down when it is as it will be, and before it ends. Speaks the new protocol where the cluster has it, as
    Java's and librdkafka's do: one that is being upgraded has it in the end."""

    def __init__(self, *arguments: Any, book: NotedBook, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._book = book
        self._wants_new = self.new_protocol

    async def init(self) -> None:
        self.new_protocol = self._wants_new and await self._has_new()
        self.by_id = self.by_id and self.new_protocol
        await super().init()

    async def _has_new(self) -> bool:
        try:
            reply = await self.client.any().request(
                ApiKey.api_versions, client_software_name="load", client_software_version="1"
            )
        except Trouble:
            return False
        levels = {each.name: each.max_version_level for each in reply.finalized_features}
        return bool(levels.get("transaction.version", 0) >= NEW_SINCE)

    async def transact(
        self, op: Txn, work: Callable[[], Awaitable[None]], *, commit: bool = True
    ) -> None:
        async def noted() -> None:
            await work()
            self._book.whole(op)
            self._book.maybe_sleep(op)

        await super().transact(op, noted, commit=commit)

    async def send_offsets(
        self, group: str, offsets: Mapping[Partition, int], metadata: str, **more: Any
    ) -> None:
        """So that librdkafka's users can read it, who ask in the end."""
        await super().send_offsets(group, offsets, metadata + C_END, **more)


class RestlessMember(GroupMember):
    """Leaves now and then, and comes back: its group is rebalanced though nobody dies."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._rounds = self._stays()

    def _stays(self) -> int:
        return self.client.env.rng.randint(*STAYS)

    async def rejoined(self) -> bool:
        self._rounds -= 1
        if self._rounds < 0:
            await self.leave()  # and comes back as another one
            self._rounds = self._stays()
        return await super().rejoined()
