"""Who leads when: one leader for each epoch, epochs that rise, leaders who may have all that was committed.

INVARIANT  of a partition, a leader epoch has one leader on all nodes and for ever; a partition epoch has one
           state; neither goes back within the life of a node; a leader comes from the ISR or the ELR before it, unless nobody
           led and a person had given up by name what those have.
PREVENTS   two nodes that both take writes for one partition, and a leader that lacks an acknowledged batch.
PROVED BY  tests/chaos/test_cluster_checkers.py::test_two_leaders_of_one_epoch_are_an_anomaly,
           tests/chaos/test_cluster_checkers.py::test_an_epoch_between_the_first_and_the_last_of_a_node_is_taken_back
"""

from .history import Anomaly
from .observations import Described, Leads

NOBODY = -1


class Epochs:
    def __init__(self) -> None:
        self._leaders: dict[tuple[str, int], int] = {}
        self._states: dict[tuple[str, int], Described] = {}
        self._latest: dict[tuple[int, int, str], Described] = {}
        self.newest: dict[str, Described] = {}
        self.given_up: set[str] = set()  # for what a person has asked for an unclean election

    def see(self, seen: Described | Leads) -> list[Anomaly]:
        if isinstance(seen, Leads):
            return self._one_leader(seen.key, seen.leader_epoch, seen.node, f"node {seen.node}")
        found = []
        if seen.leader != NOBODY:
            says = f"the image of node {seen.node}"
            found += self._one_leader(seen.key, seen.leader_epoch, seen.leader, says)
        found += self._one_state(seen)
        found += self._rises(seen)
        found += self._clean(seen)
        newest = self.newest.get(seen.key)
        if newest is None or newest.partition_epoch < seen.partition_epoch:
            self.newest[seen.key] = seen
        return found

    def _one_leader(self, key: str, leader_epoch: int, leader: int, who: str) -> list[Anomaly]:
        known = self._leaders.setdefault((key, leader_epoch), leader)
        if known == leader:
            return []
        what = f"{leader} leads in epoch {leader_epoch}, says {who}; it is {known}'s"
        return [Anomaly("two-leaders", key, what)]

    def _one_state(self, seen: Described) -> list[Anomaly]:
        known = self._states.setdefault((seen.key, seen.partition_epoch), seen)
        if _state(known) == _state(seen):
            return []
        what = f"partition epoch {seen.partition_epoch} is {_state(seen)} on node {seen.node}"
        return [Anomaly("two-images", seen.key, f"{what} and {_state(known)} on {known.node}")]

    def _rises(self, seen: Described) -> list[Anomaly]:
        place = (seen.node, seen.life, seen.key)
        before = self._latest.get(place)
        self._latest[place] = seen
        if before is None or (
            before.leader_epoch <= seen.leader_epoch
            and before.partition_epoch <= seen.partition_epoch
        ):
            return []
        what = (
            f"node {seen.node} went from epochs {before.leader_epoch}/{before.partition_epoch} "
            f"to {seen.leader_epoch}/{seen.partition_epoch}"
        )
        return [Anomaly("epoch-back", seen.key, what)]

    def _clean(self, seen: Described) -> list[Anomaly]:
        """Judged where the state just before is known: the others were skipped by a snapshot."""
        before = self._states.get((seen.key, seen.partition_epoch - 1))
        if before is None or seen.leader in (NOBODY, before.leader):
            return []
        if seen.leader in (*before.isr, *before.elr):
            return []
        if before.leader == NOBODY and seen.key in self.given_up:
            return []
        if before.leader != NOBODY and before.leader not in seen.replicas:
            # The change that lets a replica in may end the move, and have it lead. Whoever asked for it led until then, and
            # took nobody out; of all who were in sync a new one may be the first that stays.
            stayed = [each for each in before.isr if each in seen.replicas]
            if set(stayed) < set(seen.isr) and (stayed or seen.leader in before.adding):
                return []
        what = f"{seen.leader} was elected from ISR {before.isr} and ELR {before.elr}"
        return [Anomaly("unclean", seen.key, what)]


def _state(seen: Described) -> tuple[object, ...]:
    return (
        seen.leader,
        seen.leader_epoch,
        seen.replicas,
        seen.isr,
        seen.elr,
        seen.adding,
        seen.offline,
    )
