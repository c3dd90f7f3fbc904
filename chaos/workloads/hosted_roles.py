"""The simulator's clients as they are hosted in a real process: a row a role.

What a row makes has `client`, `stopping` (set, it ends behind what it is at), `acknowledged`, and `run()`.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from fencepost.cluster.base.ports import Env

from ..harness.asking import addresses_of
from .admin_doors import ask_http
from .churn_clients import ChurnWriter, LifeFollower, LifeSender
from .cluster_client import ClusterClient
from .hosted_added import HostedJob, HostedShop, NotedDesk
from .hosted_book import NotedBook, NotedClient, NotedProducer, RestlessMember
from .hosted_cast import (
    APPENDER,
    ASSIGN,
    AUDITOR,
    BATCH_BYTES_MAX,
    CASTS,
    CHECKER,
    CHURN,
    CHURNER,
    FEEDER,
    FOLLOWER,
    JOB,
    KEEPS_IDS,
    LARGE,
    LIVES,
    MEMBER,
    READER,
    REREADER,
    SENDER,
    SHOP,
    SMALL,
    STREAM,
    SUBSCRIBE,
    SUBSCRIBER,
    TABLE,
    TELLER,
    TUNER,
    WORKER,
    Cast,
)
from .hosted_scenes import (
    COMING_AND_GOING,
    HostedChurner,
    HostedTuner,
    followed,
    idle_and_used,
    knobs_for,
)
from .hosted_stream import HostedProducer, HostedReader, Several
from .txn_added import Doors, HalfChecker, Shop
from .txn_answers import Partition
from .txn_append import SHARED_GROUP, AppendProcess
from .txn_bank import Auditor, Teller
from .txn_client import TransactionalProducer
from .txn_follower import Follower
from .txn_habits import Habits
from .txn_long import LONG, SHORT, LongWriter
from .txn_pipeline import GROUP, GROUP_BY_IDS, Feeder, Worker
from .txn_reader import CommittedReader
from .txn_table import TableWriter

CRASH_ODDS: Final = 0.01  # the whole process is killed, too
DAWDLE_ODDS: Final = 0.01
ABORTS: Final = (0.0, 0.1, 0.2)
ENDS: Final = ("/end", "/prepare")  # of paths: what was sent before is at the brokers
SESSION_MS: Final = 6_000  # Kafka's least


class Actor(Protocol):
    """`acknowledged` and `client` are in each, too."""

    stopping: bool

    async def run(self) -> None: ...


@dataclass(slots=True)
class Host:
    """One place of a run, in one of its lives; `place` is another's where this is a twin."""

    env: Env
    chosen: argparse.Namespace
    book: NotedBook
    place: int
    taken: str = ""  # a transactional id that another has

    @property
    def cast(self) -> Cast:
        return CASTS[self.chosen.workload]

    @property
    def via(self) -> list[str]:
        return list(self.chosen.via.split(","))

    def client(self, role: str, more: str = "") -> ClusterClient:
        name = f"{role}-{self.chosen.slot}.{self.chosen.life}{more}"
        bootstrap = addresses_of(self.chosen.bootstrap)
        return NotedClient(self.env, bootstrap, name=name, book=self.book)

    def habits(self, role: str) -> Habits:
        kept = self.taken or (f"{role}-{self.place}" if role in KEEPS_IDS else "")

        def make(client: ClusterClient, name: str, **more: object) -> TransactionalProducer:
            return NotedProducer(client, kept or name, book=self.book, **more)

        rng = self.env.rng
        return Habits(
            new_protocol=rng.random() < 0.6,
            timeout_ms=self.chosen.timeout_ms,
            pause_s=0.5 / self.chosen.rate,  # clients sleep up to four of it
            abort_odds=rng.choice(ABORTS),
            crash_odds=CRASH_ODDS,
            dawdle_odds=DAWDLE_ODDS,
            make=make,
        )

    def doors(self) -> Doors:
        async def ask(*words: Any, **more: Any) -> tuple[int, Any]:
            if str(words[-2]).endswith(ENDS):
                self.book.maybe_sleep(None)
            return await ask_http(*words, **more)

        return Doors(self.env, self.chosen.admin.split(","), ask)

    def topic(self, name: str) -> list[Partition]:
        return [(name, partition) for partition in range(self.chosen.partitions)]

    def followed(self) -> list[Partition]:
        return followed(self.cast, self.chosen.workload, self.chosen.partitions)

    def inputs(self, way: str) -> list[Partition]:
        """Those that are worked on in this way, where there are two."""
        return self.topic("in")[self.via.index(way) :: len(self.via)]

    def share(self, role: str, places: Sequence[Partition]) -> list[Partition]:
        """Of those who have this role, this place's."""
        peers = self.cast.places(role, self.chosen.clients, self.via)
        return list(places[peers.index(self.place) :: len(peers)])


def _feeder(host: Host) -> Actor:
    return Feeder(host.client(FEEDER), host.book, host.topic("in"), host.habits(FEEDER))


def _follower(host: Host) -> Actor:
    return Follower(host.client(FOLLOWER), host.book, host.followed())


def _rereader(host: Host) -> Actor:
    return Follower(host.client(REREADER), host.book, host.followed(), rereads=True)


