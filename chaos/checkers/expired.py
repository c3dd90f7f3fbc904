"""Of a partition that keeps its records for a time, or up to a size, nothing goes before that is over.

INVARIANT  where a replica's log begins, each record before is older than retention says by the clock that is furthest ahead, or there
           was as much behind it, on some leader, as may be kept.
PREVENTS   a segment that goes with records that are still owed to consumers; a replica that forgets more than anybody would.
PROVED BY  tests/chaos/test_expired.py::test_a_record_that_is_gone_and_is_young_is_seen,
           tests/chaos/test_expired.py::test_a_record_that_is_gone_and_has_too_little_behind_it_is_seen

What was allowed once stays so: time goes on, and a replica may do late what another did.
"""

from bisect import bisect_left
from operator import attrgetter
from typing import Final, NamedTuple

from .history import Anomaly
from .observations import Began, Wrote

# Clocks are read at another instant than the one of which it is told.
MARGIN_MS: Final = 10


class Kept(NamedTuple):
    base_offset: int
    next_offset: int
    led_in: int
    newest_ms: int
    before: int  # bytes, counted from the first batch of all
    behind: int


class Expired:
    """-1 is no limit."""

    def __init__(self, retention_ms: int, retention_bytes: int) -> None:
        self._retention_ms = retention_ms
        self._retention_bytes = retention_bytes
        self._logs: dict[str, list[Kept]] = {}
        self._over_size: dict[str, int] = {}  # all before this may go: enough was behind it once
        self._allowed: dict[str, int] = {}  # all before this was found to be in order

    def low(self, key: str) -> int:
        """Somebody's log begins there."""
        return self._allowed.get(key, 0)

    def wrote(self, seen: Wrote) -> None:
        log = self._logs.setdefault(seen.key, [])
        while log and log[-1].next_offset > seen.base_offset:
            if log[-1].led_in > seen.led_in:
                return  # known, or cut by a later leader: whoever leads last says what there is
            log.pop()
        before = log[-1].behind if log else 0
        log.append(
            Kept(
                seen.base_offset,
                seen.next_offset,
                seen.led_in,
                seen.newest_ms,
                before,
                before + seen.size,
            )
        )
        if self._retention_bytes >= 0:
            most = log[-1].behind - self._retention_bytes
            at = bisect_left(log, most + 1, key=attrgetter("before")) - 1
            if at >= 0:
                over = self._over_size.get(seen.key, 0)
                self._over_size[seen.key] = max(over, log[at].base_offset)

    def see(self, seen: Began, *, by_time: bool = True) -> list[Anomaly]:
        """Without `by_time` nobody knows what time it was there."""
        allowed, log = self.low(seen.key), self._logs.get(seen.key, [])
        if seen.start <= allowed:
            return []
        found = []
        for kept in log[bisect_left(log, allowed, key=attrgetter("base_offset")) :]:
            if kept.base_offset >= seen.start:
                break
            if kept.next_offset <= self._over_size.get(seen.key, 0):
                continue
            age_ms = seen.now_ms - kept.newest_ms
            if self._retention_ms >= 0 and (not by_time or age_ms + MARGIN_MS > self._retention_ms):
                continue
            what = (
                f"{seen.who} begins at {seen.start}; offset {kept.next_offset - 1} was written"
                f" {age_ms} ms ago, and {log[-1].behind - kept.behind} bytes are behind it"
            )
            found.append(Anomaly("expired-early", seen.key, what))
            break
        self._allowed[seen.key] = seen.start
        return found
