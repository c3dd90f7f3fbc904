"""Processes that send and poll in transactions as members of one group of the new protocol (KIP-848)."""

import random
from typing import Final

from ..checkers.consumed import MEMBERS
from ..checkers.held import Held
from ..checkers.observations import Asks, Heard
from ..workloads.consumer_member import ConsumerMember
from ..workloads.txn_append import AppendProcess
from .scene import On, Scene, Told
from .transaction_clients import TransactionClients

PROCESSES: Final = 3


class Consumers(Scene):
    """Their sessions are short: a group moves on while a member of it dawdles in the middle of a transaction."""

    name = "consumers"
    keeps_groups = True
    config = (
        "group.consumer.min.session.timeout.ms=1000",
        "group.consumer.session.timeout.ms=1000",
        "group.consumer.min.heartbeat.interval.ms=100",
        "group.consumer.heartbeat.interval.ms=100",
        "group.consumer.assignment.interval.ms=100",
    )

    def __init__(self, clients: TransactionClients, dice: random.Random) -> None:
        super().__init__(clients, dice)
        self.places = [("members", place) for place in range(3)]
        self.held = Held()
        self.processes: list[AppendProcess] = []

    def make(self) -> None:
        for place in range(PROCESSES):
            client = self._client(place, f"m{place}")
            member = ConsumerMember(client, MEMBERS, self.places, self._heard)
            habits, told = self.clients.habits(self.dice), self.clients.watch.told
            one = AppendProcess(client, self.clients.book, self.places, habits, told, member=member)
            self.processes.append(one)
        self.writers += self.processes
        self.clients.more_groups[MEMBERS] = self.places

    def _heard(self, seen: Asks | Heard) -> None:
        self.clients.watch.report_heard(self.held.see(seen))

    async def judge(self, on: On) -> Told:
        await super().judge(on)
        names = tuple(f"{each.client.name}." for each in self.processes)
        mine = [op for op in self.clients.book.history if op.process.startswith(names)]
        moved = sum(op.f == "assign" for op in mine)
        polled = sum(len(op.polls) for op in mine if op.f == "txn" and op.type == "ok")
        return (), {"given to members": moved, "polled by members": polled}
