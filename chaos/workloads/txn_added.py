"""What no Kafka has, beside everything else: jobs whose writers commit as a group, and shops that send half messages.

A job's round is one transaction of the history, though several producers write it: it is there whole or not at all, as
any other. A half message is one too; what it comes to is known when its shop or a checker was told. Drivers and checkers
die with requests on their way, ask what was decided, and fence what may still come.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from fencepost.cluster.base.errors import Trouble
from fencepost.cluster.base.ports import Env

from ..checkers.availability import ON_PURPOSE
from ..checkers.history import Anomaly, Kind
from ..checkers.told import COMMITTED, ROLLED_BACK, Answered
from ..checkers.txn_history import Txn
from .cluster_client import ClusterClient
from .txn_answers import Abortable, BrokenPromise, Fenced, Partition
from .txn_book import Book
from .txn_client import TransactionalProducer
from .txn_habits import RESTART_S, Habits

ADMIN_PORT: Final = 9644
# Whatever is asked here may be asked twice, so checks may come and go quickly; none is ever parked.
CHECKS: Final = (
    "transaction.check.interval.ms=200",
    "transaction.check.interval.max.ms=1000",
    "transaction.check.max=10000",
    "transaction.check.delivery.timeout.ms=300",
)
SETTINGS: Final = (f"admin.listener=0.0.0.0:{ADMIN_PORT}", *CHECKS)
SHOP_GROUP: Final = "shop"
WRITERS: Final = 2
ASK_S: Final = 15.0
SLOW_S: Final = 1.0  # a door that let somebody wait so long in vain, its machine may be gone,
SHUN_S: Final = 60.0  # is left alone so long
PAUSE_S: Final = 0.05
DIE_ODDS: Final = 0.3
LATE_S: Final = 0.02  # a driver dies so soon after it has sent its end
UNKNOWN_ODDS: Final = 0.2
# Somebody has fenced it, or its time was over before: its transaction is aborted, or will be. Or nobody has raised the level of
# `transaction.version` yet (an upgrade). Nothing else ends one that was well.
REFUSED: Final = frozenset(
    {
        "PRODUCER_FENCED",
        "INVALID_TXN_STATE",
        "INVALID_PRODUCER_ID_MAPPING",
        "UNSUPPORTED_VERSION",
    }
)
AskHttp = Callable[..., Awaitable[tuple[int, Any]]]  # (env, host, port, method, path, body)


class Doors:
    """The nodes' admin doors."""

    def __init__(self, env: Env, hosts: Sequence[str], ask: AskHttp) -> None:
        self._env = env
        self._hosts = list(hosts)
        self._ask = ask
        self._shunned: dict[str, float] = {}  # host -> until when

    async def once(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Any node's answer; 503 for none."""
        began_s = self._env.clock.steady()
        open_ones = [each for each in self._hosts if self._shunned.get(each, 0.0) <= began_s]
        host = self._env.rng.choice(open_ones or self._hosts)
        try:
            async with asyncio.timeout(ASK_S):
                return await self._ask(self._env, host, ADMIN_PORT, method, path, body)
        except (Trouble, TimeoutError):
            now_s = self._env.clock.steady()
            if now_s - began_s > SLOW_S:
                self._shunned[host] = now_s + SHUN_S
            return 503, {}

    async def until(self, method: str, path: str, body: Any = None) -> Any:
        """(status, fields) of the first answer that is one; it is asked as often as it takes."""
        while True:
            status, fields = await self.once(method, path, body)
            if status != 503:
                return status, fields
            await self._env.clock.sleep(PAUSE_S)


def failed(what: str, status: int, fields: Any) -> str:
    """Why it did, of one that may."""
    if fields.get("error") not in REFUSED:
        raise BrokenPromise(f"{what}: {status} {fields}")
    return f"{what}: {fields}"


class GroupJob:
    """A driver and its writers: number after number, each decided for all writers at once."""

    def __init__(
        self,
        client: ClusterClient,
        book: Book,
        places: Sequence[Partition],
        group: str,
        habits: Habits,
        doors: Doors,
    ) -> None:
        self.client = client
        self.book = book
        self.places = list(places)
        self.group = group
        self.habits = habits
        self.doors = doors
        self.stopping = False
        self.acknowledged = 0
        self.told: dict[int, Any] = {}  # number -> outcome and members, as they were answered
        self.producers: list[TransactionalProducer] = []

    @property
    def _path(self) -> str:
        return f"/v1/transaction-groups/{self.group}"

    async def run(self) -> None:
        clock, rng = self.client.env.clock, self.client.env.rng
        number = 0
        while not self.stopping:
            op = self.book.open(self.client.name)
            try:
                number += await self._round(number, op)
            except (Abortable, Fenced) as ended:
                op.why = op.why if op.type == "info" else str(ended)
                await clock.sleep(RESTART_S * rng.random())
            finally:
                op.ended_s = clock.steady()
                self.book.close(op)
            self.acknowledged += op.type == "ok"
            await clock.sleep(rng.random() * 2 * self.habits.pause_s)

    async def _round(self, number: int, op: Txn) -> bool:
        """Whether the number is decided, and with it `op`."""
        rng = self.client.env.rng
        op.began_s = self.client.env.clock.steady()
        writers = await self._started()
        for producer in writers.values():
            places = [rng.choice(self.places) for _ in range(rng.randint(1, 2))]
            for place in places:
                await self.book.send(producer, op, place, [0] * rng.randint(1, 2))
        await self.habits.maybe_dawdle(self.client, self.book, op)
        commit = rng.random() >= self.habits.abort_odds
        outcome = "commit" if commit else "abort"
        members = {name: _identity(producer) for name, producer in writers.items()}
        end = {"number": number, "outcome": outcome, "members": members}
        if commit:
            op.type, op.why = "info", f"number {number} of {self.group} without an answer"
        if rng.random() < DIE_ODDS:
            fields = await self._die_and_ask(number, end)
            if fields is None:
                why = f"{ON_PURPOSE}: number {number} of {self.group} was never decided"
                op.type, op.why = "fail", why
                return False
        else:
            status, fields = await self.doors.until("POST", f"{self._path}/end", end)
            if status != 200:
                what = failed(f"number {number} of {self.group}", status, fields)
                op.type, op.why = "fail", what
                return False
        if (fields["outcome"], fields["members"]) != (outcome, members):
            raise BrokenPromise(f"{self.group} {number} was to be {end} and is {fields}")
        self.told[number] = (outcome, members)
        op.type, op.why = ("ok", "") if commit else ("fail", ON_PURPOSE)
        return True

    async def _started(self) -> dict[str, TransactionalProducer]:
        writers = {}
        for name in [f"w{place}" for place in range(WRITERS)]:
            producer = self.habits.producer(self.client, f"{self.group}::{name}")
            self.producers.append(producer)
            await producer.init()
            writers[name] = producer
        return writers

    async def _die_and_ask(self, number: int, end: dict[str, Any]) -> Any:
        """A driver that dies with its end on the way; the next one asks. None when nothing is or will be decided."""
        try:
            async with asyncio.timeout(LATE_S * self.client.env.rng.random()):
                await self.doors.once("POST", f"{self._path}/end", end)
        except TimeoutError:
            pass
        fields = await self._decision(number)
        if fields["outcome"] != "undecided":
            return fields
        while True:
            try:
                await self._started()  # fences the end that may still be under way
                break
            except (Abortable, Fenced):
                continue
        fields = await self._decision(number)
        return None if fields["outcome"] == "undecided" else fields

    async def _decision(self, number: int) -> Any:
        status, fields = await self.doors.until("GET", f"{self._path}/decisions/{number}")
        if status != 200:
            raise BrokenPromise(f"the decision of {self.group} {number}: {status} {fields}")
        return fields

    async def verify(self) -> None:
        """In the end everybody is still told the same."""
        for number, told in self.told.items():
            fields = await self._decision(number)
            if (fields["outcome"], fields["members"]) != told:
                raise BrokenPromise(f"{self.group} {number} was {told} and is {fields}")


def _identity(producer: TransactionalProducer) -> dict[str, int]:
    return {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}


class Desk:
    """What shops and checkers know together: what local transactions came to, and what half messages did."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.wanted: dict[str, str] = {}
        self.open: dict[str, Txn] = {}
        self.ended: dict[str, str] = {}
        self._answered = Answered()

    def answers(self, half_id: str, verdict: str) -> None:
        """Somebody is about to say so."""
        self._answered.sent(half_id, verdict)

    def judge(self, half_id: str, state: str) -> list[Anomaly]:
        return self._answered.see(half_id, state)

    def settle(self, half_id: str, state: str, now_s: float) -> None:
        known = self.ended.setdefault(half_id, state)
        if known != state:
            raise BrokenPromise(f"{half_id} was {known} and is {state}")
        unasked = self.judge(half_id, state)
        assert not unasked, str(unasked[0])
        op = self.open.pop(half_id, None)
        if op is not None:
            is_ok = state == COMMITTED
            kind: Kind = "ok" if is_ok else "fail"
            why = f"half message {state}" if is_ok else f"{ON_PURPOSE}: half message {state}"
            op.type, op.why, op.ended_s = kind, why, now_s
            self.book.close(op)


class Shop:
    """Sends half messages. Some it ends itself, perhaps late and not as its checkers would; others it leaves."""

    def __init__(
        self,
        client: ClusterClient,
        desk: Desk,
        places: Sequence[Partition],
        habits: Habits,
        doors: Doors,
    ) -> None:
        self.client = client
        self.desk = desk
        self.places = list(places)
        self.habits = habits
        self.doors = doors
        self.stopping = False
        self.acknowledged = 0
        self.producers: list[TransactionalProducer] = []

    async def run(self) -> None:
        clock, rng = self.client.env.clock, self.client.env.rng
        serial = 0
        while not self.stopping:
            serial += 1
            await self._sell(f"{self.client.name}-{serial}")
            await clock.sleep(rng.random() * 2 * self.habits.pause_s)

    async def _sell(self, half_id: str) -> None:
        clock, rng = self.client.env.clock, self.client.env.rng
        producer = self.habits.producer(self.client, f"{SHOP_GROUP}::{half_id}")
        self.producers.append(producer)
        op = self.desk.book.open(self.client.name)
        op.began_s = clock.steady()
        try:
            await producer.init()
            for _ in range(rng.randint(1, 2)):
                place = rng.choice(self.places)
                await self.desk.book.send(producer, op, place, [0] * rng.randint(1, 2))
        except (Abortable, Fenced) as ended:
            self._failed(op, str(ended))
            return
        op.type, op.why = "info", "a half message"
        self.desk.wanted[half_id] = rng.choice(("commit", "commit", "rollback"))
        self.desk.open[half_id] = op
        named = {"transactional_id": producer.transactional_id, "half_id": half_id}
        body = named | _identity(producer)
        status, fields = await self.doors.until("POST", "/v1/checks/prepare", body)
        if status != 200:
            # Nobody is ever asked about it.
            del self.desk.open[half_id]
            self._failed(op, failed(f"preparing {half_id}", status, fields))
            return
        if rng.random() < 0.4:
            return  # the process died; somebody else is asked
        await clock.sleep(rng.choice((0.0, 0.0, 0.3)))
        verdict = rng.choice((self.desk.wanted[half_id], "commit", "rollback"))
        answer = {**named, "verdict": verdict, "member": self.client.name}
        self.desk.answers(half_id, verdict)
        status, fields = await self.doors.until("POST", "/v1/checks/answer", answer)
        if status != 200:
            raise BrokenPromise(f"the end of {half_id}: {status} {fields}")
        self.desk.settle(half_id, fields["state"], clock.steady())
        self.acknowledged += fields["state"] == COMMITTED

    def _failed(self, op: Txn, why: str) -> None:
        op.type, op.why, op.ended_s = "fail", why, self.client.env.clock.steady()
        self.desk.book.close(op)


class HalfChecker:
    """A live member of the shops' group. It dies every now and then with checks in its hands, or does not know."""

    def __init__(self, client: ClusterClient, desk: Desk, doors: Doors) -> None:
        self.client = client
        self.desk = desk
        self.doors = doors
        self.stopping = False

    async def run(self) -> None:
        clock, rng = self.client.env.clock, self.client.env.rng
        poll = {"group": SHOP_GROUP, "member": self.client.name, "wait_ms_max": 1_000}
        while not self.stopping:
            status, fields = await self.doors.until("POST", "/v1/checks/poll", poll)
            if status != 200:
                raise BrokenPromise(f"a poll for checks: {status} {fields}")
            if rng.random() < DIE_ODDS:
                continue
            for each in fields["checks"]:
                verdict = self.desk.wanted[each["half_id"]]
                if rng.random() < UNKNOWN_ODDS:
                    verdict = "unknown"
                body = {**each, "verdict": verdict, "member": self.client.name}
                self.desk.answers(each["half_id"], verdict)
                status, said = await self.doors.until("POST", "/v1/checks/answer", body)
                if status != 200:
                    raise BrokenPromise(f"an answer for {each}: {status} {said}")
                if said["state"] in (COMMITTED, ROLLED_BACK):
                    self.desk.settle(each["half_id"], said["state"], clock.steady())
