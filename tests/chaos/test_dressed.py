"""What a record was sent with is what a reader is shown: its key, headers, timestamp."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fencepost.chaos.checkers.history import Anomaly
from fencepost.chaos.checkers.txn_history import Polled, Txn
from fencepost.chaos.workloads.txn_book import Book
from fencepost.chaos.workloads.txn_dressed import APART_MS, CODECS, HEADERS, PLAIN, Dressed
from fencepost.chaos.workloads.txn_habits import Habits
from fencepost.chaos.workloads.txn_keys import OF, Written, padded
from fencepost.chaos.workloads.txn_pipeline import Worker
from fencepost.cluster.wire.records import Record, build_batch, read_records

PLACE = ("t", 0)
NOW_MS = 1_000_000
VALUES = [b"1/1/0", b"1/2/0", b"1/3/0"]


def made() -> tuple[Dressed, list[Anomaly]]:
    told: list[Anomaly] = []
    return Dressed(random.Random(1), told.extend), told


def test_all_that_is_sent_comes_through_every_codec() -> None:
    dressed, told = made()
    records, _ = dressed.records(PLACE, NOW_MS, VALUES)
    for codec in CODECS:
        batch = bytes(build_batch(records, compression=codec, producer_id=1))
        dressed.check(PLACE, read_records(batch))
    assert dressed.compared == len(CODECS) * len(VALUES)
    assert told == []


def test_records_have_headers_and_times_of_their_own() -> None:
    dressed, _ = made()
    records = [dressed.records(PLACE, NOW_MS, VALUES)[0][0] for _ in range(100)]
    assert {each for record in records for each in record.headers} == set(HEADERS)
    assert len({record.timestamp for record in records}) > 50
    assert all(abs(record.timestamp - NOW_MS) <= APART_MS for record in records)


def altered(**fields: object) -> list[str]:
    dressed, told = made()
    records, _ = dressed.records(PLACE, NOW_MS, [Written(b"k", b"1/1/0", (("a", b"b"),))])
    dressed.check(PLACE, [records[0]._replace(**fields)])
    return [each.rule for each in told]


def test_a_record_that_is_shown_with_another_timestamp_is_altered() -> None:
    assert altered() == []
    assert altered(timestamp=NOW_MS + APART_MS + 1) == ["altered"]


@pytest.mark.parametrize("fields", [{"headers": ()}, {"key": None}, {"headers": (("a", None),)}])
def test_a_record_that_is_shown_with_other_headers_or_another_key_is_altered(
    fields: dict[str, object],
) -> None:
    assert altered(**fields) == ["altered"]


def test_what_is_sent_again_may_look_otherwise() -> None:
    dressed, told = made()
    first, _ = dressed.records(PLACE, NOW_MS, VALUES)
    again, _ = dressed.records(PLACE, NOW_MS + 10 * APART_MS, VALUES)
    dressed.check(PLACE, [*first, *again])
    assert told == []


def test_a_tombstone_keeps_what_says_whose_it_is() -> None:
    dressed, told = made()
    records, _ = dressed.records(PLACE, NOW_MS, [Written(b"k", None, ((OF, b"1/1/-1"),))])
    assert records[0].headers[0] == (OF, b"1/1/-1")
    dressed.check(PLACE, records)
    assert (dressed.compared, told) == (1, [])


def test_what_is_as_large_as_may_be_and_what_others_sent_is_left_alone() -> None:
    dressed, told = made()
    large = padded(1, 1, 0, 100)
    assert dressed.records(PLACE, NOW_MS, [large]) == ([Record(0, NOW_MS, *large)], 0)
    dressed.check(PLACE, [Record(0, 0, None, b"9/9/0")])
    assert (dressed.compared, told) == (0, [])
    assert PLAIN.records(PLACE, NOW_MS, [b"x"]) == ([Record(0, NOW_MS, None, b"x")], 0)


def test_who_has_much_to_transform_writes_batches_that_fit_a_segment() -> None:
    """It wrote what had come together meanwhile as one batch: RECORD_LIST_TOO_LARGE (transactions, seed 123095)."""
    dressed, sizes = made()[0], []

    class Sending:
        async def send(self, topic: str, partition: int, payloads: list[bytes]) -> int:
            records, _ = dressed.records((topic, partition), NOW_MS, payloads)
            sizes.append(len(build_batch(records, compression=0, producer_id=1)))
            return 0

    client: Any = SimpleNamespace(name="worker", env=SimpleNamespace(rng=random.Random(1)))
    habits = Habits(new_protocol=True, crash_odds=0)
    worker = Worker(client, Book(), [PLACE], [("out", 0)], "w", habits)
    op = Txn("txn", "info", "worker", 10**9)
    op.polls = [Polled("in-0", at, 10**9 + at) for at in range(100)]
    asyncio.run(worker._transform(cast(Any, Sending()), op))
    assert [sent.extra for sent in op.sends] == [polled.value for polled in op.polls]
    smallest_segment = 1024
    assert len(sizes) > 1
    assert max(sizes) <= smallest_segment
