"""Transaction groups and half messages where who sends, who is asked and who asks are processes that may be killed.

INVARIANT  what a local transaction came to is a function of its half message's name, which every checker can work out.
PREVENTS   checkers that know nothing of half messages whose shop was killed, so that nobody ever ends them.
PROVED BY  tests/chaos/test_hosted_book.py::test_what_a_half_message_came_to_is_known_to_who_never_heard_of_it

A shop that goes on asks what became of the half messages that it has left to others; those of one that was killed are told of
by whoever ends them (`told`).
"""

import asyncio
import zlib
from typing import Final

from ..checkers.availability import ON_PURPOSE
from ..checkers.history import Anomaly
from ..checkers.told import COMMITTED, ROLLED_BACK
from ..checkers.txn_history import Txn
from .hosted_book import NotedBook
from .txn_added import SHOP_GROUP, Desk, Doors, GroupJob, Shop

LOOK_S: Final = 0.5
SETTLE_S: Final = 20.0  # for what it has left, once it is told to stop


class Wanted(dict[str, str]):
    """As a database that everybody reads: two of three local transactions are done."""

    def __missing__(self, half_id: str) -> str:
        return "rollback" if zlib.crc32(half_id.encode()) % 3 == 0 else "commit"

    def __setitem__(self, half_id: str, outcome: str) -> None:
        """The shop has drawn its own, and nobody but it would know."""


class Open(dict[str, Txn]):
    """Half messages that were sent and have not ended: each is written down with its name, and as a process of its own, since
    a shop has many at a time and no end of one comes before the beginning of another."""

    def __init__(self, book: NotedBook) -> None:
        super().__init__()
        self._book = book

    def __setitem__(self, half_id: str, op: Txn) -> None:
        op.process, op.told = half_id, {half_id: ""}
        self._book.begun(op)
        super().__setitem__(half_id, op)


class NotedDesk(Desk):
    """Of one process."""

    def __init__(self, book: NotedBook, name: str) -> None:
        super().__init__(book)
        self.wanted = Wanted()
        self.open = Open(book)
        self._name = name

    def judge(self, half_id: str, state: str) -> list[Anomaly]:
        """Others answer, too, and who was killed has told nobody what."""
        return []

    def settle(self, half_id: str, state: str, now_s: float) -> None:
        op = self.open.get(half_id)
        if op is None:
            self.book.close(Txn("told", "ok", self._name, told={half_id: state}))
        else:
            op.told = {half_id: state}
        is_first = half_id not in self.ended
        super().settle(half_id, state, now_s)
        if op is not None and is_first and state == ROLLED_BACK:
            op.why = ON_PURPOSE


class HostedShop:
    """A shop, and who asks what became of the half messages that it has left."""

    def __init__(self, shop: Shop, desk: NotedDesk, doors: Doors) -> None:
        self.shop = shop
        self.client = shop.client
        self._desk = desk
        self._doors = doors

    @property
    def acknowledged(self) -> int:
        return self.shop.acknowledged

    @property
    def stopping(self) -> bool:
        return self.shop.stopping

    @stopping.setter
    def stopping(self, is_to_stop: bool) -> None:
        self.shop.stopping = is_to_stop

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            selling = group.create_task(self.shop.run())
            asking = group.create_task(self._ask())
            await asyncio.wait([selling])
            try:
                async with asyncio.timeout(SETTLE_S):
                    while self._desk.open:
                        await self.client.env.clock.sleep(LOOK_S)
            except TimeoutError:
                pass  # they stay unknown
            asking.cancel()

    async def _ask(self) -> None:
        clock = self.client.env.clock
        while True:
            for half_id in list(self._desk.open):
                path = f"/v1/checks/half-message?transactional_id={SHOP_GROUP}::{half_id}"
                status, fields = await self._doors.once("GET", path)
                if status == 200 and fields["state"] in (COMMITTED, ROLLED_BACK):
                    self._desk.settle(half_id, fields["state"], clock.steady())
            await clock.sleep(LOOK_S)


class HostedJob(GroupJob):
    """In the end it is still told what it was told."""

    async def run(self) -> None:
        await super().run()
        await self.verify()
