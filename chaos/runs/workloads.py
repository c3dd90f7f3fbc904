"""The workloads of real runs: which process fills a place, what has to be there before, whom faults hunt."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic

from ..workloads.queue_client import GROUP
from ..workloads.queue_topics import number_of
from ..workloads.txn_process import BANK, CLIENT
from .plan import BANK as BANK_WORKLOAD
from .plan import QUEUE, Plan

TIMEOUT_MS: Final = 6_000  # of a transaction
MADE_S: Final = 30.0
EPOCHS: Final = "epochs"  # the fault that uses up an id
QUEUE_ELDER: Final = "queue-elder"


@dataclass(frozen=True, slots=True)
class Workload:
    """`words` are those of one process: for the plan, a place, and the keys that are known so far."""

    module: str
    words: Callable[[Plan, int, list[str]], list[str]]
    topics: tuple[str, ...] = ()  # made before, with a partition for each key
    transactional_ids: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    elder: str = (
        ""  # an id that its first place keeps for the whole run, where a fault asks for one
    )
    keeps_ids: bool = False  # each place its own, for the whole run

    def prepare(self, plan: Plan, bootstrap: str) -> None:
        admin = AdminClient(CLIENT | {"bootstrap.servers": bootstrap})
        wanted = [NewTopic(topic, plan.keys, plan.copies) for topic in self.topics]
        for made in admin.create_topics(wanted).values() if wanted else ():
            made.result(MADE_S)


def _queue(plan: Plan, slot: int, keys: list[str]) -> list[str]:
    flags = {
        "via": ",".join(plan.via),
        "copies": plan.copies,
        "keys": plan.keys,
        "writes-max": plan.writes_max,
        "clients": plan.clients,
        "newest-key": max(map(number_of, keys), default=-1),
        "rate": plan.rate,
    }
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    if slot == 0 and EPOCHS in plan.faults:
        words += ["--transactional-id", QUEUE_ELDER]
    return words if plan.transactions else [*words, "--no-transactions"]


def _bank(plan: Plan, slot: int, _keys: list[str]) -> list[str]:
    """The last place is an auditor's, who reads all accounts; the others are tellers'."""
    role = "auditor" if slot == plan.clients - 1 and slot > 0 else "teller"
    words = ["--role", role, "--transactional-id", f"{role}-{slot}"]
    return [*words, "--partitions", str(plan.keys), "--rate", str(max(1, round(plan.rate)))]


WORKLOADS: Final[dict[str, Workload]] = {
    QUEUE: Workload(
        "fencepost.chaos.workloads.queue_client",
        _queue,
        transactional_ids=("queue-0.1.1",),
        groups=(GROUP,),
        elder=QUEUE_ELDER,
    ),
    BANK_WORKLOAD: Workload(
        "fencepost.chaos.workloads.txn_worker",
        _bank,
        topics=(BANK,),
        transactional_ids=("teller-0", "teller-1"),
        elder="teller-0",
        keeps_ids=True,
    ),
}
