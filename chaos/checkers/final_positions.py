"""Whether brokers were asked in the end what groups have committed: a position that nobody asks for is missed by nobody.

INVARIANT  of each place in which a group has committed something is told in the end, or no verdict counts: of groups that
           several share, of all of them; of those that one life each has had, of as many as are asked for, the newest.
PREVENTS   a history whose last lines, the positions, are lost or were never written passing for one in which all are right.
PROVED BY  tests/chaos/test_final_positions.py::test_a_place_that_nobody_was_told_of_in_the_end_is_named

What is held: of groups that several share the places, of others those of the last thousand that did anything. Whoever has
committed nothing while a thousand others did is gone, and none of the newest.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from .consumed import GROUPS
from .history import FINAL
from .txn_history import Txn

ASKED_MAX: Final = 60  # groups, those that several share among them
HELD_MAX: Final = 1_024  # of the others: more than there are processes at a time
SHOWN: Final = 3


@dataclass(slots=True)
class Group:
    number: int  # rises with the time at which it was first heard of
    keys: set[str] = field(default_factory=set)  # in which it has committed, and nobody has told


class FinalPositions:
    """`see` all operations, in their order: what is told in the end is behind all that was committed."""

    def __init__(self) -> None:
        self._shared: dict[str, Group] = {}
        self._others: OrderedDict[str, Group] = OrderedDict()  # in the order of their last commits
        self._numbers = count()

    def see(self, op: Txn) -> None:
        is_told = op.f == "position" and op.process == FINAL
        # Of what was told without whose it is nobody can say whether it is right.
        for place in op.writers if is_told else op.offsets:
            name, _, key = place.partition("|")
            if is_told:
                group = self._shared.get(name) or self._others.get(name)
                if group is not None:
                    group.keys.discard(key)
                continue
            group = self._group(name)
            if op.f == "txn" and op.type == "ok":
                group.keys.add(key)

    def _group(self, name: str) -> Group:
        if name in GROUPS:
            return self._shared.setdefault(name, Group(0))
        group = self._others.get(name)
        if group is None:
            group = self._others[name] = Group(next(self._numbers))
            if len(self._others) > HELD_MAX:
                self._others.popitem(last=False)
        else:
            self._others.move_to_end(name)
        return group

    @property
    def untold(self) -> str:
        """Of which places nobody has told, in a sentence; else empty."""
        others = sorted(self._others.items(), key=lambda each: each[1].number)
        asked = [*self._shared.items(), *others[len(self._shared) - ASKED_MAX :]]
        places = [f"{name}|{key}" for name, group in asked for key in sorted(group.keys)]
        if not places:
            return ""
        more = f" and {len(places) - SHOWN:,} more" if len(places) > SHOWN else ""
        named = ", ".join(places[:SHOWN])
        return f"nobody was told in the end what groups have committed in {named}{more}"
