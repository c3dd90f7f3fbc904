"""Of a group of the new protocol no two members hold one partition at a time, as they know it themselves (KIP-848).

INVARIANT  who is given a partition is given what nobody has who is a member still: who had it before has given it up, or is told
           that it is none.
PREVENTS   two consumers that work on the same records, where no transaction refuses the positions of one of them.
PROVED BY  tests/chaos/test_held.py::test_a_partition_that_another_was_given_while_its_member_held_it_is_seen

An answer may come late, when its member has been fenced: the epoch in it says which of two was given later. (So no group may
be forgotten meanwhile, and begin anew with the first epoch.)
"""

from collections.abc import Iterable

from .history import Anomaly
from .observations import Heard

Place = tuple[str, int]


class Held:
    """Of one group."""

    def __init__(self) -> None:
        self._newest: dict[Place, tuple[int, str]] = {}  # who was given it last, at which epoch

    def see(self, seen: Heard) -> list[Anomaly]:
        """Of what a member has held until now another may have been given in vain: then it is told so, and not this."""
        found = []
        for place in seen.held:
            epoch, member = self._newest[place]
            if member != seen.member:
                what = f"{seen.member} holds it and is a member, at epoch {seen.epoch}, and {member} was given it at {epoch}"
                found.append(Anomaly("held-by-two", f"{place[0]}-{place[1]}", what))
        self._note(seen.member, seen.epoch, set(seen.given) - set(seen.held))
        return found

    def _note(self, member: str, epoch: int, places: Iterable[Place]) -> None:
        for place in places:
            if place not in self._newest or self._newest[place][0] <= epoch:
                self._newest[place] = epoch, member
