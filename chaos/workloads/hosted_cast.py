"""Who plays what in a real run of the simulator's clients: place by place, and who has to stop before whom.

Without what the parts themselves import, so that a run can be planned fast.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

ASSIGN, SUBSCRIBE = "assign", "subscribe"
FEEDER, FOLLOWER = "feeder", "follower"
WORKER, MEMBER = "worker", "member"  # kept apart by their ids, by their group
APPENDER, SUBSCRIBER = "append", "subscribe"
JOB, SHOP, CHECKER = "job", "shop", "checker"
STREAM, READER = "stream", "reader"
TABLE, REREADER = "table", "rereader"
LARGE, SMALL = "long", "short"  # transactions
CHURNER, CHURN, SENDER, LIVES = "churner", "churn", "sender", "lives"
TUNER = "tuner"
TELLER, AUDITOR = "teller", "auditor"
# Who goes on until what others have left is worked off.
LAST: Final = frozenset({WORKER, MEMBER, CHECKER})
# Roles whose transactional id is their place's own for the whole run; others have a new one in each life.
KEEPS_IDS: Final = frozenset({FEEDER, WORKER, MEMBER, TABLE, LARGE, SMALL, CHURN, TELLER})
SECOND_FEEDER: Final = 3
BATCH_BYTES_MAX: Final = 20_000  # of the topic of long transactions
Roles = tuple[str, ...]


def _pipeline(place: int, via: Sequence[str]) -> Roles:
    if place == 0:
        return FEEDER, FOLLOWER
    if place == SECOND_FEEDER:
        return (FEEDER,)
    kinds = [{ASSIGN: WORKER, SUBSCRIBE: MEMBER}[each] for each in via]
    return (kinds[(place - 1) % len(kinds)],)


def _subscribe(place: int, _via: Sequence[str]) -> Roles:
    """Who assigns itself partitions writes while the group waits for one that has died."""
    return (APPENDER,) if place % 3 == 1 else (SUBSCRIBER,)


def _added(place: int, _via: Sequence[str]) -> Roles:
    return ((JOB, FOLLOWER), (SHOP,), (CHECKER,), (JOB, SHOP), (CHECKER,))[place % 5]


def _streams(place: int, _via: Sequence[str]) -> Roles:
    return (STREAM,) if place else (STREAM, READER)


def _compacted(place: int, _via: Sequence[str]) -> Roles:
    return ((TABLE, FOLLOWER), (TABLE, REREADER))[place] if place < 2 else (TABLE,)


def _long(place: int, _via: Sequence[str]) -> Roles:
    return ((LARGE, FOLLOWER) if place == 0 else (LARGE,)) if place % 2 == 0 else (SMALL,)


def _churn(place: int, _via: Sequence[str]) -> Roles:
    """One administrator: what he has asked for is in the order in which he did."""
    if place == 0:
        return CHURNER, LIVES
    return (CHURN, SENDER) if place % 2 == 0 else (CHURN,)


def _tuned(place: int, _via: Sequence[str]) -> Roles:
    return (APPENDER,) if place else (TUNER, FOLLOWER)


def _transfers(place: int, _via: Sequence[str]) -> Roles:
    return ((TELLER, FOLLOWER), (TELLER, AUDITOR))[place] if place < 2 else (TELLER,)


@dataclass(frozen=True, slots=True)
class Cast:
    """`roles` of a place; `topics` are made before, with a partition for each key."""

    roles: Callable[[int, Sequence[str]], Roles]
    topics: tuple[str, ...]

    def of(self, place: int, via: Sequence[str]) -> Roles:
        return self.roles(place, via)

    def places(self, role: str, clients: int, via: Sequence[str]) -> list[int]:
        return [place for place in range(clients) if role in self.of(place, via)]

    def stops_first(self, place: int, via: Sequence[str]) -> bool:
        return LAST.isdisjoint(self.of(place, via))

    def lacks(self, clients: int, via: Sequence[str]) -> list[str]:
        """Roles that nobody has where there are so few."""
        all_of_them = {role for place in range(16) for role in self.of(place, via)}
        return sorted(role for role in all_of_them if not self.places(role, clients, via))


CASTS: Final[Mapping[str, Cast]] = {
    "pipeline": Cast(_pipeline, ("in", "out")),
    "append": Cast(lambda _place, _via: (APPENDER,), ("append",)),
    "subscribe": Cast(_subscribe, ("append",)),
    "added": Cast(_added, ("added",)),
    "streams": Cast(_streams, ("stream",)),
    "compacted": Cast(_compacted, ("table", "table-cut")),
    "long": Cast(_long, ("long",)),
    "churn": Cast(_churn, ("lives-stays",)),
    "tuned": Cast(_tuned, ("tuned", "append")),
    "transfers": Cast(_transfers, ("bank",)),
}
