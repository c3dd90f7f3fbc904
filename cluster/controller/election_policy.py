"""Who leads a partition, who is known to have all that was committed (KIP-966), and when a move is done.

INVARIANT  a leader comes from the ISR, or from the ELR: the replicas that left an ISR smaller than
           min.insync.replicas, since when nothing was committed without them. No one else, ever, unless a
           person gives up by name what the others have (`Wish.unclean`).
PREVENTS   a replica that lags from leading, and truncating everyone to what it has.
PROVED BY  tests/cluster/controller/test_election.py::test_no_one_but_isr_and_elr_is_ever_elected
           tests/cluster/controller/test_committed_is_kept.py::test_a_leader_has_all_that_was_committed
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from ..base.ids import NO_LEADER, BrokerId, LeaderEpoch
from ..metadata.image import PartitionState, TopicState
from ..metadata.records import PartitionChange, PartitionsChanged
from .decision import NOTHING_HEARD, Disks

Brokers = tuple[BrokerId, ...]
Ids = Collection[BrokerId]
PART_CHANGES_MAX: Final = 10_000  # under 1 MiB


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a partition's replicas are, and what a move adds and removes (KIP-455)."""

    replicas: Brokers
    adding: Brokers = ()
    removing: Brokers = ()

    @classmethod
    def of(cls, now: PartitionState) -> Self:
        return cls(now.replicas, now.adding, now.removing)

    def target(self) -> Brokers:
        return tuple(each for each in self.replicas if each not in self.removing)

    def is_reached(self, isr: Brokers) -> bool:
        """Kafka 4.3's rule: the new ones are in sync, and where replicas become fewer, all that remain.

        So a move never leaves fewer in sync than there were before it. One that was added and is removed again
        is waited for by Kafka, for ever; not here.
        """
        remain = [each for each in isr if each not in self.removing]
        if not remain:
            return False
        becomes_fewer = len(self.adding) < len(self.removing)
        awaited = self.target() if becomes_fewer else self.adding
        return all(each in remain or each in self.removing for each in awaited)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a partition should become; what is not said stays."""

    isr: Brokers | None = None
    placement: Placement | None = None
    lost: BrokerId | None = None  # this replica may lack what it had: it leaves ISR and ELR
    failed: BrokerId | None = None  # this replica's log can't be used until its node is restarted
    restarted: BrokerId | None = None  # this replica's log has been opened anew
    new_epoch: bool = False  # even if the leader stays: it starts anew
    preferred: bool = False  # the first replica leads if it can
    unclean: bool = False  # whoever is alive leads if no one has everything
    # Who has a sound disk, only not the one that partitions wait for: that is waited for no more where another leads uncleanly.
    on_other_disks: frozenset[BrokerId] = frozenset()
    # If all who had everything are on other disks, one of them may lead with nothing; else those who are merely down have it.
    anew: bool = False


def changed(
    now: PartitionState, wish: Wish, *, alive: Ids, disks: Disks = NOTHING_HEARD, min_isr: int
) -> PartitionChange | None:
    """The partition's next state, or None when it stays as it is. `alive` are those that may lead.

    Of them those may not whose logs failed: they can't even read what they have. Those with full `disks` come last.
    """
    isr = now.isr if wish.isr is None else wish.isr
    if wish.lost is not None:
        isr = tuple(each for each in isr if each != wish.lost)
    placed = Placement.of(now) if wish.placement is None else wish.placement
    if (placed.adding or placed.removing) and placed.is_reached(isr):
        placed = Placement(placed.target())
    replicas = placed.replicas
    offline = _offline(now, wish, replicas)
    may_lead = frozenset(alive).difference(offline)
    isr = tuple(each for each in isr if each in replicas)
    elr = _eligible(now, replicas, isr, min_isr, wish.lost)
    if not isr and not elr:
        # The last that has everything, whatever it went through: there is nobody else.
        isr = tuple(each for each in now.isr if each in replicas)
    in_turn = sorted((each for each in replicas if each in may_lead), key=disks.in_turn)
    leader = _leader(now.leader, replicas, isr, in_turn, preferred=wish.preferred)
    if leader == NO_LEADER:
        heir = next((each for each in in_turn if each in elr), NO_LEADER)
        survivor = _survivor(placed, may_lead) if wish.unclean else NO_LEADER
        on_other_disks = wish.on_other_disks.intersection((*isr, *elr))
        if wish.anew and survivor == NO_LEADER and on_other_disks.issuperset((*isr, *elr)):
            survivor = _survivor(placed, wish.on_other_disks.intersection(alive))
        if heir != NO_LEADER:
            # Who is in the ISR still is so as the last of it, and was alone below the minimum: nothing was committed
            # that it has not.
            known = {*isr, *elr}
            leader, isr = heir, (heir,)
            elr = tuple(each for each in replicas if each in known and each != heir)
        elif survivor != NO_LEADER:
            leader, isr, elr = survivor, (survivor,), ()
            offline = tuple(each for each in offline if each not in {survivor, *on_other_disks})
        elif not isr:
            # Nobody can lead. The ISR says who may when one of them is back: it is never empty.
            isr = tuple(each for each in now.isr if each != wish.lost and each in replicas) or elr
            elr = tuple(each for each in elr if each not in isr)
    # A leader that goes on without one of its replicas goes on under a new epoch, as in Kafka: the replica that
    # was dropped must not be taken for one of this epoch's.
    dropped = any(each not in replicas for each in now.replicas)
    again = wish.new_epoch or leader != now.leader or dropped
    change = PartitionChange(
        partition=now.partition,
        expects_partition_epoch=now.partition_epoch,
        leader=leader,
        leader_epoch=LeaderEpoch(now.leader_epoch + 1) if again else now.leader_epoch,
        replicas=replicas,
        isr=isr,
        elr=elr,
        adding=placed.adding,
        removing=placed.removing,
        offline=offline,
    )
    return change if _differs(change, now) else None


def _offline(now: PartitionState, wish: Wish, replicas: Brokers) -> Brokers:
    if not now.offline and wish.failed is None:
        return ()
    failed = {*now.offline, wish.failed} - {wish.restarted}
    return tuple(each for each in replicas if each in failed)


def _differs(change: PartitionChange, now: PartitionState) -> bool:
    return (change.leader_epoch, change.isr, change.elr, change.offline) != (
        now.leader_epoch,
        now.isr,
        now.elr,
        now.offline,
    ) or (
        change.replicas,
        change.adding,
        change.removing,
    ) != (now.replicas, now.adding, now.removing)


def _eligible(
    now: PartitionState, replicas: Brokers, isr: Brokers, min_isr: int, lost: BrokerId | None
) -> Brokers:
    """Whoever was in ISR or ELR and is not in the ISR any more, while that is below min.insync.replicas."""
    if len(isr) >= min_isr:
        return ()
    had_all = {*now.isr, *now.elr}
    return tuple(each for each in replicas if each in had_all and each not in isr and each != lost)


def _leader(
    leader: BrokerId,
    replicas: Brokers,
    isr: Brokers,
    in_turn: Sequence[BrokerId],
    *,
    preferred: bool,
) -> BrokerId:
    first = replicas[0]
    if preferred and first in isr and first in in_turn:
        return first
    if leader in isr and leader in in_turn:
        return leader
    return next((each for each in in_turn if each in isr), NO_LEADER)


def _survivor(placed: Placement, alive: frozenset[BrokerId]) -> BrokerId:
    """Who is asked in the end. One that a move has just added may be empty: the others come first."""
    living = [each for each in placed.replicas if each in alive]
    settled = [each for each in living if each not in placed.adding]
    return next(iter(settled or living), NO_LEADER)


def is_unclean(now: PartitionState, change: PartitionChange) -> bool:
    """Whether the new leader may lack what was committed.

    The change that lets a replica in may end a move, and have it lead: its leader asked for that, and goes.
    """
    if change.leader in (NO_LEADER, now.leader, *now.isr, *now.elr):
        return False
    hands_over = now.leader != NO_LEADER and now.leader not in change.replicas
    return not (hands_over and change.leader in change.isr)


def as_it_is(now: PartitionState) -> PartitionChange:
    """Nothing new, in the next partition epoch."""
    return PartitionChange(
        partition=now.partition,
        expects_partition_epoch=now.partition_epoch,
        leader=now.leader,
        leader_epoch=now.leader_epoch,
        replicas=now.replicas,
        isr=now.isr,
        elr=now.elr,
        adding=now.adding,
        removing=now.removing,
        offline=now.offline,
    )


def records_of(
    changes: Sequence[tuple[TopicState, PartitionChange]],
) -> list[PartitionsChanged]:
    """One record a topic."""
    grouped: dict[str, tuple[TopicState, list[PartitionChange]]] = {}
    for topic, change in changes:
        grouped.setdefault(topic.name, (topic, []))[1].append(change)
    return [
        PartitionsChanged(topic_id=topic.topic_id, changes=tuple(each))
        for topic, each in grouped.values()
    ]


def first_of(records: Sequence[PartitionsChanged]) -> list[PartitionsChanged]:
    """Of many changes as many as surely fit into a batch."""
    first: list[PartitionsChanged] = []
    room = PART_CHANGES_MAX
    for record in records:
        if room == 0:
            break
        first.append(replace(record, changes=record.changes[:room]))
        room -= len(first[-1].changes)
    return first
