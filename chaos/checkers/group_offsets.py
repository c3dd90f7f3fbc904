"""A group's committed offset is the last that was acknowledged or found, or one whose fate nobody knows.

INVARIANT  what is found is the newest that was acknowledged, or found before, or a commit on its way or without an answer,
           which may come late.
PREVENTS   a consumer that starts again behind what it had committed, because its coordinator moved; one that acted on
           a position which its coordinator had only written; one that goes on from a position which was refused.
PROVED BY  tests/chaos/test_cluster_checkers.py::test_a_group_that_finds_less_than_it_committed_is_an_anomaly,
           tests/chaos/test_cluster_checkers.py::test_a_position_that_was_refused_and_is_found_is_nobody_s
"""

from collections import Counter

from .history import Anomaly
from .observations import Position


class GroupOffsets:
    """One client commits rising offsets, one at a time."""

    def __init__(self) -> None:
        self._certain: dict[str, int] = {}
        # Of those that were sent, how many of each offset nobody has said the fate of.
        self._open: dict[str, Counter[int]] = {}

    def see(self, seen: Position) -> list[Anomaly]:
        newest = self._certain.get(seen.client, -1)
        unanswered = self._open.setdefault(seen.client, Counter())
        if seen.kind == "sent":
            unanswered[seen.offset] += 1
            return []
        if seen.kind != "read":
            unanswered[seen.offset] -= 1
        if seen.kind == "refused":
            return []
        self._certain[seen.client] = max(newest, seen.offset)  # who was told of it may act on it
        if seen.kind == "ok" or seen.offset == newest or unanswered[seen.offset] > 0:
            return []
        what = f"{seen.client} committed {newest}, or found it, and finds {seen.offset}"
        if seen.offset < newest:
            return [Anomaly("offset-back", seen.client, what)]
        return [Anomaly("phantom", seen.client, f"{what}, which was not stored")]
