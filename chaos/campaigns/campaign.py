"""The campaigns, all of one shape: a name, its faults, and a run for each plan. What a run came to is an `Outcome`."""

import contextlib
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Final, Protocol

from fencepost.cluster.base.errors import Trouble

from ..planted.bugs import planted
from ..sim import (
    added,
    cluster,
    cluster_fault_table,
    deleting,
    expiring,
    followers,
    one_node,
    quorum,
    quorum_faults,
    scenes,
    sessions,
    transaction_clients,
    transactions_run,
)
from ..sim.plan import Plan
from ..sim.schedule import Struck
from ..sim.trace import HAIR_S
from ..sim.transaction_faults import TRANSACTION_FAULTS
from ..sim.world import World
from ..workloads.cluster_stream import ToldToEnd
from ..workloads.txn_answers import BrokenPromise
from .memory import seldom_collected

# Real time. A seed takes seconds; one that does not end is a failure that virtual time can't see.
SEED_S_MAX: Final = 600
CLIENT_TOLD: Final = "dead-client"  # a good client was told what it must never be told
_NAMES: Final = re.compile(r"[^a-z-]+")


class Run(Protocol):
    """One run of one seed."""

    world: World

    def run(self) -> object:
        """Raises when a promise was broken."""

    def explain(self) -> str:
        """For a person, when it was."""

    @property
    def struck(self) -> list[Struck]: ...

    @property
    def client_groups(self) -> list[list[str]]:
        """The clients that ran; each group may be left out."""

    @property
    def acknowledged(self) -> int: ...

    @property
    def counts(self) -> dict[str, int]: ...


@dataclass(frozen=True, slots=True)
class Campaign:
    name: str
    about: str
    faults: tuple[str, ...]
    begin: Callable[[Plan], Run]
    workloads: tuple[str, ...] = ()


