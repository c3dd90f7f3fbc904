"""Which versions of commands and snapshots every node of the cluster can read: one number, Kafka's metadata.version.

INVARIANT  a version that came with level n is written only when every registered broker has told that it reads n, or when what
           it says is in the log already; and who reads less than is written is not registered.
PREVENTS   a rolling upgrade in which the first new node that leads ends all older ones, two of three, by its first command.
PROVED BY  tests/cluster/controller/test_metadata_level.py::test_an_older_node_can_read_all_that_is_written_while_it_is_registered
           tests/sim/test_cluster_builds.py::test_nodes_are_upgraded_one_by_one_and_the_older_ones_read_all_that_is_written

A broker tells it among its features, which every build reads, in a request to the controller and in version 1 of BrokerRegistered.
Nobody has to raise it: it is computed from who is registered, so it rises with the last one that is upgraded, or forgotten.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol
from uuid import UUID

from ..base.ids import BrokerId
from .image import NO_DISK, ClusterImage
from .records import BrokerRegistered, PartitionsChanged

NAME: Final = "metadata.version"
OLDEST: Final = 1  # of who tells nothing
FAILED_LOGS: Final = 2  # PartitionsChanged names the replicas whose logs failed
DISKS: Final = 3  # BrokerRegistered names the disk
NEWEST: Final = DISKS

# Number of a command -> from which level on its version 2, 3, … is written; version 1 from the first on. A command that is new
# has to be refused below its level by whoever decides it, in words that name those who hold the level back (`held_by`).
_SINCE: Final[Mapping[int, tuple[int, ...]]] = {
    BrokerRegistered.TYPE: (DISKS,),
    PartitionsChanged.TYPE: (FAILED_LOGS,),
}


class Tells(Protocol):
    """A broker, registered or about to be."""

    @property
    def broker_id(self) -> BrokerId: ...

    @property
    def features(self) -> Mapping[str, tuple[int, int]]: ...

    @property
    def disk(self) -> UUID: ...


def reads() -> int:
    """The newest level that this build reads: a snapshot's version is the level that it was written at, too."""
    return NEWEST


def version_at(number: int, level: int) -> int:
    """The version of a command at a level."""
    return 1 + sum(level >= since for since in _SINCE.get(number, ()))


def version_for(command: Any, level: int) -> int:
    """The version to write at a level. What needs a newer one came from the log: those who live have read it there."""
    version = version_at(command.TYPE, level)
    return version if version == command.VERSION else max(version, _least(command))


def _least(command: Any) -> int:
    match command:
        case PartitionsChanged(changes=changes):
            return 2 if any(each.offline for each in changes) else 1
        case BrokerRegistered(disk=disk, waits_for_disk=waits_for):
            return 1 if disk == waits_for == NO_DISK else 2
        case _:
            return 1


def told_by(features: Mapping[str, tuple[int, int]], disk: UUID) -> int:
    """What a broker reads. Builds up to the first that told it named 1, whatever they read; but one that names its disk reads
    of disks."""
    _, newest = features.get(NAME, (OLDEST, OLDEST))
    return newest if disk == NO_DISK else max(newest, DISKS)


def level_of(image: ClusterImage, coming: Iterable[Tells] = ()) -> int:
    """The level to write at. `coming` are brokers that are about to be registered, each in place of the one of its number."""
    return level_among(image.brokers, coming)


def level_among(brokers: Mapping[BrokerId, Tells], coming: Iterable[Tells] = ()) -> int:
    told = {each.broker_id: told_by(each.features, each.disk) for each in brokers.values()}
    told |= {each.broker_id: told_by(each.features, each.disk) for each in coming}
    level = min(told.values(), default=OLDEST)
    if level < DISKS and any(each.disk != NO_DISK for each in brokers.values()):
        level = DISKS  # a build that wrote all it knew has led: what it wrote of disks is not to be lost
    return min(level, reads())


def level_with(image: ClusterImage, commands: Iterable[Any]) -> int:
    """The level at which a batch is written: who comes with it reads it, too."""
    return level_of(image, (each for each in commands if isinstance(each, BrokerRegistered)))


def held_by(brokers: Mapping[BrokerId, Tells]) -> list[BrokerId]:
    """Who reads less than this build writes."""
    told = ((each.broker_id, told_by(each.features, each.disk)) for each in brokers.values())
    return sorted(broker_id for broker_id, level in told if level < reads())
