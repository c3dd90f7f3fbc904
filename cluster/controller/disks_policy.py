"""Whether a broker that comes has the disk that it had, and what becomes of its replicas if it has not.

INVARIANT  whoever comes with another disk leads nothing, and is in no ISR and no ELR, for what the cluster knows it
           by; a partition of which nobody else has everything waits, for the old disk or for a person.
PREVENTS   the last of an ISR coming back with an empty disk: it would lead from offset 0, and the others would drop
           what was committed.
PROVED BY  tests/cluster/controller/test_disks_policy.py::test_the_last_in_sync_does_not_lead_from_another_disk

Kafka names the directory of every replica (KIP-858). Here a broker has one disk, so two names are enough: of the one
that it has, and of the one that partitions wait for: those of its replicas that are marked as failed meanwhile. A log
that really failed has the same mark, and may be on either: where that matters none is taken for the one (`fails`).
"""

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from ..base.ids import BrokerId
from ..metadata.image import NO_DISK, BrokerState, PartitionState

NOBODYS: Final = UUID(
    int=1
)  # waited for by partitions that were on different disks: none has them all


def is_last(broker_id: BrokerId, now: PartitionState) -> bool:
    """Nobody else has all that was committed."""
    return {*now.isr, *now.elr} == {broker_id}


class Disks:
    """Of one broker at one registration."""

    def __init__(self, broker_id: BrokerId, before: BrokerState | None, disk: UUID) -> None:
        self._me = broker_id
        self._disk = disk
        self._last = NO_DISK if before is None else before.disk
        self._waited_for = NO_DISK if before is None else before.waits_for_disk
        self._still: set[UUID] = set()
        self._fails = False

    def has(self, now: PartitionState) -> bool:
        """Whether this replica is on the disk that has come. One that must wait for another one is noted."""
        known = self._last
        if self._waited_for != NO_DISK and self._me in now.offline:
            if not is_last(self._me, now):
                return False  # it waits for no disk, and its log failed on one of the two
            known = self._waited_for
        if NO_DISK in (known, self._disk) or known == self._disk:
            return True
        if is_last(self._me, now):
            self._still.add(known)
        return False

    def fails(self, now: PartitionState) -> None:
        """The log of this replica failed on the disk that has come: it is marked like those that wait for another one."""
        self._fails = self._fails or is_last(self._me, now)

    @property
    def waits_for(self) -> UUID:
        """What is to be remembered, when all of its replicas have been looked at."""
        if len(self._still) + self._fails > 1:
            return NOBODYS
        return next(iter(self._still), NO_DISK)


def why_register_again(broker: BrokerState, failed: Iterable[PartitionState | None]) -> str | None:
    """Logs failed while partitions wait for another disk: a registration tells the two apart, a heartbeat can't."""
    mine = broker.broker_id
    last = (now for now in failed if now is not None and is_last(mine, now))
    if broker.waits_for_disk == NO_DISK or all(mine in now.offline for now in last):
        return None
    return "The last log of a partition failed, and others wait for another disk: it has to be registered with this one."
