"""Raft of one node: who leads, which terms there are, and what each message does. Leading and following are its halves.

INVARIANT  a voter elects one candidate in a term, whose log is as far as its own; votes are counted by voter.
PREVENTS   two leaders in one term, and a leader that lacks what was committed before it.
PROVED BY  tests/cluster/quorum/test_raft_messages.py::test_a_voter_that_votes_twice_is_counted_once,
           tests/cluster/quorum/test_raft_messages.py::test_one_vote_a_term_and_it_is_on_the_disk_before_it_leaves,
           tests/cluster/quorum/test_raft_messages.py::test_who_is_less_far_gets_no_vote,
           tests/cluster/quorum/test_raft_messages.py::test_a_vote_that_was_given_in_an_earlier_term_makes_no_leader_of_a_later_one

Whatever is said carries its sender's term. What is of an earlier term is not listened to, and its sender is told that
it is behind; a later term is taken up before the message is looked at.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from ..base.errors import FrameRefused
from ..base.ids import BrokerId
from .first_day import FirstDay
from .held import CANDIDATE
from .raft_leader import LETS_GO
from .transport import read_message
from .voters import is_elected

_TOLD_WHEN_BEHIND: Final = frozenset(
    {"append_entries", "snapshot", "pre_vote", "request_vote", "follow"}
)
# How often a voter says for whom it waits.
COMPLAIN_S: Final = 5.0
# Between two that have not heard each other for long: ten elections a second for ten years. Terms end (`transport._TERM_END`).
TERMS_AHEAD_MAX: Final = 2**32


class Raft(FirstDay):
    def __init__(self, *args: Any) -> None:
        self._complain_at = 0.0
        self.handed_by: BrokerId | None = None  # the leader that asked this node to take over
        self._votes: dict[BrokerId, bool] = {}  # for this node, and whether the voter is fresh
        super().__init__(*args)
        self._handlers: Mapping[str, Callable[[BrokerId, dict[str, Any]], None]] = {
            "pre_vote": self._on_pre_vote,
            "pre_vote_granted": self._on_pre_vote_granted,
            "request_vote": self._on_request_vote,
            "response_vote": self._on_response_vote,
            "append_entries": self._on_append_entries,
            "held": self._on_held,
            "gap": self._on_gap,
            "alive": self._on_alive,
            "snapshot": self._on_snapshot,
            "snapshot_wanted": self._on_snapshot_wanted,
            "follow": self._on_follow,
            "timeout_now": self._on_timeout_now,
            "behind": lambda _node_id, _message: None,
        }

    def is_up_to_date(self) -> bool:
        """A leader is known, and all is applied that it had committed when it was last heard, in its term."""
        known: int | None = self._SyncObj__leaderCommitIndex
        if self.leader_id is None or known is None or not self.has_begun_term:
            return False
        return self.leads or self.applied_index >= known

    @property
    def known_commit(self) -> int:
        """The last entry that this node knows to be committed, whether it has that or not."""
        known: int | None = self._SyncObj__leaderCommitIndex
        return self.commit_index if self.leads or known is None else max(known, self.commit_index)

    def has_left(self) -> bool:
        """A leader that removed itself goes when the others have agreed."""
        return not self.is_voter and self.sets.is_settled and self.sets.index <= self.commit_index

    def elects_itself(self, now: float) -> bool:
        """A voter alone need ask nobody. But while it hears the one that removed the others, that is not settled yet."""
        hears = self.leader_id is not None and not self.election.misses_leader(now)
        return self.is_alone and not self.leads and not hears and not self.listens(now)

    # --- messages ---

    def receive(self, node_id: BrokerId, frame: bytes | memoryview) -> None:
        """A frame of a peer, whose identity the door has checked. FrameRefused closes its connection.

        OSError when a vote or a term could not be stored: nothing has come of the message then.
        """
        sender_term, message = read_message(frame)
        kind = message["type"]
        if "term" in message and message["term"] != sender_term:
            raise FrameRefused(f"A {kind} of term {message['term']} was said in {sender_term}.")
        self.shows(node_id, term=sender_term)
        if sender_term < self.term:
            if kind in _TOLD_WHEN_BEHIND:
                self._transport.say(node_id, {"type": "behind"})
            return
        if kind == "request_vote" and not self.leads and not self._misses_leader():
            return  # not even its term is taken up: whoever leads has this node's promise (dissertation, §4.2.3)
        if sender_term > self.term + TERMS_AHEAD_MAX:
            raise FrameRefused(f"Node {node_id} is in term {sender_term}, this one in {self.term}.")
        if sender_term > self.term:
            votes = kind == "request_vote" and self._is_as_far(message)
            self.adopt(sender_term, node_id if votes else None)  # stored together: once
        self._handlers[kind](node_id, message)

    # --- before a term ---

    def ask_for_leader(self, *, disk_works: bool) -> None:
        if not self.may_stand:
            self.ask_to_follow()
        elif disk_works:
            self.ask_pre_vote()
        else:
            self.election.stand(self._now())  # later

    def ask_pre_vote(self) -> None:
        """Whether the other voters miss their leader too."""
        self.forget_leader()
        self.handed_by = None
        self._say_who_is_missing()
        round_ = self.election.ask(self._now(), self.node_id, fresh=self.journal.vote.fresh)
        message = {
            "type": "pre_vote",
            "round": round_,
            "last_log_index": self.last.idx,
            "last_log_term": self.last.term,
        }
        for each in sorted(self.voters):
            if each != self.node_id:
                self._transport.say(each, message)

    def _say_who_is_missing(self) -> None:
        """The one case in which a majority is not enough: a person may wonder, and can start the others."""
        missing = self.election.waits_for(self.voters)
        if missing and self._now() >= self._complain_at:
            self._complain_at = self._now() + COMPLAIN_S
            self._warn(
                "quorum_waits_for_all_voters",
                missing=missing,
                cause="A voter began with an empty folder: a first election, or one after a disk was"
                " replaced, needs every voter.",
            )

    def ask_to_follow(self) -> None:
        """A node that does not vote and hears no leader: one of those may lead."""
        self.forget_leader()
        self.election.ask(self._now(), self.node_id, fresh=True)
        for each in self.whom_to_follow():
            self._transport.say(each, {"type": "follow", "node_id": self.node_id})

    def _misses_leader(self) -> bool:
        now = self._now()
        return self.lease_end() <= now if self.leads else self.election.misses_leader(now)

    def _on_pre_vote(self, node_id: BrokerId, message: dict[str, Any]) -> None:
        misses = self._misses_leader()
        if not misses:
            # It does not hear the leader; it may not even know that it votes no more.
            self._on_follow(node_id, {"node_id": node_id})
        if misses and self._is_as_far(message):
            fresh = self.journal.vote.fresh
            answer = {"type": "pre_vote_granted", "round": message["round"], "fresh": fresh}
            self._transport.say(node_id, answer)

    def _on_pre_vote_granted(self, node_id: BrokerId, message: dict[str, Any]) -> None:
        round_, fresh = message["round"], message["fresh"]
        if round_ == LETS_GO and node_id == self.leader_id:
            self.election.let_go(self._now())
        if self.leads or not self.may_stand:
            return
        if self.election.on_granted(node_id, round_, self.voters, fresh=fresh):
            self.election.stand(self._now())
            self.elect_at_once()

    def _on_timeout_now(self, node_id: BrokerId, _message: dict[str, Any]) -> None:
        if node_id == self.leader_id and self.may_stand:
            self.handed_by = node_id
            self.election.stand(self._now())
            self.elect_at_once()

    # --- votes ---

    def _is_as_far(self, message: Mapping[str, Any]) -> bool:
        """Whether the asker's log has all that may be committed of this node's (Raft, §5.4.1)."""
        theirs = message["last_log_term"], message["last_log_index"]
        return bool(theirs >= (self.last.term, self.last.idx))

    def _on_request_vote(self, node_id: BrokerId, message: dict[str, Any]) -> None:
        if self.leads or not self._is_as_far(message):
            return
        if self._SyncObj__votedForNodeId not in (None, node_id):
            return
        self._SyncObj__setCurrentTerm(self.term, node_id)
        self.election.voted(self._now())
        fresh = self.journal.vote.fresh
        answer = {"type": "response_vote", "term": self.term, "fresh": fresh}
        self._transport.say(node_id, answer)

    def _on_response_vote(self, node_id: BrokerId, message: dict[str, Any]) -> None:
        """SyncObj's counts messages; this counts voters."""
        if self._SyncObj__raftState != CANDIDATE:
            return
        self._votes[node_id] = message["fresh"]
        if is_elected(self.voters, self._votes):
            self._SyncObj__onBecomeLeader()

    def _SyncObj__setCurrentTerm(self, term: int, voted_for: BrokerId | None) -> None:  # noqa: N802
        super()._SyncObj__setCurrentTerm(term, voted_for)
        if voted_for == self.node_id:
            self._votes = {self.node_id: self.journal.vote.fresh}

    def _SyncObj__onBecomeLeader(self) -> None:  # noqa: N802
        vote = self.journal.vote
        vote.store(vote.term, vote.voted_for, fresh=False)
        super()._SyncObj__onBecomeLeader()
