"""The follower's half of Raft: taking entries and snapshots from a leader, and saying what of them is held.

INVARIANT  what is said to be held has been synced, and follows on an entry that the leader has too.
PREVENTS   an acknowledged entry that a follower loses with its power: the next leader may never have had it.
PROVED BY  tests/cluster/quorum/test_raft_messages.py::test_an_answer_counts_only_what_the_follower_has_synced

SyncObj's own handler cuts its log whether or not there is a conflict, acknowledges before anything is synced, and
takes its commit index up to entries that the leader never mentioned. It is not called.
"""

from typing import Any, Final, NamedTuple

from ..base.errors import FrameRefused, LogDamaged
from ..base.ids import BrokerId
from .append_rules import Gap, judge_append
from .election_machine import ElectionMachine
from .held import FOLLOWER, Peer
from .raft_files import Snapshot, read_snapshot
from .raft_leader import LeaderSide
from .segment_format import Entry

SNAPSHOT_SIZE_MAX: Final = 1024 * 1024 * 1024
# A piece may have been changed on the way.
REFUSED_REST_S: Final = 2.0


class Owed(NamedTuple):
    """An answer that waits for the disk."""

    term: int
    leader_id: BrokerId
    matched: int
    stamp: float


class SnapshotReceiving:
    def __init__(self, last_index: int, last_term: int, size: int) -> None:
        self.what = (last_index, last_term, size)
        self.data = bytearray()


