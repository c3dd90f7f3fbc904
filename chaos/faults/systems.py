"""Which brokers a run is about, by name: Fencepost as processes or containers, or Apache Kafka."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .kafka_processes import KafkaProcesses
from .older import OLDER
from .processes import Processes
from .system import CLIENTS, EVERYTHING, UPGRADE, CannotDo, System, Way

__all__ = [
    "CLIENTS",
    "EVERYTHING",
    "OLDER",
    "SYSTEMS",
    "UPGRADE",
    "CannotDo",
    "KafkaProcesses",
    "Processes",
    "System",
    "Way",
    "system_of",
]

SYSTEMS: Final = ("processes", "containers", "kafka")


def system_of(
    target: str,
    folder: Path,
    *,
    nodes: int = 3,
    settings: Sequence[str] = (),
    older: str = OLDER,
    faults: Sequence[str] = (),
) -> System:
    """Not begun yet. `settings` are NAME=VALUE; `CannotDo` for a target that is none.

    Where `faults` are to upgrade it, it begins on the older build.
    """
    begins_older = UPGRADE in faults
    if target == "processes":
        return Processes(
            folder, nodes=nodes, settings=settings, older=older, begins_older=begins_older
        )
    if target == "kafka":
        return KafkaProcesses(folder, nodes=nodes, settings=settings)
    if target == "containers":
        from .containers import Containers  # its engine's client is not everybody's

        return Containers(
            folder, nodes=nodes, settings=settings, older=older, begins_older=begins_older
        )
    raise CannotDo(f"there is no target {target!r}; there are {', '.join(SYSTEMS)}")
