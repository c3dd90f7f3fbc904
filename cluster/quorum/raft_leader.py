"""The leader's half of Raft: sending the log, counting who holds it, and knowing when its lead is over.

INVARIANT  a node counts as holding an entry only after it said so, in this term, of what it had synced.
PREVENTS   a commit that a majority does not hold: it is lost with the next leader.
PROVED BY  tests/cluster/quorum/test_raft_messages.py::test_an_answer_counts_only_what_the_follower_has_synced,
           tests/cluster/quorum/test_settled_voters.py::test_what_a_new_voter_and_one_of_two_have_is_not_committed_until_the_other_knows_of_it,
           tests/cluster/quorum/test_raft_leading.py::test_an_answer_of_an_earlier_term_counts_nothing

SyncObj still decides what is committed; it reads `raftMatchIndex` and `lastResponseTime`, which are kept here.
"""

import math
from collections.abc import Collection, Sequence
from typing import Any, Final

from ..base.errors import FrameRefused
from ..base.ids import BrokerId
from .election_machine import ELECTION_S
from .held import NEVER, HeldSyncObj, Peer
from .progress import (
    APPEND_BYTES_MAX,
    UNDER_WAY_ENTRIES_MAX,
    Progress,
    SnapshotSending,
    first_bytes,
    size_of,
)
from .segment_format import Entry
from .voters import Voters, majority

# A member that only reads and has not answered for so long is not sent to any more; it asks again when it is back.
OBSERVER_SILENT_S: Final = 10.0
# A voter that has not answered for so long is taken for dead when voters change.
SILENT_S: Final = 2 * ELECTION_S
# No two clocks run equally fast.
LEASE_S: Final = 0.9 * ELECTION_S
# The round of a pre-vote that a leader grants unasked, to whoever stands next. Nobody asks in it: rounds begin at 1.
LETS_GO: Final = 0


