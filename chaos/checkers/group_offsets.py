"""A group's committed offset is the last that was acknowledged or found, or one whose fate nobody knows.

INVARIANT  what is found is at or above the newest that was acknowledged, or found before, unless an older commit without
           an answer came late.
PREVENTS   a consumer that starts again behind what it had committed, because its coordinator moved; one that acted on
           a position which its coordinator had only written.
PROVED BY  tests/chaos/test_cluster_checkers.py::test_a_group_that_finds_less_than_it_committed_is_an_anomaly
"""

from .history import Anomaly
from .observations import Position


class GroupOffsets:
    """One client commits rising offsets, one at a time."""

    def __init__(self) -> None:
        self._certain: dict[str, int] = {}
        self._unknown: dict[str, set[int]] = {}

    def see(self, seen: Position) -> list[Anomaly]:
        newest = self._certain.get(seen.client, -1)
        if seen.kind == "info":
            self._unknown.setdefault(seen.client, set()).add(seen.offset)
            return []
        self._certain[seen.client] = max(newest, seen.offset)  # who was told of it may act on it
        is_late = seen.offset in self._unknown.get(seen.client, ())
        if seen.kind == "read" and seen.offset < newest and not is_late:
            what = f"{seen.client} committed {newest}, or found it, and finds {seen.offset}"
            return [Anomaly("offset-back", seen.client, what)]
        return []
