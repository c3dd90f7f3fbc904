"""pysyncobj's SyncObj, held: our journal, our snapshots, our elections, no pickles, no files, sockets or threads.

What could not be handed in is overridden, each with its reason. Names that begin with `_SyncObj__` are SyncObj's own
private ones (0.3.17); `tests/cluster/quorum/test_raft.py` fails when a version of it has other ones.
"""

from collections.abc import Callable
from typing import Any, Final

from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.config import FAIL_REASON, SERIALIZER_STATE
from pysyncobj.node import Node

from ..base.ids import BrokerId
from .election_machine import HEARTBEAT_S
from .journal import Journal
from .raft_files import Snapshot
from .redirected import NoPoller, active_env, steady
from .segment_format import Entry
from .transport import NOBODYS_ID, QuorumTransport
from .voters import VOTERS_KIND, Voters, VoterSets, read_voters, write_voters

SUCCESS: Final = FAIL_REASON.SUCCESS
# What surely did not happen: the entry is in nobody's log, or another took its place.
NEVER_HAPPENED: Final = frozenset(
    {
        FAIL_REASON.QUEUE_FULL,
        FAIL_REASON.MISSING_LEADER,
        FAIL_REASON.DISCARDED,
        FAIL_REASON.NOT_LEADER,
        FAIL_REASON.REQUEST_DENIED,
    }
)

_REGULAR: Final = 0  # pysyncobj's kinds of commands
_NO_OP: Final = 1
FOLLOWER: Final = 0  # pysyncobj's states
CANDIDATE: Final = 1
LEADER: Final = 2
NEVER: Final = float("inf")

# --- nodes, snapshots -----------------------------------------------------------------------------


class Peer(Node):  # type: ignore[misc]  # pysyncobj has no types
    """A node by its number: SyncObj keeps nodes in sets, and sets of numbers have one order in every process."""

    def __init__(self, node_id: BrokerId) -> None:
        super().__init__(node_id)

    def __str__(self) -> str:
        return str(self.id)


NOBODY: Final = Peer(NOBODYS_ID)


class Snapshots:
    """Stands for SyncObj's Serializer: it asks for a snapshot here, the shell writes it between two ticks."""

    def __init__(self, take: Callable[[], bytes]) -> None:
        self._take = take
        self._state = SERIALIZER_STATE.NOT_SERIALIZING
        self._id: int | None = None
        self.voters_at: Callable[[int], Voters] = lambda _: {}  # the log's owner sets it
        self.newest: Snapshot | None = None  # on disk
        self.to_write: Snapshot | None = None

    @property
    def is_idle(self) -> bool:
        """The last one is written, and SyncObj has dropped the log before it."""
        return bool(self._state == SERIALIZER_STATE.NOT_SERIALIZING)

    def serialize(self, data: tuple[Any, Any, Any, Any], id_: int) -> None:
        """`data` is (attributes, last entry, the one before, nodes); the machine's state is what counts."""
        _, last, previous, _ = data
        voters = self.voters_at(last[1])
        self.to_write = Snapshot(Entry(*previous), Entry(*last), self._take(), voters)
        self._state, self._id = SERIALIZER_STATE.SERIALIZING, id_

    def written(self, *, well: bool, keep: int = 0) -> None:
        """`keep` entries before it stay in the log, for followers that are not far behind."""
        if well:
            self.newest = self.to_write
            assert self._id is not None
            self._id -= keep
        self.to_write = None
        self._state = SERIALIZER_STATE.SUCCESS if well else SERIALIZER_STATE.FAILED

    def checkSerializing(self) -> tuple[int, int | None]:  # noqa: N802
        state = self._state
        if state in (SERIALIZER_STATE.SUCCESS, SERIALIZER_STATE.FAILED):
            self._state = SERIALIZER_STATE.NOT_SERIALIZING
        return state, self._id

    def deserialize(self) -> tuple[None, Entry, Entry, list[Any]]:
        """The shell has restored the machine already; SyncObj learns where its log begins."""
        assert self.newest is not None
        return None, self.newest.last, self.newest.previous, []


# --- the subclass ---------------------------------------------------------------------------------


def _settings(journal: Journal) -> SyncObjConf:
    return SyncObjConf(
        autoTick=False,  # our loop ticks
        journalFile=journal,
        # False opens a pipe. The shell sends without waiting for a batch all the same.
        appendEntriesUseBatch=True,
        appendEntriesPeriod=HEARTBEAT_S,
        # The shell says when a leader steps down (`lease_end`).
        leaderFallbackTimeout=NEVER,
        # The shell says when: SyncObj's own conditions are never met.
        logCompactionMinEntries=2**62,
        logCompactionMinTime=2**62,
        dynamicMembershipChange=False,
    )