class LeaderSide(HeldSyncObj):
    """Methods of a node that leads, or does not: then they do nothing."""

    def __init__(self, *args: Any) -> None:
        self._progress: dict[BrokerId, Progress] = {}
        self._said = -NEVER
        super().__init__(*args)

    @property
    def progress(self) -> dict[BrokerId, Progress]:
        """Of every node that is sent to."""
        return self._progress

    @property
    def observers(self) -> list[BrokerId]:
        return [each for each in self._progress if each not in self.voters]

    def lease_end(self) -> float:
        """Until then, by the steady clock, no other node can have been elected; the past when this one does not lead.

        A voter that hears a leader grants no pre-vote for ELECTION_S, and it heard after the leader had spoken. Its
        clock may be a tenth faster than this one.
        """
        if not self.leads:
            return -NEVER
        answered = sorted(
            (
                NEVER if each == self.node_id else self._progress[each].answered
                for each in self.voters
            ),
            reverse=True,
        )
        return answered[majority(len(answered)) - 1] + LEASE_S

    def ask_if_it_leads(self) -> float:
        """Say something to everybody; the moment, for `leads_since`."""
        assert self.leads, "it does not lead"
        asked = self._stamp()
        self.replicate()
        return asked

    def leads_since(self, asked: float) -> bool:
        """Whether it still led then, by what a majority has answered since, whatever clocks did meanwhile.

        Who answers in this term has voted in no later one, and what is answered was said after the question.
        """
        if not self.leads:
            return False
        answered = sum(
            each == self.node_id or self._progress[each].echoed > asked for each in self.voters
        )
        return answered >= majority(len(self.voters))

    def silent(self, voters: Collection[BrokerId], now: float) -> list[BrokerId]:
        """Those of them that have not answered this leader for a while, or ever: a vote is no answer, for it may be of one that died since."""
        since = now - SILENT_S
        heard = (each for each in self._progress if self._progress[each].echoed >= since)
        return sorted({*voters} - {*heard, self.node_id})

    # --- what it sends ---

    def _stamp(self) -> float:
        """Now; later than whatever was said before, though the clock may not have moved."""
        self._said = max(self._now(), math.nextafter(self._said, NEVER))
        return self._said

    def _SyncObj__sendAppendEntries(self) -> None:  # noqa: N802
        """SyncObj's sends entries of over 64 KiB in pickles, snapshots in one go, and asks what is connected."""
        now = self._now()
        self._SyncObj__newAppendEntriesTime = now + self.conf.appendEntriesPeriod
        for progress in list(self._progress.values()):
            silent = now - progress.answered > OBSERVER_SILENT_S
            if silent and progress.node_id not in self.voters:
                del self._progress[progress.node_id]
            else:
                self._send_to(progress, now)

    def replicate(self) -> None:
        """Everybody hears what is new, and how far the commit is."""
        assert self.leads, "it does not lead"
        self._SyncObj__sendAppendEntries()

    def send_to(self, node_id: BrokerId) -> None:
        progress = self._progress.get(node_id)
        if self.leads and progress is not None:
            self._send_to(progress, self._now())

    def _send_to(self, progress: Progress, now: float) -> None:
        """At least one message: it is a heartbeat too."""
        first, last = self.journal[0].idx, self.last.idx
        if progress.next_index <= first:
            self._send_snapshot(progress, now)
            return
        while True:
            start = progress.next_index - first
            previous = self.journal[start - 1]
            entries: Sequence[Entry] = ()
            if progress.has_room():
                ahead = self.journal.between(start, UNDER_WAY_ENTRIES_MAX)
                entries = first_bytes(ahead, APPEND_BYTES_MAX)
            self._transport.say(
                progress.node_id,
                {
                    "type": "append_entries",
                    "commit_index": self.commit_index,
                    "entries": list(entries),
                    "previous_index": previous.idx,
                    "previous_term": previous.term,
                    "stamp": self._stamp(),
                },
            )
            progress.sent(entries)
            if not entries or progress.next_index > last or not progress.has_room():
                return

    def _send_snapshot(self, progress: Progress, now: float) -> None:
        newest = self.snapshots.newest
        assert newest is not None, "the log has lost its head without a snapshot"
        sending = progress.sending
        if sending is None:
            sending = progress.sending = SnapshotSending(newest)
        stamp = self._stamp()
        self._transport.say(
            progress.node_id,
            {
                "type": "snapshot",
                "last_index": sending.last.idx,
                "last_term": sending.last.term,
                "position": sending.position,
                "size": len(sending.data),
                "data": sending.chunk(now, stamp),  # a message without is a heartbeat
                "stamp": stamp,
            },
        )

    # --- what it hears ---

    def _on_answer(self, node_id: BrokerId, message: dict[str, Any]) -> Progress | None:
        """Of a follower in this term."""
        progress = self._progress.get(node_id)
        if not self.leads or progress is None:
            return None
        if message["stamp"] > max(self._now(), self._said):
            raise FrameRefused(f"Node {node_id} answers what was not said yet.")
        progress.answered = max(progress.answered, message["stamp"])
        progress.echoed = max(progress.echoed, message["stamp"])
        progress.heard_ms = self._now_ms()
        self._SyncObj__lastResponseTime[Peer(node_id)] = progress.answered
        return progress

    def _on_alive(self, node_id: BrokerId, message: dict[str, Any]) -> None:
        self._on_answer(node_id, message)

    def _on_held(self, node_id: BrokerId, message: dict[str, Any]) -> None:
        progress = self._on_answer(node_id, message)
        if progress is None:
            return
        if message["next_index"] > self.last.idx + 1:
            raise FrameRefused(f"Node {node_id} claims to hold what this leader does not have.")
        progress.on_held(message["next_index"], stamp=message["stamp"])
        self._count(progress)
        start = progress.match_index + 1 - self.journal[0].idx
        under_way = progress.next_index - progress.match_index - 1
        progress.bytes_under_way = (
            size_of(self.journal.between(start, under_way)) if start > 0 else 0
        )
        if progress.match_index == self.last.idx:
            progress.caught_up_ms = progress.heard_ms
        elif progress.next_index <= self.last.idx and progress.has_room():
            self._send_to(progress, self._now())

    def _count(self, answered: Progress) -> None:
        """How far SyncObj may count that node."""
        if self.sets.index > self.commit_index:
            self._count_holders_of_a_new_set()
        else:
            peer = Peer(answered.node_id)
            self._SyncObj__raftMatchIndex[peer] = answered.match_index

    def _count_holders_of_a_new_set(self) -> None:
        """A new set of voters, what is behind it, and what is not committed yet in front of it wait for a majority of the set before, too.

        1. of 1 and 3, 3 leads and adds 4, which 1 has not heard   2. 3 and 4 commit that, and more   3. the disk of 3 is lost
        4. it votes for 1, which has then all votes of the set that it knows. Two of the old set have the new one now: one refuses.
        """
        before = self.sets.before
        most = NEVER if not before else self._held_by_most(before)
        for progress in self._progress.values():
            match = progress.match_index
            if most < self.sets.index:
                match = min(match, int(most))
            self._SyncObj__raftMatchIndex[Peer(progress.node_id)] = match

    def _held_by_most(self, voters: Voters) -> float:
        """How far a majority of them holds the log. This node's own is durable whenever it counts."""
        held = [
            NEVER if each == self.node_id else self._progress[each].match_index
            for each in voters
            if each == self.node_id or each in self._progress
        ]
        held += [0] * (len(voters) - len(held))
        return sorted(held, reverse=True)[majority(len(voters)) - 1]

    def _on_gap(self, node_id: BrokerId, message: dict[str, Any]) -> None:
        progress = self._on_answer(node_id, message)
        if progress is None:
            return
        now, stamp = self._now(), message["stamp"]
        if progress.on_gap(message["next_index"], self.last.idx, stamp=stamp, now=now):
            self._count(progress)
            self._send_to(progress, now)

    def _on_snapshot_wanted(self, node_id: BrokerId, message: dict[str, Any]) -> None:
        progress = self._on_answer(node_id, message)
        if progress is None or progress.sending is None:
            return
        sending = progress.sending
        if message["last_index"] != sending.last.idx:
            return
        if sending.on_wanted(message["position"], stamp=message["stamp"]):
            self._send_snapshot(progress, self._now())

    def _on_follow(self, node_id: BrokerId, message: dict[str, Any]) -> None:
        """A node hears no leader: from now on it does."""
        who = message["node_id"]
        if self.leads:
            if who not in self._progress and who != self.node_id:
                self._follow(who)
            self.send_to(who)
        elif self.leader_id is not None and who == node_id:
            self._transport.say(self.leader_id, {"type": "follow", "node_id": who})

    def _follow(self, node_id: BrokerId) -> None:
        now = self._now()
        self._progress[node_id] = Progress(node_id, self.last.idx + 1, now)
        self._SyncObj__raftMatchIndex[Peer(node_id)] = 0
        self._SyncObj__lastResponseTime[Peer(node_id)] = now

    # --- coming and going ---

    def _SyncObj__onBecomeLeader(self) -> None:  # noqa: N802
        assert self.may_stand, "a node that is no voter was elected"
        self._progress = {}
        for each in sorted(self.voters):
            if each != self.node_id:
                self._follow(each)
        super()._SyncObj__onBecomeLeader()

    def _voters_changed(self) -> None:
        """One who votes no more is sent to all the same: it has to learn that, and goes on reading."""
        super()._voters_changed()
        if not self.leads:
            return
        for each in sorted(self.voters):
            if each != self.node_id and each not in self._progress:
                self._follow(each)
        self._count_holders_of_a_new_set()

    def hand_over(self) -> None:
        """Whoever holds all of the log need not wait until this node is missed. From here on it must not lead any more.

        The others are let go first: they vote for nobody else while they hear this node.
        """
        others = [each for each in sorted(self.voters) if each in self._progress]
        heirs = [each for each in others if self._progress[each].match_index == self.last.idx]
        if not heirs:
            return
        for each in others:
            if each != heirs[0]:
                granted = {"type": "pre_vote_granted", "round": LETS_GO, "fresh": False}
                self._transport.say(each, granted)
        self._transport.say(heirs[0], {"type": "timeout_now"})
