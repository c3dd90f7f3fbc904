"""Who leads the quorum, told to people: on the node that begins or ceases to lead, with the reason.

What others see of it is told at level debug: a change of leader is one line of a cluster, not one of each node.
"""

from typing import NamedTuple

from ..base.ids import BrokerId
from ..base.ports import Env
from .election_machine import ELECTION_S


class Lead(NamedTuple):
    leader_id: BrokerId | None
    term: int
    is_ours: bool


class LeadNews:
    def __init__(self, env: Env, node_id: BrokerId) -> None:
        self._env = env
        self._me = node_id
        self._last = Lead(None, 0, is_ours=False)
        self._known: BrokerId | None = None  # whoever led last
        self._dead: BrokerId | None = None

    def on_gone(self, node_id: BrokerId) -> None:
        """Its process is dead, as the peer door says."""
        self._dead = node_id

    def tell(
        self, now: Lead, handed_by: BrokerId | None, *, is_alone: bool, has_left: bool
    ) -> None:
        """`handed_by` asked this node to take over; `has_left`: it votes no more."""
        if now.leader_id == self._me and not now.is_ours:
            return  # elected; it leads when it has applied what its predecessors committed
        before, self._last = self._last, now
        log = self._env.log
        if now.is_ours and not before.is_ours:
            why = "it is the only voter" if is_alone else self._why_elected(handed_by)
            log.info("quorum_leader_elected", term=now.term, before=self._known, cause=why)
            self._dead = None
        elif before.is_ours and not now.is_ours:
            why = "no majority of the voters answered in time, or its disk can't be written"
            if has_left:
                why = "it was removed from the voters"
            elif now.term > before.term:
                why = "another node began an election, as it missed this one"
            log.warn("quorum_lead_lost", term=now.term, leader=now.leader_id, cause=why)
        elif now.leader_id is not None and now[:2] != before[:2]:
            log.debug("quorum_leader_seen", leader=now.leader_id, term=now.term)
            self._dead = None
        if now.leader_id is not None:
            self._known = now.leader_id

    def _why_elected(self, handed_by: BrokerId | None) -> str:
        if handed_by is not None:
            return f"node {handed_by} handed over"
        if self._known is None:
            return "no leader was known"
        if self._dead == self._known:
            return f"the process of node {self._dead} is dead"
        return f"node {self._known} was not heard for {ELECTION_S} s"
