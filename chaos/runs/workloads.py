"""The workloads of real runs: which process fills a place, what has to be there before, whom faults hunt."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka.admin import AdminClient, NewTopic
from fencepost.clients.transactional.kept_topics import make_topic

from ..workloads.admin_doors import TOKEN
from ..workloads.hosted_cast import ASSIGN, BATCH_BYTES_MAX, CASTS, SUBSCRIBE, Cast
from ..workloads.queue_client import GROUP
from ..workloads.queue_topics import number_of
from ..workloads.txn_added import CHECKS
from ..workloads.txn_append import SHARED_GROUP
from ..workloads.txn_pipeline import GROUP as PIPELINE
from ..workloads.txn_pipeline import GROUP_BY_IDS as PIPELINE_BY_IDS
from ..workloads.txn_process import BANK, CLIENT
from .plan import BANK as BANK_WORKLOAD
from .plan import Plan
from .plan_words import NOT_IN, NOT_ON, QUEUE

TIMEOUT_MS: Final = 6_000  # of a transaction
MADE_S: Final = 30.0
EPOCHS: Final = "epochs"  # the fault that uses up an id
QUEUE_ELDER: Final = "queue-elder"
HOSTED: Final = "fencepost.chaos.workloads.hosted"
FINALS: Final = "fencepost.chaos.workloads.queue_final"
HOSTED_FINALS: Final = "fencepost.chaos.workloads.hosted_final"
# How long a compacted table keeps its tombstones, by seed.
KEEPS_MS: Final = ("0", "300", "5000", "86400000")
Drains = dict[str, list[tuple[str, int]]]
TopicSettings = Mapping[str, dict[str, str]]


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
    settings: tuple[str, ...] = ()  # of the brokers
    cast: Cast | None = None  # of the simulator's clients, which are hosted
    asks_admin: bool = False
    # Groups, each with its partitions, whose inputs are worked off in the end.
    drains: Callable[[Plan], Drains] = field(default=lambda _plan: {})
    of_topics: Callable[[Plan], TopicSettings] = field(default=lambda _plan: {})
    final: tuple[str, ...] = (FINALS,)  # who passes over all that is there in the end

    def prepare(self, plan: Plan, bootstrap: str) -> None:
        admin = AdminClient(CLIENT | {"bootstrap.servers": bootstrap})
        settings = self.of_topics(plan)
        for topic in self.topics:
            wanted = NewTopic(topic, plan.keys, plan.copies, config=settings.get(topic, {}))
            make_topic(admin, wanted, MADE_S)

    def stops_first(self, plan: Plan, place: int) -> bool:
        """Before others, who work off what it has left."""
        return self.cast is not None and self.cast.stops_first(place, plan.via)

    def finals(self, plan: Plan) -> Iterator[tuple[str, list[str]]]:
        """Modules, and what they are told beside what all of them are."""
        for module in self.final:
            yield module, _final_words(plan) if module == HOSTED_FINALS else []

    def to_drain(self, plan: Plan) -> dict[str, Any]:
        """What has to be worked off before the last of them end; nothing where there is nothing."""
        groups = {group: places for group, places in self.drains(plan).items() if places}
        return {"groups": groups, "halves": self.asks_admin} if groups or self.asks_admin else {}

    def why_not(self, plan: Plan) -> str:
        """A sentence, if it can't be what the plan asks for."""
        if why := NOT_ON.get((plan.workload, plan.target)):
            return f"the workload {plan.workload} can't be had on {plan.target}: {why}"
        for fault in plan.faults:
            if why := NOT_IN.get((plan.workload, fault)):
                return f"the workload {plan.workload} can't have the fault {fault}: {why}"
        lacks = [] if self.cast is None else self.cast.lacks(plan.clients, plan.via)
        if lacks:
            few = f"with --clients {plan.clients} there is no {' and no '.join(lacks)}"
            return f"the workload {plan.workload} needs more clients: {few}"
        return ""


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


def _hosted(plan: Plan, _slot: int, _keys: list[str]) -> list[str]:
    flags = {
        "workload": plan.workload,
        "target": plan.target,
        "via": ",".join(plan.via),
        "partitions": plan.keys,
        "clients": plan.clients,
        "rate": plan.rate,
    }
    return [word for name, value in flags.items() for word in (f"--{name}", str(value))]


def _final_words(plan: Plan) -> list[str]:
    words = ["--workload", plan.workload, "--target", plan.target]
    return [*words, "--partitions", str(plan.keys)]


def _tables(plan: Plan) -> TopicSettings:
    """Small segments, which are cleaned as soon as there is anything to clean; one table loses its beginning, too."""
    table = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": KEEPS_MS[plan.seed % len(KEEPS_MS)],
        "internal.segment.bytes": "2048" if plan.seed % 2 else "1024",
    }
    cut = {"cleanup.policy": "compact,delete", "retention.bytes": "6000"}
    return {"table": table, "table-cut": table | cut}


def _large(_plan: Plan) -> TopicSettings:
    """A batch has to fit a segment."""
    sizes = {"max.message.bytes": BATCH_BYTES_MAX, "internal.segment.bytes": 2 * BATCH_BYTES_MAX}
    return {"long": {name: str(size) for name, size in sizes.items()}}


def _inputs(plan: Plan) -> Drains:
    groups = {ASSIGN: PIPELINE_BY_IDS, SUBSCRIBE: PIPELINE}
    places = [("in", partition) for partition in range(plan.keys)]
    return {groups[way]: places[at :: len(plan.via)] for at, way in enumerate(plan.via)}


def _of_cast(name: str, **more: Any) -> Workload:
    cast = CASTS[name]
    return Workload(HOSTED, _hosted, topics=cast.topics, cast=cast, **more)


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
    "pipeline": _of_cast(
        "pipeline",
        transactional_ids=("feeder-0", "worker-1"),
        groups=(PIPELINE, PIPELINE_BY_IDS),
        elder="feeder-0",
        drains=_inputs,
        keeps_ids=True,
    ),
    "append": _of_cast("append", transactional_ids=("append-0.1.1",), groups=("append-0.1.1",)),
    "subscribe": _of_cast(
        "subscribe", transactional_ids=("subscribe-0.1.1",), groups=(SHARED_GROUP,)
    ),
    "streams": _of_cast("streams"),
    "added": _of_cast(
        "added",
        transactional_ids=("job-0.1::w0", "shop-1.1-1"),
        settings=(*CHECKS, f"admin.token={TOKEN}"),
        asks_admin=True,
    ),
    "compacted": _of_cast(
        "compacted",
        transactional_ids=("table-0", "table-1"),
        elder="table-0",
        keeps_ids=True,
        settings=("log.cleaner.backoff.ms=200", "log.retention.check.interval.ms=1000"),
        of_topics=_tables,
        final=(HOSTED_FINALS,),
    ),
    "long": _of_cast(
        "long",
        transactional_ids=("long-0", "short-1"),
        elder="long-0",
        keeps_ids=True,
        of_topics=_large,
    ),
    "churn": _of_cast(
        "churn", transactional_ids=("churn-1",), keeps_ids=True, final=(HOSTED_FINALS,)
    ),
    "tuned": _of_cast(
        "tuned",
        transactional_ids=("append-1.1.1",),
        groups=("append-1.1.1",),
        final=(FINALS, HOSTED_FINALS),
    ),
    "transfers": _of_cast(
        "transfers",
        transactional_ids=("teller-0", "teller-1"),
        elder="teller-0",
        keeps_ids=True,
    ),
}