CAMPAIGNS: Final[dict[str, Campaign]] = {
    each.name: each
    for each in (
        Campaign(
            "cluster",
            "idempotent producers, readers and groups on three to five nodes, with topics that come, go and move",
            tuple(cluster_fault_table.FAULTS),
            cluster.ClusterRun,
            (
                cluster.STREAM,
                cluster.LIGHT,
                deleting.DELETIONS,
                deleting.SLEEPERS,
                expiring.EXPIRING,
                cluster.TIMES,
                sessions.SESSIONS,
                followers.FOLLOWERS,
            ),
        ),
        Campaign(
            "transactions",
            "transfers, sends and polls, and pipelines in transactions of both protocols",
            tuple(TRANSACTION_FAULTS),
            transactions_run.TransactionsRun,
            transactions_run.WORKLOADS
            + transactions_run.MORE_WORKLOADS
            + (*scenes.SCENES, transaction_clients.DRESSED, followers.FOLLOWERS),
        ),
        Campaign(
            "quorum",
            "proposals to the metadata quorum, whose voters come and go",
            quorum_faults.FAULTS,
            quorum.QuorumRun,
        ),
        Campaign(
            "one-node",
            "idempotent producers on one node that is killed and loses power",
            one_node.FAULTS,
            one_node.OneNode,
        ),
        Campaign(
            "added",
            "jobs that commit as groups, half messages and who is asked of them",
            added.FAULTS,
            added.AddedRun,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one plan came to. `failure` is one sentence, empty when all was well."""

    plan: Plan
    failure: str = ""
    kind: str = ""  # of the failure: two with the same are taken for one
    told: str = ""  # the last events, for a person
    struck: tuple[Struck, ...] = ()
    clients: tuple[tuple[str, ...], ...] = ()
    acknowledged: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    events: int = 0
    digest: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    marks: tuple[str, ...] = ()  # the trace's digest at the end of each virtual second
    twice_s: float = 0.0  # so much of it was run in a second process, too
    differs: str = ""  # and what was not the same there


class TookTooLong(KeyboardInterrupt):
    """No end in sight in real time. Not an Exception: code of simulated nodes must not catch it."""


def run_plan(
    plan: Plan, tell: Callable[[str], object] | None = None, *, seconds: int = 0
) -> Outcome:
    """`tell` is given every line of its trace; with `seconds` it ends after so many of virtual time."""
    began = time.process_time()
    failure, kind = "", ""
    with seldom_collected(), planted(plan.planted):
        run = CAMPAIGNS[plan.campaign].begin(plan)
        run.world.trace.write_to = tell
        if seconds:
            run.world.loop.time_limit_s = seconds - HAIR_S
        try:
            with _bounded(SEED_S_MAX):
                run.run()
        except TookTooLong:
            kind, failure = "took-too-long", f"no end within {SEED_S_MAX} s of real time"
        except Exception as error:  # noqa: BLE001 - every failure of a seed is reported, and fails the campaign
            kind, failure = kind_of(error), f"{_root(error)!r}"
    world = run.world
    return Outcome(
        plan,
        failure,
        kind,
        run.explain() if failure else "",
        tuple(run.struck),
        tuple(map(tuple, run.client_groups)),
        run.acknowledged,
        world.loop.time(),
        time.process_time() - began,
        sum(world.trace.counts.values()),
        world.trace.digest(),
        run.counts,
        tuple(world.trace.marks),
    )


def _root(failure: BaseException) -> BaseException:
    """What really happened, beneath the groups of tasks that ended with it."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure


def kind_of(failure: BaseException) -> str:
    """The rule that was broken; where none is named, the kind of error and the first words of it."""
    root = _root(failure)
    if isinstance(root, ToldToEnd | BrokenPromise):
        return CLIENT_TOLD
    found = RULES.search(str(root))
    if found is not None:
        return found.group(1)
    cause = root.__cause__
    if cause is not None and not isinstance(cause, Trouble | OSError):
        return kind_of(cause)
    words = _NAMES.sub(" ", str(root).lower()).split()
    return "-".join([type(root).__name__, *words[:4]])


# Whatever a checker, or what watches a simulated cluster, can say: `tests/chaos/test_rules.py` reads it in their sources.
RULES_OF: Final = {
    "a stream and its clients": "lost moved unread skipped duplicate phantom reordered backwards dead-client damaged no-progress"
    " stale-read stuck-poll unavailable wrong-time",
    "partitions and replicas": "two-leaders two-images epoch-back unclean commit-lost commit-back under-min-isr diverged"
    " commit-missing producer-state offset-back tables-differ topic-lost topic-back setting-lost"
    " synced-lost undeleted over-deleted expired-early never-expired",
    "the metadata quorum": "election-safety log-matching leader-completeness commit-majority state-machine-safety"
    " order images-differ two-controllers feature-unknown metadata-unreadable",
    "transactions, as clients see them": "inconsistent-offsets G1a precommitted-read lost-write unseen torn torn-offset"
    " poll-skip int-poll-skip nonmonotonic-poll int-nonmonotonic-poll nonmonotonic-send int-nonmonotonic-send"
    " int-send-skip key-order G0 G0-process G0-realtime G1c G1c-process G1c-realtime group-skip group-repeat"
    " held-by-two bank-sum bank-snapshot doubled left-out from-nothing out-of-order"
    " key-lost key-back tombstone-lost another-life position-lost altered",
    "transactions, as coordinators do": "refused unwritten-end decision-changed marker-undecided marker-late marker-elsewhere"
    " marker-missing unfinished ended-early forgotten unanswered-end",
}
RULE_NAMES: Final = frozenset(name for names in RULES_OF.values() for name in names.split())
# `rule: key: what`, as an anomaly says it, on a line of its own or behind another one.
RULES: Final = re.compile(rf"(?:^|; )\s*({'|'.join(sorted(RULE_NAMES))}): ", re.MULTILINE)


@contextlib.contextmanager
def _bounded(seconds: int) -> Iterator[None]:
    def ring(_number: int, _frame: FrameType | None) -> None:
        raise TookTooLong

    try:
        before = signal.signal(signal.SIGALRM, ring)
    except ValueError:  # not the main thread: whoever runs it there looks at the clock himself
        yield
        return
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
