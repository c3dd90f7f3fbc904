"""What a group has committed in a topic is told of that topic, and not of another one of its name behind it.

INVARIANT  a position that was acknowledged before anybody asked for its topic's deletion is of that topic: no node that knows a later
           topic of the name tells it.
PREVENTS   a consumer that begins in a new topic where its group was in the one before it, and passes over what is there.
PROVED BY  tests/chaos/test_life_positions.py::test_a_position_of_a_topic_that_was_deleted_is_not_told_of_its_successor

A position names no topic id on the wire, so which topic took it is certain only where it was acknowledged while there was but one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from .history import Anomaly
from .lives import Change


@dataclass(slots=True)
class Placed:
    """In transaction `number`, or as commit `number` outside of any; whoever sent it knew the topic by this id.

    Acknowledged then, if ever. What was not sent just once may arrive once more, and late."""

    group: str
    topic: str
    topic_id: str
    number: int
    asked_s: float
    acknowledged_s: float = inf
    is_once: bool = False
    in_transaction: bool = False


@dataclass(frozen=True, slots=True)
class ToldOf:
    """The position of `number`, or that there is none (`NO_NUMBER`), was told by a node that had just said that the topic of this name
    has this id."""

    who: str
    group: str
    topic: str
    topic_id: str
    number: int
    asked_s: float
    answered_s: float


def deletions(changes: Iterable[Change]) -> dict[str, float]:
    """From when on each topic may be gone, by its id; of those that are not named nobody has asked for it."""
    asked_s: dict[str, float] = {}
    for each in changes:
        if each.f == "delete" and each.type != "fail":
            asked_s[each.topic_id] = min(asked_s.get(each.topic_id, inf), each.asked_s)
    return asked_s


def check(
    placed: Iterable[Placed], told: Iterable[ToldOf], changes: Sequence[Change]
) -> list[Anomaly]:
    """`changes`: all that anybody asked for, lives in their order."""
    made = [each.topic_id for each in changes if each.f == "create"]
    asked_s = deletions(changes)
    certain = {
        each.number: each.topic_id
        for each in placed
        if each.is_once and each.acknowledged_s < asked_s.get(each.topic_id, inf)
    }
    found = []
    for seen in told:
        its = certain.get(seen.number, seen.topic_id)
        # 1. the node names the topic   2. that goes   3. of a name that nothing has any more it tells whatever there is
        is_there = seen.answered_s < asked_s.get(seen.topic_id, inf)
        is_other = its != seen.topic_id and its in made and _is_behind(made, seen.topic_id, its)
        if is_there and is_other:
            what = f"{seen.who} was told of {seen.topic_id} what transaction {seen.number}"
            found.append(Anomaly("another-life", f"{seen.topic}-0", f"{what} committed in {its}"))
    return found


def _is_behind(made: Sequence[str], later: str, earlier: str) -> bool:
    """One that nobody has heard of yet is the newest."""
    return later not in made or made.index(later) > made.index(earlier)