def _worker(host: Host) -> Actor:
    mine = host.share(WORKER, host.inputs(ASSIGN))
    return Worker(
        host.client(WORKER),
        host.book,
        mine,
        host.topic("out"),
        WORKER,
        host.habits(WORKER),
        group=GROUP_BY_IDS,
    )


def _member(host: Host) -> Actor:
    client, mine = host.client(MEMBER), host.inputs(SUBSCRIBE)
    member = RestlessMember(client, GROUP, mine, SESSION_MS)
    habits = host.habits(MEMBER)
    return Worker(client, host.book, mine, host.topic("out"), MEMBER, habits, member=member)


def _appender(host: Host) -> Actor:
    client, keys = host.client(APPENDER), host.topic("append")
    return AppendProcess(client, host.book, keys, host.habits(APPENDER), lambda _: None)


def _subscriber(host: Host) -> Actor:
    client, keys = host.client(SUBSCRIBER), host.topic("append")
    member = RestlessMember(client, SHARED_GROUP, keys, SESSION_MS)
    habits = host.habits(SUBSCRIBER)
    return AppendProcess(client, host.book, keys, habits, lambda _: None, member=member)


def _job(host: Host) -> Actor:
    client = host.client(JOB)
    return HostedJob(
        client, host.book, host.topic("added"), client.name, host.habits(JOB), host.doors()
    )


def _shop(host: Host) -> Actor:
    client, doors = host.client(SHOP), host.doors()
    desk = NotedDesk(host.book, client.name)
    shop = Shop(client, desk, host.topic("added"), host.habits(SHOP), doors)
    return HostedShop(shop, desk, doors)


def _checker(host: Host) -> Actor:
    client = host.client(CHECKER)
    return HalfChecker(client, NotedDesk(host.book, client.name), host.doors())


def _producers(host: Host) -> Actor:
    """Of its share and of its neighbour's: two write to each partition."""
    places, clients = host.topic("stream"), host.chosen.clients
    mine = {
        place: None for at in (0, 1) for place in places[(host.place + at) % clients :: clients]
    }
    return Several(
        [
            HostedProducer(
                host.client(STREAM, f".{place[1]}"), host.book, place, pause_s=4 / host.chosen.rate
            )
            for place in mine
        ]
    )


def _readers(host: Host) -> Actor:
    return Several(
        [
            HostedReader(host.client(READER, f".{place[1]}"), host.book, place)
            for place in host.topic("stream")
        ]
    )


def _table(host: Host) -> Actor:
    client = host.client(TABLE)
    return TableWriter(client, host.book, host.followed(), client.name, host.habits(TABLE))


def _large(host: Host) -> Actor:
    """Its time is that of the transaction's parts: nobody dawdles before the end."""
    client, habits = host.client(LARGE), replace(host.habits(LARGE), dawdle_odds=0.0)
    size = replace(LONG, bytes_max=BATCH_BYTES_MAX)
    return LongWriter(client, host.book, host.topic("long"), client.name, habits, size)


def _small(host: Host) -> Actor:
    client = host.client(SMALL)
    return LongWriter(client, host.book, host.topic("long"), client.name, host.habits(SMALL), SHORT)


def _churner(host: Host) -> Actor:
    pause_s = 5 / host.chosen.rate
    return HostedChurner(host.client(CHURNER), host.book, COMING_AND_GOING, pause_s=pause_s)


def _churn(host: Host) -> Actor:
    client, habits = host.client(CHURN), replace(host.habits(CHURN), doomed=COMING_AND_GOING)
    stays = host.topic(host.cast.topics[-1])
    return ChurnWriter(client, host.book, COMING_AND_GOING, stays, client.name, habits)


def _sender(host: Host) -> Actor:
    return LifeSender(host.client(SENDER), host.book, COMING_AND_GOING)


def _lives(host: Host) -> Actor:
    stays = host.topic(host.cast.topics[-1])
    return LifeFollower(host.client(LIVES), host.book, COMING_AND_GOING, stays)


def _tuner(host: Host) -> Actor:
    idle, used = idle_and_used(host.cast)
    return HostedTuner(host.client(TUNER), host.book, used, idle, knobs_for(host.chosen.target))


def _teller(host: Host) -> Actor:
    client = host.client(TELLER)
    return Teller(client, host.book, host.topic("bank"), client.name, host.habits(TELLER))


def _auditor(host: Host) -> Actor:
    client = host.client(AUDITOR)
    return Auditor(client, host.book, host.topic("bank"), CommittedReader(client))


ROLES: Final[dict[str, Callable[[Host], Actor]]] = {
    FEEDER: _feeder,
    FOLLOWER: _follower,
    WORKER: _worker,
    MEMBER: _member,
    APPENDER: _appender,
    SUBSCRIBER: _subscriber,
    JOB: _job,
    SHOP: _shop,
    CHECKER: _checker,
    STREAM: _producers,
    READER: _readers,
    TABLE: _table,
    REREADER: _rereader,
    LARGE: _large,
    SMALL: _small,
    CHURNER: _churner,
    CHURN: _churn,
    SENDER: _sender,
    LIVES: _lives,
    TUNER: _tuner,
    TELLER: _teller,
    AUDITOR: _auditor,
}
