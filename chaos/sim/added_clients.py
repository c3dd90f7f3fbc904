"""The clients of a run that use what no Kafka has: jobs of several writers, shops with half messages, and who checks those."""

from collections.abc import Callable, Sequence

from ..workloads.cluster_client import ClusterClient
from ..workloads.txn_added import SHOP_GROUP, Desk, Doors, GroupJob, HalfChecker, Shop
from ..workloads.txn_answers import Partition
from ..workloads.txn_book import Book
from ..workloads.txn_habits import Habits
from .http import ask_http

JOBS, SHOPS, CHECKERS = 2, 2, 2


class AddedClients:
    """`unsettled` names the half messages that are open."""

    def __init__(
        self,
        client: Callable[[int, str], ClusterClient],
        book: Book,
        places: Sequence[Partition],
        habits: Callable[[], Habits],
        hosts: Sequence[str],
    ) -> None:
        self.desk = Desk(book)
        self.jobs: list[GroupJob] = []
        self.shops: list[Shop] = []
        self.checkers: list[HalfChecker] = []
        for place in range(JOBS):
            name = f"job{place}"
            one = client(place, name)
            doors = Doors(one.env, hosts, ask_http)
            self.jobs.append(GroupJob(one, book, places, name, habits(), doors))
        for place in range(SHOPS):
            one = client(place, f"{SHOP_GROUP}{place}")
            doors = Doors(one.env, hosts, ask_http)
            self.shops.append(Shop(one, self.desk, places, habits(), doors))
        for place in range(CHECKERS):
            one = client(place, f"checker{place}")
            self.checkers.append(HalfChecker(one, self.desk, Doors(one.env, hosts, ask_http)))

    @property
    def writers(self) -> list[GroupJob | Shop]:
        return [*self.jobs, *self.shops]

    @property
    def all_of_them(self) -> list[GroupJob | Shop | HalfChecker]:
        return [*self.jobs, *self.shops, *self.checkers]

    def unsettled(self) -> str:
        """Half messages that nobody knows the end of, for people; empty when there are none."""
        return ", ".join(sorted(self.desk.open)[:5])
