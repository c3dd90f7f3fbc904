"""What of a run's clients the faults may use: a twin, a sleep between a send and its commit, an id whose epochs are used up.

INVARIANT  who is stopped stands between its sends and its commit, seen in the process table, and a second producer has begun a
           transaction, or the fault is left out; so is the wearing out of an id that no client of the load has now.
PREVENTS   a record of sleepers that slept while they had nothing open, and of worn-out ids that nobody was using.
PROVED BY  tests/chaos/test_lent_clients.py::test_a_client_is_stopped_between_its_sends_and_its_commit,
           tests/chaos/test_lent_clients.py::test_whose_id_is_worn_out_has_transacted_a_moment_ago

Under `epochs` one client keeps its id for the whole run. With `--age-s` that id is driven to `OLD` before the load begins: each
start of its client is an epoch more then, the fault is hundreds, so that 32765 to 32767 and the change of the producer id
come under load. That takes 32,765 InitProducerId: 3 to 5 minutes against one node, 8 to 16 against three, 25 against three of
Kafka (5.6 to 8.1, 14.6 to 28.6, 45.8 ms each, on two cores that had other work too), so no run does it unasked.
"""

import os
import random
import time
from collections.abc import Callable
from typing import Final

from ..faults.fault import Clients as ClientFaults
from ..faults.fault import LeftOut
from ..faults.system import System
from ..faults.zombies import Taken, take_over
from ..workloads.txn_process import SLEEPS_AT_COMMIT
from .clients import Client, Clients, stands_still
from .plan import Plan
from .workloads import EPOCHS, Workload

OLD: Final = 32_764  # Kafka's last epoch is 32767, and the first that it gives out is 0
SLEEPS_S: Final = 10.0  # for a client to come to a commit
TWIN_S: Final = 20.0  # for a second client to begin a transaction
USED_S: Final = 5.0  # since it transacted: later it may have given up its id
LOOK_S: Final = 0.02


class Lent:
    """Called from the threads of the schedule."""

    def __init__(self, clients: Clients, plan: Plan, workload: Workload) -> None:
        self.clients = clients
        self.plan = plan
        self.workload = workload

    def hooks(self) -> ClientFaults:
        return ClientFaults(
            twin=self.twin,
            pause=self.pause,
            resume=self.clients.resume,
            in_use=self.in_use,
        )

    def _who_transact(self) -> list[Client]:
        """The lock is held."""
        return [each for each in self.clients.all if each.name and each.alive and not each.paused]

    def _some(self, rng: random.Random) -> Client:
        found = self._who_transact()
        if not found:
            raise LeftOut("no client of this load transacts now")
        return rng.choice(found)

    def in_use(self, rng: random.Random) -> str:
        """An elder's whenever there is one: whoever follows in its place has it, too. Else of who has just transacted."""
        if has_elder_of(self.plan, self.workload):
            return self.workload.elder
        with self.clients.lock:
            since_s = self.clients.now_s - USED_S
            found = [each for each in self._who_transact() if each.transacted_s >= since_s]
        if not found:
            raise LeftOut(f"no client of this load has transacted in the last {USED_S:g} s")
        return self._id_of(rng.choice(found))

    def pause(self, rng: random.Random) -> Client:
        """Until `Clients.resume`."""
        with self.clients.lock:
            client = self._some(rng)
            assert client.process is not None
            client.paused = True  # so that it is not crashed meanwhile
            pid = client.process.pid
            os.kill(pid, SLEEPS_AT_COMMIT)
        deadline = time.monotonic() + SLEEPS_S
        while time.monotonic() < deadline and client.alive:
            if stands_still(pid):
                return client
            time.sleep(LOOK_S)
        client.paused = False  # should it stop yet, it is woken at once
        raise LeftOut(f"client {client.slot} came to no commit within {SLEEPS_S:g} s")

    def twin(self, rng: random.Random, lasts_s: float) -> str:
        with self.clients.lock:
            client = self._some(rng)
        chosen = self._id_of(client)
        twin = self.clients.start_twin(chosen)
        if twin is None:
            raise LeftOut("there is a twin already")
        assert twin.notes is not None
        deadline = time.monotonic() + TWIN_S
        while not twin.notes.transacts and self.clients.is_there(twin):
            if time.monotonic() > deadline:
                break
            time.sleep(LOOK_S)
        self.clients.end_twin(twin, lasts_s if twin.notes.transacts else 0.0)
        if not twin.notes.transacts:
            raise LeftOut(f"a second {chosen} came to no transaction within {TWIN_S:g} s")
        return chosen

    def _id_of(self, client: Client) -> str:
        if client.slot == 0 and has_elder_of(self.plan, self.workload):
            return self.workload.elder
        if self.workload.keeps_ids:
            return client.name.partition(".")[0]
        return client.name


def has_elder_of(plan: Plan, workload: Workload) -> bool:
    return bool(workload.elder) and plan.transactions and EPOCHS in plan.faults


def age(system: System, elder: str, age_s: float, stopping: Callable[[], bool]) -> str:
    """Before the load: its producer epoch goes up to `OLD`, or as far as it comes in time. What came of it."""
    began = time.monotonic()
    late = began + age_s
    taken = take_over(
        lambda: dict(system.doors), elder, OLD + 1, lambda: stopping() or time.monotonic() > late
    )
    return f"before the load {aged(elder, taken)} in {time.monotonic() - began:.0f} s"


def aged(elder: str, taken: Taken) -> str:
    producer, epoch = taken.last
    short = "" if epoch >= OLD else f", which is short of {OLD}"
    return f"{elder} came to producer {producer} epoch {epoch}{short}"
