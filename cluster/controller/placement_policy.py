"""Where the replicas of new partitions live: leaders spread over brokers, replicas over racks.

A partition's first replica is the next unfenced broker, racks taking turns; the others follow from the racks
after it. Fenced brokers are used only when there are not enough others, and never as the first.
"""

import random
from collections.abc import Iterable, Sequence

from ..base.errors import ErrorCode
from ..base.ids import BrokerId
from ..metadata.image import BrokerState, ClusterImage
from ..metadata.records import NewPartition
from .decision import CommandRefused


def place(
    brokers: Iterable[BrokerState], partitions: int, replication_factor: int, rng: random.Random
) -> list[NewPartition]:
    """CommandRefused when there are too few brokers, or no replicas asked for. A cluster of one gives one partition, many times."""
    if replication_factor < 1:
        raise _refused(
            f"Invalid replication factor {replication_factor}: the replication factor must be"
            " positive."
        )
    known = list(brokers)
    unfenced = [broker for broker in known if not broker.fenced]
    if not unfenced:
        raise _refused("All brokers are currently fenced.")
    if replication_factor > len(known):
        raise _refused(
            f"The target replication factor of {replication_factor} cannot be reached because only"
            f" {len(known)} broker(s) are registered."
        )
    ring = _by_turns(unfenced)
    spare = _by_turns([broker for broker in known if broker.fenced])
    active = {broker.broker_id for broker in unfenced if not broker.in_controlled_shutdown}
    start = rng.randrange(len(ring))
    made: dict[tuple[BrokerId, ...], NewPartition] = {}  # equal ones are one object
    placed: list[NewPartition] = []
    for index in range(start, start + partitions):
        # Each time round the ring the followers are one further on, so that no two brokers share all.
        turn, shift = index % len(ring), index // len(ring)
        others = ring[turn + 1 :] + ring[:turn]
        step = shift % len(others) if others else 0
        chosen = (ring[turn], *others[step:], *others[:step], *spare)[:replication_factor]
        replicas = _racks_first(chosen, others, replication_factor)
        ids = tuple(broker.broker_id for broker in replicas)
        if ids not in made:
            made[ids] = new_partition(ids, active)
        placed.append(made[ids])
    return placed


def active_brokers(image: ClusterImage) -> set[BrokerId]:
    """Those that new partitions may rely on."""
    alive = image.alive_brokers()
    return {broker.broker_id for broker in alive if not broker.in_controlled_shutdown}


def new_partition(replicas: tuple[BrokerId, ...], active: set[BrokerId]) -> NewPartition:
    """Its ISR are the replicas that are alive, its leader the first of them."""
    isr = tuple(each for each in replicas if each in active)
    if not isr:
        raise _refused("All brokers are currently fenced or in controlled shutdown.")
    return NewPartition(replicas, isr, isr[0])


def check_assignment(
    image: ClusterImage, replicas: tuple[BrokerId, ...], factor: int | None
) -> None:
    """A person's choice of replicas; `factor` is how many the partitions before had."""
    why = None
    if not replicas:
        why = "The manual partition assignment includes an empty replica list."
    before: BrokerId | None = None
    for broker_id in sorted(replicas):
        if broker_id not in image.brokers:
            why = f"The manual partition assignment includes broker {broker_id}, but no such"
            why += " broker is registered."
            break
        if broker_id == before:
            why = f"The manual partition assignment includes the broker {broker_id} more than once."
            break
        before = broker_id
    if why is None and factor is not None and len(replicas) != factor:
        why = (
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s),"
            " but this is not consistent with previous partitions, which have"
            f" {factor} replica(s)."
        )
    if why is not None:
        raise CommandRefused(ErrorCode.invalid_replica_assignment, why)


def assigned_partition(
    index: int, replicas: tuple[BrokerId, ...], active: set[BrokerId]
) -> NewPartition:
    try:
        return new_partition(replicas, active)
    except CommandRefused as refused:
        why = (
            "All brokers specified in the manual partition assignment for partition"
            f" {index} are fenced or in controlled shutdown."
        )
        raise CommandRefused(ErrorCode.invalid_replica_assignment, why) from refused


def _refused(why: str) -> CommandRefused:
    return CommandRefused(ErrorCode.invalid_replication_factor, why)


def _by_turns(brokers: Sequence[BrokerState]) -> list[BrokerState]:
    """One broker of each rack, then the second of each, and so on."""
    racks: dict[str, list[BrokerState]] = {}
    for broker in sorted(brokers, key=lambda each: each.broker_id):
        racks.setdefault(broker.rack or "", []).append(broker)
    turns: list[BrokerState] = []
    for turn in range(max(map(len, racks.values()), default=0)):
        turns.extend(racks[rack][turn] for rack in sorted(racks) if turn < len(racks[rack]))
    return turns


def _racks_first(
    chosen: tuple[BrokerState, ...], others: Sequence[BrokerState], count: int
) -> list[BrokerState]:
    """Swap in brokers of racks that have none yet, as long as there are such."""
    picked = [chosen[0]]
    candidates = [*chosen[1:], *(each for each in others if each not in chosen)]
    while len(picked) < count:
        racks = {broker.rack for broker in picked}
        fresh = [each for each in candidates if each.rack not in racks]
        picked.append((fresh or candidates)[0])
        candidates.remove(picked[-1])
    return picked
