"""Records as applications send them: with headers, with timestamps that they were given, in batches that are compressed. All that a
record was sent with is what a reader is shown.

INVARIANT  a record that is shown has the key, the headers, in their order, and the timestamp that it was sent with.
PREVENTS   a batch that is written anew (by compaction, or with another codec) and shifts times, loses headers or mixes up its records.
PROVED BY  tests/chaos/test_dressed.py::test_a_record_that_is_shown_with_another_timestamp_is_altered
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from fencepost.cluster.wire.records import Record

from ..checkers.history import Anomaly
from .txn_keys import PAD, Written, identity, written

CODECS: Final = (0, 1, 2, 3, 4)
HEADERS: Final[tuple[tuple[str, bytes | None], ...]] = (
    ("trace", b"0af7651916cd43dd"),
    ("trace", None),
    ("", b""),
    ("größe", b"\x00\xff"),
)
HEADERS_MAX: Final = 3
APART_MS: Final = 3_000
Place = tuple[str, int]
Look = tuple[int, bytes | None, tuple[tuple[str, bytes | None], ...]]


class Plain:
    """As most clients of the simulator send: all of a batch now, nothing beside it, not compressed."""

    def records(
        self, _place: Place, now_ms: int, payloads: Sequence[bytes | Written]
    ) -> tuple[list[Record], int]:
        """And the number of their codec."""
        return [Record(at, now_ms, *written(each)) for at, each in enumerate(payloads)], 0

    def check(self, place: Place, records: Sequence[Record]) -> None:
        """What was shown."""


class Dressed(Plain):
    """What is sent again may look otherwise: any of its looks is right."""

    def __init__(self, dice: random.Random, report: Callable[[list[Anomaly]], None]) -> None:
        self.compared = 0
        self._dice = dice
        self._report = report
        self._sent: dict[tuple[Place, bytes], set[Look]] = {}

    def records(
        self, place: Place, now_ms: int, payloads: Sequence[bytes | Written]
    ) -> tuple[list[Record], int]:
        plain, codec = super().records(place, now_ms, payloads)
        if any(name == PAD for each in plain for name, _ in each.headers):
            return plain, codec  # as large as may be
        dressed = [self._dress(each) for each in plain]
        for each in dressed:
            key = place, identity(each.value, each.headers)
            self._sent.setdefault(key, set()).add(_look_of(each))
        return dressed, self._dice.choice(CODECS)

    def _dress(self, record: Record) -> Record:
        dice = self._dice
        more = dice.choices(HEADERS, k=dice.randint(0, HEADERS_MAX))
        timestamp = record.timestamp + dice.randint(-APART_MS, APART_MS)
        return record._replace(timestamp=timestamp, headers=(*record.headers, *more))

    def check(self, place: Place, records: Sequence[Record]) -> None:
        for each in records:
            sent = self._sent.get((place, identity(each.value, each.headers)))
            if sent is None:
                continue
            self.compared += 1
            if _look_of(each) not in sent:
                what = f"{_told(each)} at {each.offset} was sent as {sorted(map(str, sent))}"
                self._report([Anomaly("altered", f"{place[0]}-{place[1]}", what)])


def _look_of(record: Record) -> Look:
    return record.timestamp, record.key, tuple(record.headers)


def _told(record: Record) -> Any:
    return (*_look_of(record), record.value)


PLAIN: Final = Plain()
