"""What a scene is: a workload of the transactions campaign that brings topics, clients and a judge of its own. See `scenes.py`."""

import contextlib
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, ClassVar

from fencepost.cluster.base.ports import Env

from ..checkers.history import Anomaly
from ..workloads.cluster_client import ClusterClient
from ..workloads.txn_answers import Partition
from .cluster import CLIENTS
from .transaction_clients import Follows, Hand, TransactionClients

On = Callable[[Env, Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]]
Told = tuple[Sequence[Anomaly], dict[str, int]]


class Scene(ABC):
    """`places` have to be stable in the end; `shares_book`: its transactions are judged with those of all."""

    name: ClassVar[str]
    config: ClassVar[tuple[str, ...]] = ()  # of every node
    shares_book: ClassVar[bool] = True
    keeps_groups: ClassVar[bool] = False  # one that is empty must not be forgotten

    def __init__(self, clients: TransactionClients, dice: random.Random) -> None:
        self.clients = clients
        self.dice = dice
        self.places: list[Partition] = []
        self.settings: dict[str, Mapping[str, str]] = {}  # of its topics
        self.unmarked: tuple[str, ...] = ()  # topics whose markers nobody can count
        self.writers: list[Hand] = []
        self.followers: list[Follows] = []

    @abstractmethod
    def make(self) -> None:
        """Its clients, when its topics are there."""

    def limits(self) -> contextlib.AbstractContextManager[None]:
        """What is made small for it, while it runs."""
        return contextlib.nullcontext()

    def look(self) -> None:  # noqa: B027 - most scenes have nothing of the kind
        """At what it alone knows of, with every sweep."""

    def wanted_stable(self) -> list[Partition]:
        """Where nothing may be left open in the end."""
        return self.places

    async def judge(self, on: On) -> Told:
        """When all is still: its followers come to the end of what is there."""
        for each in self.followers:
            if self.clients.plan.keeps_client(each.client.name):
                await on(each.client.env, each.read_on())
        return (), {}

    def _client(self, place: int, name: str, *, patient: bool = False) -> ClusterClient:
        machine = CLIENTS[place % 2]
        return self.clients.client(machine, name, patient=patient, dice=self.dice)
