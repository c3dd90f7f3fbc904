"""A group's committed offset is the last that was acknowledged, or one whose fate nobody knows.

INVARIANT  what is found is at or above the newest acknowledged offset, unless an older commit without an answer came late.
PREVENTS   a consumer that starts again behind what it had committed, because its coordinator moved.
PROVED BY  tests/chaos/test_cluster_checkers.py::test_a_group_that_finds_less_than_it_committed_is_an_anomaly
"""

from .history import Anomaly
from .observations import Position


class GroupOffsets:
    """One client commits rising offsets, one at a time."""

    def __init__(self) -> None:
        self._acknowledged: dict[str, int] = {}
        self._unknown: dict[str, set[int]] = {}

    def see(self, seen: Position) -> list[Anomaly]:
        newest = self._acknowledged.get(seen.client, -1)
        if seen.kind == "ok":
            self._acknowledged[seen.client] = max(newest, seen.offset)
        elif seen.kind == "info":
            self._unknown.setdefault(seen.client, set()).add(seen.offset)
        elif seen.offset < newest and seen.offset not in self._unknown.get(seen.client, ()):
            what = f"{seen.client} committed {newest} and finds {seen.offset}"
            return [Anomaly("offset-back", seen.client, what)]
        return []