class HeldSyncObj(SyncObj):  # type: ignore[misc]  # pysyncobj has no types
    """SyncObj without replicated methods: an entry is a kind and the bytes that `apply` is given.

    SyncObj applies a method that raised again and again, and nothing behind it, ever; `apply` must be total.
    """

    _SyncObj__leaderCommitIndex: int | None
    _SyncObj__raftLeader: Any
    _SyncObj__votedForNodeId: Any

    def __init__(
        self,
        node_id: BrokerId,
        voters: Voters,
        journal: Journal,
        transport: QuorumTransport,
        snapshots: Snapshots,
        apply: Callable[[bytes], object],
    ) -> None:
        self._apply = apply
        self._submitted: list[tuple[bytes, Callable[[object, int], None]]] = []
        self.node_id = node_id
        self.journal = journal
        self.snapshots = snapshots
        newest = snapshots.newest
        known = voters if newest is None or not newest.voters else newest.voters
        self.sets = VoterSets(0 if newest is None else newest.last.idx, known)
        super().__init__(Peer(node_id), [], conf=_settings(journal), transport=transport)
        self._transport = transport
        self._poller = NoPoller()
        self._SyncObj__serializer = snapshots
        snapshots.voters_at = self.sets_at
        if newest is not None:
            self._take_up_snapshot(clear=False)
        for place in range(len(journal)):
            self._note_voters(journal[place])
        self._voters_changed()

    def __dir__(self) -> list[str]:
        """SyncObj looks for replicated methods in every attribute, properties too. There are none."""
        return []

    # --- what it knows ---

    @property
    def term(self) -> int:
        return int(self._SyncObj__raftCurrentTerm)

    @property
    def leads(self) -> bool:
        """Whether it has been elected in this term. It may have been deposed since: `lease_end` tells."""
        return bool(self._SyncObj__raftState == LEADER)

    @property
    def commit_index(self) -> int:
        return int(self._SyncObj__raftCommitIndex)

    @property
    def applied_index(self) -> int:
        return int(self._SyncObj__raftLastApplied)

    @property
    def last(self) -> Entry:
        return self.journal[-1]

    @property
    def heartbeat_due(self) -> float:
        return float(self._SyncObj__newAppendEntriesTime)

    @property
    def leader_id(self) -> BrokerId | None:
        leader = self._getLeader()
        return None if leader is None else leader.id

    @property
    def voters(self) -> Voters:
        return self.sets.current

    @property
    def is_voter(self) -> bool:
        return self.node_id in self.voters

    @property
    def may_stand(self) -> bool:
        """A voter, or one until the set without it is committed: it may be all that has it (dissertation, §4.2.2)."""
        undecided = self.sets.index > self.commit_index
        return self.is_voter or (undecided and self.node_id in self.sets.before)

    @property
    def is_alone(self) -> bool:
        """The only voter: it need ask nobody."""
        return self.voters.keys() == {self.node_id}

    @property
    def has_begun_term(self) -> bool:
        """An entry of this term is applied, and so all that was committed in the terms before."""
        return self._term_at(self.applied_index) == self.term

    def _now(self) -> float:
        return steady()

    def _now_ms(self) -> int:
        return active_env.get().clock.now_ms()

    def _draw(self) -> float:
        return active_env.get().rng.random()

    def _warn(self, event: str, **fields: object) -> None:
        active_env.get().log.warn(event, **fields)

    def sets_at(self, index: int) -> Voters:
        return self.sets.at(index)

    def _term_at(self, index: int) -> int:
        return self.journal[index - self.journal[0].idx].term

    # --- what is asked of it ---

    def elect_at_once(self) -> None:
        """The next tick begins a term. SyncObj never does so by itself: the pre-vote comes first."""
        self._SyncObj__raftElectionDeadline = -NEVER

    def do_not_elect(self) -> None:
        self._SyncObj__raftElectionDeadline = NEVER

    def submit(self, entry: bytes, callback: Callable[[object, int], None]) -> None:
        """To be added to the log at the next tick, if this node leads then."""
        self._submitted.append((bytes([_REGULAR]) + entry, callback))

    def submit_voters(self, packed: bytes, callback: Callable[[object, int], None]) -> None:
        """Done when it is settled: once it is committed it is written a second time."""
        command = bytes([VOTERS_KIND]) + packed

        def once(result: object, reason: int) -> None:
            if reason == SUCCESS:
                self._submitted.append((command, callback))
            else:
                callback(result, reason)

        self._submitted.append((command, once))

    def settle_voters(self) -> None:
        """A leader before this one has left a set that is written once."""
        index = self.sets.index
        if not self.leads or self.sets.is_settled or index > self.commit_index:
            return
        if self._term_at(index) != self.term and not self.voters_submitted:
            command = bytes([VOTERS_KIND]) + write_voters(self.voters)
            self._submitted.append((command, lambda _result, _reason: None))

    @property
    def voters_submitted(self) -> bool:
        """A set of voters is on its way to the log, whoever still waits for it."""
        return any(entry[0] == VOTERS_KIND for entry, _ in self._submitted)

    @property
    def voters_to_be(self) -> Voters:
        """All who vote, and who do when what is on its way is in the log."""
        found = dict(self.voters)
        for entry, _ in self._submitted:
            if entry[0] == VOTERS_KIND:
                found.update(read_voters(entry[1:]))
        return found

    def adopt(self, term: int, voted_for: BrokerId | None = None) -> None:
        """Another node is in a later term: this one follows in it, and may vote for it at once."""
        assert term > self.term, "a term went backwards"
        self._SyncObj__setCurrentTerm(term, voted_for)
        self.step_down()

    def step_down(self) -> None:
        self._SyncObj__setState(FOLLOWER)
        self.forget_leader()

    def forget_leader(self) -> None:
        self._SyncObj__raftLeader = None

    def install(self, snapshot: Snapshot) -> None:
        """The machine has been restored from it: the log begins anew there."""
        assert snapshot is self.snapshots.newest and snapshot.last.idx > self.commit_index
        self._take_up_snapshot(clear=True)
        self._SyncObj__raftCommitIndex = snapshot.last.idx
        self.journal.setRaftCommitIndex(snapshot.last.idx)
        self._SyncObj__commandsWaitingCommit.clear()
        self.sets = VoterSets(snapshot.last.idx, snapshot.voters or self.voters)
        self._voters_changed()

    def _take_up_snapshot(self, *, clear: bool) -> None:
        self._SyncObj__loadDumpFile(clearJournal=clear)
        newest = self.snapshots.newest
        assert newest is not None and self.applied_index == newest.last.idx, "it was not taken up"

    # --- the log and the set of voters in it ---

    def _add(self, entry: Entry) -> None:
        self.journal.add(*entry)
        if self._note_voters(entry):
            self._voters_changed()

    def _note_voters(self, entry: Entry) -> bool:
        if entry.command[0] != VOTERS_KIND or entry.idx <= self.sets.index:
            return False
        self.sets.add(entry.idx, read_voters(entry.command[1:]))
        return True

    def _cut_from(self, index: int) -> None:
        assert index > self.commit_index, f"entry {index} is committed and is to be cut"
        self.journal.deleteEntriesFrom(index - self.journal[0].idx)
        before = self.sets.index
        self.sets.cut_from(index)
        if self.sets.index != before:
            self._voters_changed()

    def _voters_changed(self) -> None:
        """SyncObj counts majorities of `otherNodes` and this node, which always agrees.

        One that leads without a vote (it is being removed) must not count. Beside NOBODY, who never answers, it does not.
        """
        others = {Peer(each) for each in sorted(self.voters) if each != self.node_id}
        self._SyncObj__otherNodes = others if self.is_voter else others | {NOBODY}
        self._SyncObj__raftMatchIndex[NOBODY] = 0
        self._SyncObj__lastResponseTime[NOBODY] = -NEVER

    # --- what SyncObj does otherwise ---

    def _checkCommandsToApply(self) -> None:  # noqa: N802
        """SyncObj's sends a follower's commands on to the leader, unauthenticated as to what may be asked."""
        submitted, self._submitted = self._submitted, []
        for command, callback in submitted:
            if not self.leads:
                callback(None, FAIL_REASON.NOT_LEADER)
                continue
            index = self.last.idx + 1
            self._add(Entry(command, index, self.term))
            self._SyncObj__commandsWaitingCommit[index].append((self.term, callback))

    def _SyncObj__generateRaftTimeout(self) -> float:  # noqa: N802
        """SyncObj's election has no pre-vote: `ElectionMachine` says when, by `elect_at_once`."""
        return NEVER

    def _SyncObj__connectedToAnyone(self) -> bool:  # noqa: N802
        """The pre-vote has shown it."""
        return True

    def _SyncObj__setCurrentTerm(self, term: int, voted_for: BrokerId | None) -> None:  # noqa: N802
        """SyncObj's takes the vote up before it is stored: one that could not be stored would count all the same."""
        self.journal.setCurrentTerm(term, voted_for)
        if term > self.term:
            self._SyncObj__leaderCommitIndex = None  # it is told by the leader of a term
        self._SyncObj__raftCurrentTerm = term
        self._SyncObj__votedForNodeId = voted_for
        self.do_not_elect()  # whoever has given its vote away does not stand against it

    def _SyncObj__doApplyCommand(self, command: bytes) -> object:  # noqa: N802
        """SyncObj's unpickles what it applies, and numbers methods by their place in a sorted list."""
        kind = command[0]
        if kind in (_NO_OP, VOTERS_KIND):
            return None
        assert kind == _REGULAR, f"an entry of kind {kind} in the metadata log"
        return self._apply(command[1:])
