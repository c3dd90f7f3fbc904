"""What a machine's disk is like when nothing is wrong with it: when work off the loop is done, what a sync keeps waiting.

Plain habits are what every seed had before there were others. Some seeds have machines that are nearer to real ones
(`drawn`), by dice of their own: the others keep the runs that they had. A fault that is healed changes no habits.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

# Of so many seeds the machines have habits of their own.
ODDS: Final = 0.35
# A name needs an entry of a folder, and that may need a block: what a full disk has not.
NAME_BYTES: Final = 256


@dataclass(frozen=True, slots=True)
class DiskHabits:
    # Work of `Disk.run` is done at any time between asking and hearing, also when nobody waits for it any more.
    has_threads: bool = False
    # How long it takes from asking to hearing; None: as the disk's faults say.
    run_s: tuple[float, float] | None = None
    # A sync that is waited for keeps its node waiting, or the piece of work that makes it.
    syncs_wait: bool = False
    # How often a range that could be in the page cache is not.
    cold_odds: float = 0.0
    # A full disk takes no new names either.
    names_need_room: bool = False


PLAIN: Final = DiskHabits()


def drawn(stream: Callable[[str], random.Random]) -> Callable[[str], DiskHabits]:
    """The habits of a machine by its name. `stream` is `World.stream`."""
    dice = stream("disk habits")
    if dice.random() >= ODDS:
        return lambda _name: PLAIN
    has_threads, syncs_wait = dice.random() < 0.8, dice.random() < 0.5
    run_s = dice.choice((None, None, (0.000_1, 0.05)))
    names_need_room = dice.random() < 0.5

    def habits(name: str) -> DiskHabits:
        return DiskHabits(
            has_threads=has_threads,
            run_s=run_s,
            syncs_wait=syncs_wait,
            cold_odds=stream(f"disk habits/{name}").choice((0.0, 0.0, 0.2)),
            names_need_room=names_need_room,
        )

    return habits
