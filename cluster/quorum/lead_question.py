"""Whether this node leads the quorum still, by what a majority says after the question and not by a clock.

INVARIANT  a question is answered with yes only when a majority has answered, in this term, what was said to it afterwards.
PREVENTS   a machine that was suspended as a whole, whose clock stood still meanwhile: it wakes up with a lease that has not
           run out, for an instant, while another leads, and answers for the cluster with what it knew long ago.
PROVED BY  tests/cluster/quorum/test_lead_question.py::test_a_machine_that_was_suspended_does_not_lead_by_its_lease_alone

All who ask while a question is on its way share the next one: it costs a round trip, however many they are.
"""

import asyncio

from ..base.ports import Env
from .raft import Raft
from .redirected import in_world

Answer = asyncio.Future[bool]


class LeadQuestion:
    def __init__(self, env: Env) -> None:
        self._env = env
        self._under_way: list[Answer] = []
        self._coming: list[Answer] = []
        self._asked, self._term = 0.0, 0

    async def ask(self, raft: Raft) -> bool:
        """Of a leader. False when it ceased to lead; it does soon when nobody answers."""
        answer: Answer = asyncio.get_running_loop().create_future()
        self._coming.append(answer)
        self._begin(raft)
        return await answer

    def look(self, raft: Raft) -> None:
        """Somebody has answered something."""
        if self._under_way and raft.term == self._term and raft.leads_since(self._asked):
            _tell(self._under_way, leads=True)
            self._begin(raft)

    def give_up(self) -> None:
        """It leads no more."""
        _tell(self._under_way + self._coming, leads=False)
        self._under_way.clear()
        self._coming.clear()

    def _begin(self, raft: Raft) -> None:
        self._under_way = [each for each in self._under_way if not each.done()]
        if self._under_way or not self._coming:
            return
        self._under_way, self._coming = self._coming, []
        with in_world(self._env):
            self._asked, self._term = raft.ask_if_it_leads(), raft.term
        self.look(raft)  # a voter alone has nobody to ask


def _tell(waiting: list[Answer], *, leads: bool) -> None:
    for each in waiting:
        if not each.done():
            each.set_result(leads)
