"""Of a group of the new protocol no two members hold one partition at a time, as they know it themselves (KIP-848).

INVARIANT  who is given a partition is given what nobody has who is a member still: who had it before has given it up, or is told
           that it is none.
PREVENTS   two consumers that work on the same records, where no transaction refuses the positions of one of them.
PROVED BY  tests/chaos/test_held.py::test_a_partition_that_another_was_given_while_its_member_held_it_is_seen

An answer may come late, when its member has been fenced. What it gives is as old as its epoch says: that says which of two was
given later. (So no group may be forgotten meanwhile, and begin anew with the first epoch.) And that it is a member was so when
it asked: who was given a partition since may have it rightly.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from .history import Anomaly
from .observations import Asks, Heard

Place = tuple[str, int]


class Given(NamedTuple):
    epoch: int
    member: str
    number: int  # of all that were given anything: heard later, higher


class Held:
    """Of one group."""

    def __init__(self) -> None:
        self._newest: dict[Place, Given] = {}
        self._count = 0
        self._asked: defaultdict[str, float] = defaultdict(lambda: float("inf"))

    def see(self, seen: Asks | Heard) -> list[Anomaly]:
        """Of what a member has held until now another may have been given in vain: then it is told so, and not this."""
        if isinstance(seen, Asks):
            self._asked[seen.member] = self._count
            return []
        found = []
        for place in seen.held:
            epoch, member, number = self._newest[place]
            if member != seen.member and number <= self._asked[seen.member]:
                what = f"{seen.member} holds it and is a member, at epoch {seen.epoch}, and {member} was given it at {epoch}"
                found.append(Anomaly("held-by-two", f"{place[0]}-{place[1]}", what))
        self._note(seen.member, seen.epoch, set(seen.given) - set(seen.held))
        return found

    def _note(self, member: str, epoch: int, places: Iterable[Place]) -> None:
        self._count += 1
        for place in places:
            if place not in self._newest or self._newest[place].epoch <= epoch:
                self._newest[place] = Given(epoch, member, self._count)
