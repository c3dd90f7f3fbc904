"""Who asks for the offset of a time is told of the first record that is not older, and of its time.

INVARIANT  an answer names a record that is there at the end, with its timestamp, and no record before it is as young; there is no
           answer only where no record is, below the end that the same leader had told of just before.
PREVENTS   a consumer that begins at a time, and begins behind it after a failover, or at a record that was never committed.
PROVED BY  tests/chaos/test_sought.py::test_an_earlier_record_that_is_as_young_is_seen,
           tests/chaos/test_sought.py::test_no_answer_where_there_is_a_record_is_seen

Of logs that begin at 0 and are not compacted. `YOUNGEST` asks for the first record of the latest time; as in Kafka there is no answer
as long as that one is not committed, whatever else is.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from .history import Anomaly
from .observations import Sought

YOUNGEST: Final = -3
Times = Mapping[int, int]  # offset -> timestamp


def check(answers: Iterable[Sought], found: Mapping[str, Times]) -> list[Anomaly]:
    """`found` is what was read in the end."""
    return [
        Anomaly("wrong-time", seen.key, f"{seen.who} asked for {seen.wanted_ms}: {why}")
        for seen in answers
        if (why := _wrong(seen, found.get(seen.key, {})))
    ]


def _wrong(seen: Sought, times: Times) -> str:
    if seen.offset < 0:
        if seen.wanted_ms == YOUNGEST:
            return ""
        is_known = (at for at, ms in times.items() if at < seen.end and ms >= seen.wanted_ms)
        first = min(is_known, default=None)
        if first is None:
            return ""
        return f"nothing, and {first} is of {times[first]} and was below the end, {seen.end}"
    told = f"told of {seen.offset} at {seen.at_ms}"
    if times.get(seen.offset) != seen.at_ms:
        return f"{told}; there is {times.get(seen.offset)}"
    wanted_ms = seen.wanted_ms
    if wanted_ms == YOUNGEST:
        wanted_ms = max((ms for at, ms in times.items() if at < seen.end), default=seen.at_ms)
        if seen.at_ms < wanted_ms:
            return f"{told}; below the end, {seen.end}, one is of {wanted_ms}"
        wanted_ms = seen.at_ms
    first = min(at for at, ms in times.items() if ms >= wanted_ms)
    return "" if first == seen.offset else f"{told}; {first} is of {times[first]}"
