"""A voter that is alone by its settings, with an empty folder: is this the first day of a cluster, or was a disk lost?

INVARIANT  it begins a cluster only when for LISTEN_S nobody has shown that there is one: by a term, or by voters that it does
           not know. Who has heard of one takes part in that, as a fresh voter, and never stands by its settings.
PREVENTS   the first voter of a cluster that has grown, with another disk and the settings of the first day: it elected itself
           in a term that it had led before, its vote counted in full, and what it had acknowledged was lost, or a second
           cluster answered at its address.
PROVED BY  tests/sim/test_grown_from_one.py::test_the_first_voters_lost_disk_takes_nothing_that_was_committed_with_it
           tests/cluster/quorum/test_first_day.py::test_a_lone_first_voter_whose_disk_was_lost_is_fresh

It hears nothing where all others are down, or can't reach it. Settings that name all voters are sure, and so
`fencepost node voters add` says.
"""

from collections.abc import Iterable
from typing import Any, Final

from ..base.ids import BrokerId
from .raft_follower import FollowerSide
from .voters import Voters

# Peers dial again each half second (`PeerTimes.retry_max_s`), those that met silence a little later.
LISTEN_S: Final = 5.0
NOTHING_YET: Final = 1  # SyncObj begins its log with an entry of its own


class FirstDay(FollowerSide):
    def __init__(self, *args: Any) -> None:
        self.listens_until = 0.0
        self._others: set[BrokerId] = set()  # who belongs to a cluster, as they have shown
        super().__init__(*args)

    @property
    def is_alone_by_settings(self) -> bool:
        """The only voter, and neither log nor snapshot says so."""
        return self.sets.index == 0 and super().is_alone

    @property
    def _may_be_first_day(self) -> bool:
        return self.journal.vote.fresh and not self.leads and self.is_alone_by_settings

    @property
    def is_another_day(self) -> bool:
        """There is a cluster: others are in it, or have sent some of its log before this process began."""
        known = self._others or self.last.idx > NOTHING_YET
        return bool(known) and self._may_be_first_day

    @property
    def is_alone(self) -> bool:
        return super().is_alone and not self.is_another_day

    @property
    def may_stand(self) -> bool:
        return super().may_stand and not self.is_another_day

    @property
    def is_beginning(self) -> bool:
        """It has begun a cluster, or is the only voter of one since the first day."""
        return self.is_alone_by_settings and not self.journal.vote.fresh

    def maybe_grow_up(self) -> None:
        """Who has a leader and is alone by its settings has the wrong ones: it stays fresh, and never stands by them."""
        if not self.is_alone_by_settings:
            super().maybe_grow_up()

    def listens(self, now: float) -> bool:
        """Whether it may still come to hear of a cluster."""
        return now < self.listens_until and self.is_alone and self._may_be_first_day

    def listen(self, now: float) -> None:
        self.listens_until = now + LISTEN_S

    def shows(self, node_id: BrokerId, *, term: int = 0, voters: Voters | None = None) -> None:
        """Somebody says something that nobody could say on the first day of this node's cluster."""
        if not term and set(voters or ()) <= {self.node_id}:
            return
        if node_id in self._others or not self._may_be_first_day:
            return
        self._others.add(node_id)
        if len(self._others) == 1:
            self._warn(
                "quorum_is_of_others",
                node=node_id,
                cause="Its folder is empty and its settings name no other voter, but that one belongs to a cluster"
                " already: a leader of that sends its log. To begin another cluster, stop the nodes of the old one."
                " Settings with all voters say it at once.",
            )

    def who_has_shown(self) -> list[BrokerId]:
        return sorted(self._others) if self.is_another_day else []

    def whom_to_follow(self) -> Iterable[BrokerId]:
        """Whoever may lead, or know who does."""
        return sorted({*self.voters, *self._others} - {self.node_id})
