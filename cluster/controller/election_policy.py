"""Who leads a partition, and who is known to have all that was committed (KIP-966).

INVARIANT  a leader comes from the ISR, or from the ELR: the replicas that left an ISR smaller than
           min.insync.replicas, since when nothing was committed without them. No one else, ever.
PREVENTS   a replica that lags from leading, and truncating everyone to what it has.
PROVED BY  tests/cluster/controller/test_election.py::test_no_one_but_isr_and_elr_is_ever_elected
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ..base.ids import NO_LEADER, BrokerId, LeaderEpoch
from ..metadata.image import PartitionState
from ..metadata.records import PartitionChange


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a partition should become; what is not said stays."""

    isr: tuple[BrokerId, ...] | None = None
    lost: BrokerId | None = None  # this replica may lack what it had: it leaves ISR and ELR
    new_epoch: bool = False  # even if the leader stays: it starts anew
    preferred: bool = False  # the first replica leads if it can


def changed(
    now: PartitionState, wish: Wish, *, alive: Iterable[BrokerId], min_isr: int
) -> PartitionChange | None:
    """The partition's next state, or None when it stays as it is. `alive` are those that may lead."""
    may_lead = frozenset(alive)
    isr = now.isr if wish.isr is None else wish.isr
    if wish.lost is not None:
        isr = tuple(each for each in isr if each != wish.lost)
    elr = _eligible(now, isr, min_isr, wish.lost)
    if not isr and not elr:
        isr = (
            now.isr
        )  # the last that has everything, whatever it went through: there is nobody else
    leader = _leader(now, isr, may_lead, preferred=wish.preferred)
    if leader == NO_LEADER:
        heir = next((each for each in now.replicas if each in elr and each in may_lead), None)
        if heir is not None:
            leader, isr = heir, (heir,)
            elr = tuple(each for each in elr if each != heir)
        elif not isr:
            # Nobody can lead. The ISR says who may when one of them is back: it is never empty.
            isr = tuple(each for each in now.isr if each != wish.lost) or elr
            elr = tuple(each for each in elr if each not in isr)
    again = wish.new_epoch or leader != now.leader
    change = PartitionChange(
        partition=now.partition,
        expects_partition_epoch=now.partition_epoch,
        leader=leader,
        leader_epoch=LeaderEpoch(now.leader_epoch + 1) if again else now.leader_epoch,
        replicas=now.replicas,
        isr=isr,
        elr=elr,
        adding=now.adding,
        removing=now.removing,
    )
    if (change.leader_epoch, isr, elr) == (now.leader_epoch, now.isr, now.elr):
        return None
    return change


def _eligible(
    now: PartitionState, isr: tuple[BrokerId, ...], min_isr: int, lost: BrokerId | None
) -> tuple[BrokerId, ...]:
    """Whoever was in ISR or ELR and is not in the ISR any more, while that is below min.insync.replicas."""
    if len(isr) >= min_isr:
        return ()
    had_all = {*now.isr, *now.elr}
    return tuple(
        each for each in now.replicas if each in had_all and each not in isr and each != lost
    )


def _leader(
    now: PartitionState, isr: tuple[BrokerId, ...], alive: frozenset[BrokerId], *, preferred: bool
) -> BrokerId:
    first = now.replicas[0]
    if preferred and first in isr and first in alive:
        return first
    if now.leader in isr and now.leader in alive:
        return now.leader
    return next((each for each in now.replicas if each in isr and each in alive), NO_LEADER)
