"""Who consumes is shown what was acknowledged, and soon: consumers that are stuck are a fault of their own.

INVARIANT  a consumer that is given a partition, and looks, is shown something new of it within `shown_s` (`promised.py`) of the
           acknowledgement of what it has not been shown yet; the members of a group together within `GROUP_S`; and somebody
           something in that time, whoever consumes what. As for sends, what is excused (`away.py`) does not count.
PREVENTS   a run that is valid though all of its polls were empty: final polls read by new consumers, which may be served
           where those of the load never were.
PROVED BY  tests/chaos/test_stuck_polls.py::test_polls_that_are_all_empty_beside_sends_that_are_acknowledged_are_stuck,
           tests/chaos/test_stuck_polls.py::test_a_group_that_is_shown_nothing_of_what_its_members_were_given_is_stuck

What it was given is what `assign` says, for a group what its members subscribe to (`rebalanced` of `subscribe`) or were given
(of `join`; so for those whose ids keep them apart), for a reader of all accounts what its `snapshot` names. That it looked is
known of operations that are ok: half of the steps of a transaction poll.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from .away import Excused
from .history import FINAL, Anomaly
from .promised import Promise
from .txn_history import Txn

# Each member that is killed stops its group for a session of 6 s, and one is killed every ten (runs/clients.py).
GROUP_S: Final = 60.0
LOOKS_MIN: Final = 10  # operations, each of which polls nothing once in four times
LOOK_S: Final = 0.9  # at least between two that count, of members that join
LIVELY: Final = 10  # acknowledgements since anybody was shown anything
GONE_S: Final = 300.0  # who did nothing for so long is not there any more
GROUP: Final = "the group"
CHOICES: Final = frozenset({"assign", "subscribe", "join", "crash"})
LOOKS: Final = frozenset({"txn", "read", "snapshot"})


@dataclass(slots=True)
class Lag:
    """What one reader was not shown yet of a key: since when, how often it has looked since then, and when last."""

    since_s: float
    looks: int = 0
    looked_s: float = 0.0


@dataclass(slots=True)
class Reader:
    """A consumer, or all that share a group."""

    name: str
    within_s: float
    is_group: bool = False
    is_joined: bool = False  # its keys go from one member to the next, and are owed to all of them
    members: dict[str, frozenset[str]] = field(default_factory=dict)
    mine: frozenset[str] = frozenset()  # all that its members have
    shown: dict[str, int] = field(default_factory=dict)  # key -> highest offset
    lags: dict[str, Lag] = field(default_factory=dict)
    seen_s: float = 0.0

    def give(self, process: str, keys: frozenset[str], ends: dict[str, int], at_s: float) -> None:
        if keys:
            self.members[process] = keys
        else:
            self.members.pop(process, None)
        held = frozenset[str]().union(*self.members.values())
        self.mine = self.mine | held if self.is_joined else held
        for key in [key for key in self.lags if key not in self.mine]:
            del self.lags[key]
        for key in keys:
            if ends.get(key, -1) > self.shown.get(key, -1):
                self.lags.setdefault(key, Lag(at_s))

    def owe(self, key: str, offset: int, at_s: float) -> None:
        if key not in self.lags and offset > self.shown.get(key, -1):
            self.lags[key] = Lag(at_s)

    def look(self, op: Txn, key: str, lag: Lag) -> None:
        """Of members that come and go a look a second counts: who has just been given a key may look at others first."""
        has_it = key in self.members.get(op.process, frozenset())
        if not has_it or op.began_s < lag.since_s:
            return
        if not self.is_joined or op.began_s >= lag.looked_s + LOOK_S:
            lag.looks, lag.looked_s = lag.looks + 1, op.began_s

    def show(self, op: Txn, ends: dict[str, int]) -> None:
        highest: dict[str, int] = {}
        for polled in op.polls:
            highest[polled.key] = max(highest.get(polled.key, -1), polled.offset)
        for key, offset in highest.items():
            # Of a group, who fails begins before it again, he or another member; of one of unknown fate nobody can say.
            if op.type != "fail" or not self.is_group:
                self.shown[key] = max(self.shown.get(key, -1), offset)
            if key in self.lags:
                if self.shown.get(key, -1) >= ends.get(key, -1):
                    del self.lags[key]
                else:
                    self.lags[key] = Lag(op.ended_s)


class StuckPolls:
    """`see` all operations in the order of their ends."""

    def __init__(self, excused: Excused, promise: Promise | None = None) -> None:
        self._excused = excused
        self._shown_s = (promise or Promise()).shown_s
        self._ends: dict[str, int] = {}  # key -> highest offset that was acknowledged
        self._readers: dict[str, Reader] = {}  # by process; those of a group have the same
        self._group = Reader(GROUP, GROUP_S, is_group=True)  # of all that subscribe
        self._groups: dict[str, Reader] = {}  # of those that join, by name
        self._someone_reads = False
        self._unshown_s: float | None = None  # since when nobody was shown anything
        self._unshown = 0  # acknowledgements since then

    def see(self, op: Txn) -> Iterator[Anomaly]:
        if op.process == FINAL:
            return
        if op.f in CHOICES:
            self._choose(op)
            return
        if op.polls:
            self._unshown_s, self._unshown = None, 0
        if op.type == "ok":
            for sent in op.sends:
                self._acknowledge(sent.key, sent.offset, op.ended_s)
        if op.f in LOOKS:
            reader = self._reader_of(op)
            if reader is not None:
                yield from self._look(reader, op)
            self._someone_reads |= op.f != "txn" or reader is not None
        yield from self._all(op)

    # -- until all was shown that there was at some moment -----------------------------------------

    def all_shown(self, at_s: float) -> bool:
        """Whether nobody lacks any more what he lacked then. Who has crashed, or has a successor, waits for nothing.

        What had ended by then may be seen after it; hence the time, and no look at who lacks what just then.
        """
        return not any(self._lacking(at_s))

    def unanswered(self, healed_s: float | None, end_s: float) -> list[str]:
        """Who was shown nothing between the end of all faults and that of the load, though that was no time to be called stuck."""
        if healed_s is None:
            return []
        return [
            f"{reader.name} was shown nothing of {key} after all faults, from {lag.since_s:.1f} s to {end_s:.1f} s,"
            f" in {lag.looks} operations: the load ended before it was asked for"
            for reader, key, lag in self._lacking(healed_s)
            if lag.looks >= LOOKS_MIN and not self._is_late(lag.since_s, reader.within_s, end_s)
        ]

    def _lacking(self, at_s: float) -> Iterator[tuple[Reader, str, Lag]]:
        for reader in {id(each): each for each in self._readers.values()}.values():
            for key, lag in sorted(reader.lags.items()):
                if lag.since_s <= at_s:
                    yield reader, key, lag

    # -- who reads what ----------------------------------------------------------------------------

    def _choose(self, op: Txn) -> None:
        reader = self._readers.get(op.process)
        if op.f == "crash":
            keys = frozenset[str]()
            self._readers.pop(op.process, None)
        elif op.f == "subscribe":
            reader = self._enters(op, self._group)
            keys = frozenset(op.rebalanced)
        elif op.f == "join":
            reader = self._enters(op, self._group_of(op))
            keys = frozenset(op.rebalanced)
        elif reader is not None and reader.is_group:
            return  # what the group gives to whom is not asked
        else:
            keys = frozenset(op.positions)
            reader = reader or self._enters(op, Reader(op.process, self._shown_s))
        if reader is not None:
            reader.seen_s = op.ended_s
            reader.give(op.process, keys, self._ends, op.ended_s)
        for process, each in list(self._readers.items()):
            if each.seen_s < op.ended_s - GONE_S:
                del self._readers[process]
        self._someone_reads = True

    def _group_of(self, op: Txn) -> Reader:
        name = next(iter(op.positions))
        if name not in self._groups:
            self._groups[name] = Reader(f"{GROUP} {name}", GROUP_S, is_group=True, is_joined=True)
        return self._groups[name]

    def _enters(self, op: Txn, reader: Reader) -> Reader:
        """Of the lives in one place of a run (`member-2.1.3`: a role, a place, its lives) the last one is there."""
        place, is_life, _ = op.process.partition(".")
        if is_life and op.process not in self._readers:
            for name in [each for each in self._readers if each.startswith(f"{place}.")]:
                self._readers.pop(name).give(name, frozenset(), self._ends, op.ended_s)
        self._readers[op.process] = reader
        return reader

    def _reader_of(self, op: Txn) -> Reader | None:
        reader = self._readers.get(op.process)
        if reader is None and op.f == "snapshot" and op.type == "ok":  # a dead one's has no end
            reader = self._enters(op, Reader(op.process, self._shown_s))
            reader.shown = {key: at - 1 for key, at in op.positions.items()}
            reader.give(op.process, frozenset(op.positions), self._ends, op.ended_s)
        return reader

    # -- what is owed ------------------------------------------------------------------------------

    def _acknowledge(self, key: str, offset: int | None, at_s: float) -> None:
        self._unshown_s = at_s if self._unshown_s is None else self._unshown_s
        self._unshown += 1
        if offset is None or offset <= self._ends.get(key, -1):
            return
        self._ends[key] = offset
        for reader in self._readers.values():
            if key in reader.mine:
                reader.owe(key, offset, at_s)

    def _look(self, reader: Reader, op: Txn) -> Iterator[Anomaly]:
        reader.seen_s = op.ended_s
        reader.show(op, self._ends)
        if op.type != "ok":
            return
        for key, lag in list(reader.lags.items()):
            reader.look(op, key, lag)
            if lag.looks >= LOOKS_MIN and self._is_late(lag.since_s, reader.within_s, op.ended_s):
                what = f"{reader.name} was shown nothing of it from {lag.since_s:.1f} s to {op.ended_s:.1f} s"
                what += f" in {lag.looks} operations, though {self._ends.get(key)} was acknowledged"
                yield Anomaly("stuck-poll", key, what, (op.line,))
                reader.lags[key] = Lag(op.ended_s)

    def _all(self, op: Txn) -> Iterator[Anomaly]:
        since_s = self._unshown_s
        if since_s is None or self._unshown < LIVELY or not self._someone_reads:
            return
        in_groups = any(each is self._group for each in self._readers.values())
        if self._is_late(since_s, GROUP_S if in_groups else self._shown_s, op.ended_s):
            what = f"nobody was shown anything from {since_s:.1f} s to {op.ended_s:.1f} s, in which"
            what += f" {self._unshown} records were acknowledged"
            yield Anomaly("stuck-poll", "all", what, (op.line,))
            self._unshown_s, self._unshown = None, 0

    def _is_late(self, since_s: float, within_s: float, now_s: float) -> bool:
        return now_s - since_s >= within_s and now_s >= self._excused.due(since_s, within_s)
