"""All faults by name, and which of them a system can have."""

from collections.abc import Mapping, Sequence
from typing import Final

from . import (
    client_faults,
    clock_faults,
    damage_faults,
    disk_faults,
    member_faults,
    network_faults,
    process_faults,
    upgrade_faults,
)
from .fault import Fault
from .system import CannotDo, System

MODULES: Final = (
    process_faults,
    upgrade_faults,
    network_faults,
    clock_faults,
    disk_faults,
    damage_faults,
    member_faults,
    client_faults,
)
FAULTS: Final[Mapping[str, type[Fault]]] = {
    kind.name: kind for module in MODULES for kind in module.KINDS
}
NONE: Final = "none"  # a run in which nothing is done
CLIENTS: Final = "clients"  # what such a fault needs is the load's to give


def why_none(name: str) -> str:
    """A sentence if this is the name of no fault."""
    if name in FAULTS or name == NONE:
        return ""
    return f"there is no fault {name!r}; there are {', '.join([*FAULTS, NONE])}"


def possible(system: System) -> list[str]:
    return [name for name, kind in FAULTS.items() if kind.needs in {*system.can, CLIENTS}]


def chosen(system: System, names: Sequence[str]) -> dict[str, type[Fault]]:
    """`CannotDo` for a name that is none, or that this system can't have; it says which there are."""
    found = {}
    for name in names:
        if name == NONE:
            continue
        kind = FAULTS.get(name)
        if kind is None:
            raise CannotDo(why_none(name))
        if kind.needs not in {*system.can, CLIENTS}:
            takes = f": it takes {system.wants[kind.needs]}" if kind.needs in system.wants else ""
            raise CannotDo(
                f"{system.name} have no fault {name!r} (it needs {kind.needs!r}{takes}); they have "
                f"{', '.join(possible(system))}"
            )
        found[name] = kind
    return found