class FollowerSide(LeaderSide):
    """`to_install` is a whole, sound snapshot: the shell stores it, restores the machine, and calls `install`."""

    def __init__(self, *args: Any) -> None:
        self._owed: Owed | None = None
        self._receiving: SnapshotReceiving | None = None
        self._rests_until = 0.0  # after a snapshot that can't be read
        # A term, and what its leader had committed when it last sent what fits on this log.
        self._fitted = (0, 0)
        self.to_install: Snapshot | None = None
        super().__init__(*args)
        self.election = ElectionMachine(self._now(), self._draw, first=self.journal.vote.fresh)

    # --- a leader is heard ---

    def _hear_leader(self, leader_id: BrokerId) -> None:
        """A second one of a term can't be: it lies, or its vote does. Whoever was heard first is believed."""
        known = self.node_id if self.leads else self.leader_id
        if known not in (None, leader_id) or leader_id == self.node_id:
            raise FrameRefused(
                f"Node {leader_id} says that it leads term {self.term} of the quorum; node {known} does."
            )
        self._SyncObj__setState(FOLLOWER)
        self._SyncObj__raftLeader = Peer(leader_id)
        self.do_not_elect()
        self.election.heard_leader(self._now())

    def _on_append_entries(self, node_id: BrokerId, message: dict[str, Any]) -> None:
        self._hear_leader(node_id)
        entries = message["entries"]
        previous = message["previous_index"], message["previous_term"]
        for place, entry in enumerate(entries, start=previous[0] + 1):
            if entry.idx != place or entry.term > self.term:
                raise FrameRefused(f"Node {node_id} sent entries that do not follow each other.")
        verdict = judge_append(self.journal, self.commit_index, previous, entries)
        stamp = message["stamp"]
        # How far the leader was when it said so: what this node must have applied to be ready.
        self._SyncObj__leaderCommitIndex = message["commit_index"]
        if isinstance(verdict, Gap):
            answer = {"type": "gap", "next_index": verdict.next_index, "stamp": stamp}
            self._transport.say(node_id, answer)
            return
        self._fitted = self.term, message["commit_index"]
        if verdict.cut_from is not None:
            self._cut_from(verdict.cut_from)
            self._owed = None
        for entry in verdict.new:
            self._add(entry)
        # What lies behind `matched` may be of an older leader, and is committed by nobody.
        commit_index = max(self.commit_index, min(message["commit_index"], verdict.matched))
        self._SyncObj__raftCommitIndex = commit_index
        self.journal.setRaftCommitIndex(commit_index)
        self._owe(node_id, verdict.matched, stamp)

    # --- what is held ---

    def _owe(self, leader_id: BrokerId, matched: int, stamp: float) -> None:
        owed = self._owed
        if owed is not None and (owed.term, owed.leader_id) == (self.term, leader_id):
            matched = max(matched, owed.matched)
        self._owed = Owed(self.term, leader_id, matched, stamp)
        if self.journal.durable_last < matched:
            self._transport.say(leader_id, {"type": "alive", "stamp": stamp})
        else:
            self.say_what_is_held()

    def say_what_is_held(self) -> None:
        """The disk is further than it was."""
        owed = self._owed
        if owed is None or owed.term != self.term or owed.leader_id != self.leader_id:
            self._owed = None
            return
        held = min(owed.matched, self.journal.durable_last)
        if held == owed.matched:
            self._owed = None
        answer = {"type": "held", "next_index": held + 1, "stamp": owed.stamp}
        self._transport.say(owed.leader_id, answer)

    def maybe_grow_up(self) -> None:
        """A fresh voter has all that was committed when its leader, in this term, last sent what fits on its log. One that has not
        heard yet how little there is here may count what there was before its disk was lost, and commit more by that.

        Its vote in this term is the leader's: it may have given it before its disk was lost.
        """
        vote, (term, known) = self.journal.vote, self._fitted
        if not vote.fresh or self.leads or self.leader_id is None or term != self.term:
            return
        if self.applied_index < known or self.journal.durable_last < known:
            return
        if self.has_begun_term:
            voted_for = self.leader_id if vote.voted_for is None else vote.voted_for
            vote.store(self.term, voted_for, fresh=False)
            self._SyncObj__votedForNodeId = voted_for

    # --- a snapshot ---

    def _on_snapshot(self, node_id: BrokerId, message: dict[str, Any]) -> None:
        self._hear_leader(node_id)
        last_index, stamp = message["last_index"], message["stamp"]
        if self._has_entry(last_index, message["last_term"]):
            self._receiving = None
            self._owe(node_id, last_index, stamp)
            return
        wanted: int | None = None
        if message["data"] and self.to_install is None and self._now() >= self._rests_until:
            wanted = self._take_piece(node_id, message)
        if wanted is None:
            self._transport.say(node_id, {"type": "alive", "stamp": stamp})
            return
        answer = {"type": "snapshot_wanted", "last_index": last_index, "position": wanted}
        self._transport.say(node_id, {**answer, "stamp": stamp})

    def _take_piece(self, node_id: BrokerId, message: dict[str, Any]) -> int | None:
        """Where the next piece begins, or None when there is all of it, or none is wanted."""
        index, term, size = message["last_index"], message["last_term"], message["size"]
        if not 0 < size <= SNAPSHOT_SIZE_MAX:
            raise FrameRefused(f"Node {node_id} sends a snapshot of {size} bytes.")
        receiving = self._receiving
        if receiving is None or receiving.what != (index, term, size):
            receiving = self._receiving = SnapshotReceiving(index, term, size)
        if message["position"] == len(receiving.data):
            receiving.data += message["data"]
        if len(receiving.data) < size:
            return len(receiving.data)
        self._receiving = None
        try:
            snapshot = read_snapshot(f"The snapshot of node {node_id}", bytes(receiving.data))
        except (LogDamaged, ValueError, TypeError) as trouble:
            self._warn("quorum_snapshot_refused", node=node_id, cause=str(trouble))
            self.rest_from_snapshots(REFUSED_REST_S)
            return None
        if (snapshot.last.idx, snapshot.last.term) != (index, term):
            raise FrameRefused(f"Node {node_id} sent another snapshot than it said.")
        self.to_install = snapshot
        return None

    def rest_from_snapshots(self, seconds: float) -> None:
        """None is asked for: the leader would send the same one again, as fast as the network is."""
        self._rests_until = self._now() + seconds

    def has(self, entry: Entry) -> bool:
        """Whether all up to it is in the log, or was."""
        return self._has_entry(entry.idx, entry.term)

    def _has_entry(self, index: int, term: int) -> bool:
        first, last = self.journal[0].idx, self.last.idx
        if index <= self.commit_index:
            return True
        return first <= index <= last and self._term_at(index) == term

    def installed(self) -> None:
        """The next append of the leader is answered by what is held now."""
        self.to_install = None
        self._owed = None
