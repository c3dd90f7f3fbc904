"""What the workloads of the simulator's clients have done in a run, counted: a run in which they did nothing proves nothing.

INVARIANT  of each thing that a workload is there for, something was done and acknowledged, or the run is unknown.
PREVENTS   a pipeline that never transformed anything, or a group that was never rebalanced, being valid for want of a mistake;
           so a kill loop whose members send, and were never given a partition.
PROVED BY  tests/chaos/test_worked.py::test_a_pipeline_that_has_transformed_nothing_proves_nothing,
           tests/chaos/test_worked.py::test_a_kill_loop_whose_group_was_never_given_anything_proves_nothing_of_it
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from . import consumed
from .history import FINAL
from .txn_history import LIFE, Txn

ASSIGN, SUBSCRIBE = "assign", "subscribe"
GROUPS: Final = {"pipeline": SUBSCRIBE, "pipeline-ids": ASSIGN}
FED: Final = "inputs fed"
BY_GROUP, BY_IDS = "transformed in a group", "transformed by ids"
REBALANCES: Final = "rebalances"
ROUNDS: Final = "rounds of groups committed"
HALVES, BY_CHECKERS = "half messages ended", "half messages ended by who was asked"
CONSUMED: Final = "transactions with positions"
IN_GROUPS, ALONE = "consumed as members of a group", "consumed alone"
SET, GONE = "entries of tables set", "entries compacted away"
TABLES: Final = "table-"  # how the partitions of tables are named
LARGE: Final = "long transactions"
LARGE_MIN: Final = 100  # records
MADE, DELETED, INTO_LIVES = "topics made", "topics deleted", "records sent to what comes and goes"
MOVED, ADDED_UP = "transfers committed", "accounts added up"
CHANGED, SHOWN = "settings changed", "shown at the end"
# Known when all is over, and not before.
AT_THE_END: Final = (GONE, SHOWN)
# Workload -> what must have been done, and what is said when it was not.
MUST: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "pipeline": (
        (FED, "nothing was fed to the pipeline"),
        (BY_IDS, "the pipeline whose workers are kept apart by ids transformed nothing"),
        (BY_GROUP, "the pipeline whose workers are a group transformed nothing"),
        (REBALANCES, "no group was rebalanced"),
    ),
    "append": ((CONSUMED, "no transaction committed positions"),),
    "transactions-kill-loop": (
        (IN_GROUPS, "no member of a group has committed what it was given"),
        (ALONE, "nobody who assigns itself partitions has committed what it polled"),
    ),
    "subscribe": (
        (CONSUMED, "no transaction committed positions"),
        (REBALANCES, "no group was rebalanced"),
    ),
    "added": (
        (ROUNDS, "no round of a transaction group was committed"),
        (HALVES, "no half message was ended"),
        (BY_CHECKERS, "nobody who was asked for a half message has ended one"),
    ),
    "compacted": (
        (SET, "no entry of a table was set"),
        (GONE, "nothing was compacted"),
    ),
    "long": ((LARGE, "no long transaction was committed"),),
    "churn": (
        (MADE, "no topic was made"),
        (DELETED, "no topic was deleted"),
        (INTO_LIVES, "nothing was sent to a topic that comes and goes"),
        (SHOWN, "nobody has shown which topics there are in the end"),
    ),
    "tuned": (
        (CHANGED, "no setting was changed"),
        (SHOWN, "nobody has shown its settings in the end"),
    ),
    "transfers": (
        (MOVED, "no money was moved"),
        (ADDED_UP, "nobody has added up what he has seen of the accounts"),
    ),
}
# Only where a run has both ways to consume.
NEEDS_WAY: Final = {BY_IDS: ASSIGN, BY_GROUP: SUBSCRIBE}


class Worked:
    """`see` all operations."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._ended: set[str] = set()  # half messages
        self._by_checkers: set[str] = set()  # of these, those that others heard of than their shops
        self._generations: dict[str, set[int]] = defaultdict(set)
        self._set: set[int] = set()  # acknowledged entries of tables that are not found again

    def see(self, op: Txn) -> None:
        self._administered(op)
        if op.process == FINAL:
            self._set -= {polled.value for polled in op.polls}
            return
        if op.f == "join":
            for group, generation in op.positions.items():
                self._generations[group].add(generation)
        self._decided(op)
        self._counts[ADDED_UP] += op.f == "snapshot" and bool(op.polls)
        if op.type == "ok":
            self._counts[INTO_LIVES] += sum(LIFE in sent.key for sent in op.sends)
        if op.f == "txn" and op.type == "ok":
            self._transaction(op)

    def _transaction(self, op: Txn) -> None:
        self._counts[FED] += sum(sent.key.startswith("in-") for sent in op.sends)
        self._counts[ROUNDS] += op.process.startswith("job-")
        self._counts[CONSUMED] += bool(op.offsets and op.polls)
        groups = {place.partition("|")[0] for place in op.offsets if op.polls}
        self._counts[IN_GROUPS] += not groups.isdisjoint(consumed.GROUPS)
        self._counts[ALONE] += op.process in groups
        self._counts[MOVED] += len(op.sends) > 1
        self._counts[LARGE] += len(op.sends) >= LARGE_MIN
        entries = {sent.value for sent in op.sends if sent.key.startswith(TABLES)}
        self._counts[SET] += len(entries)
        self._set |= entries
        ways = {GROUPS.get(place.partition("|")[0]) for place in op.offsets}
        made = sum(sent.key.startswith("out-") for sent in op.sends)
        self._counts[BY_GROUP] += made * (SUBSCRIBE in ways)
        self._counts[BY_IDS] += made * (ASSIGN in ways)

    def _administered(self, op: Txn) -> None:
        name = {"create": MADE, "delete": DELETED, "alter": CHANGED, "shows": SHOWN}.get(op.f)
        if name is not None and op.type == "ok":
            self._counts[name] += len(op.named)

    def _decided(self, op: Txn) -> None:
        ended = {name for name, outcome in op.told.items() if outcome}
        if op.f == "told":
            # A shop hears twice of the end of its own, when it asks while it answers.
            self._by_checkers |= {each for each in ended if not each.startswith(f"{op.process}-")}
        self._counts[HALVES] += len(ended - self._ended)
        self._ended |= ended

    def counts(self, workload: str) -> dict[str, int]:
        """Of what this workload is there for."""
        found = dict(self._counts)
        found[GONE] = len(self._set)
        found[BY_CHECKERS] = len(self._by_checkers)
        found[REBALANCES] = sum(len(each) - 1 for each in self._generations.values())
        return {name: found.get(name, 0) for name, _ in MUST.get(workload, ())}


def counted(workload: str, history: Iterable[Txn]) -> dict[str, int]:
    """Of one that is at hand as a whole."""
    worked = Worked()
    for op in history:
        worked.see(op)
    return worked.counts(workload)


def lacking(workload: str, via: Sequence[str], counts: Mapping[str, int]) -> list[str]:
    """Sentences: what was not done, and should have been."""
    return [
        sentence
        for name, sentence in MUST.get(workload, ())
        if not counts.get(name, 0)
        and NEEDS_WAY.get(name, SUBSCRIBE if name == REBALANCES else "") in {"", *via}
    ]
