"""How many records and headers a batch may have where an object is made of each: a few kilobytes hold millions."""

import tracemalloc

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire import produced, records
from fencepost.cluster.wire.batch import BatchRefused
from fencepost.cluster.wire.compression import ZSTD
from fencepost.cluster.wire.records import OBJECTS_MAX, read_records, write_varint
from test_wire_claims import of_body, same
from test_wire_produced import COMPACTED, NOT_BEFORE, verdict

E = ErrorCode
SMALLEST_HEADER = b"\x00\x01"  # no name, no value


def of_headers(count: int, *, records: int = 1) -> bytearray:
    """A packed batch whose records have so many headers each."""
    body = bytearray()
    for index in range(records):
        record = bytearray(2)  # attributes, and the time
        write_varint(record, index)
        record += b"\x02k\x02v"
        write_varint(record, count)
        record += SMALLEST_HEADER * count
        write_varint(body, len(record))
        body += record
    return of_body(bytes(body), ZSTD, records)


def test_no_objects_are_made_of_more_headers_than_fit_into_memory() -> None:
    """15 million of them, in 3 KB, took a replica 1.2 GB at each compaction, and after each start again."""
    batch = of_headers(4_000_000)
    assert len(batch) < 4_000
    tracemalloc.start()
    try:
        with pytest.raises(BatchRefused) as refused:
            read_records(batch)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert refused.value.code is E.message_too_large
    assert peak < 64 << 20


def test_headers_of_several_records_count_together() -> None:
    with pytest.raises(BatchRefused) as refused:
        read_records(of_headers(OBJECTS_MAX // 2, records=2))
    assert refused.value.code is E.message_too_large


def test_a_compacted_topic_takes_no_batch_of_which_compaction_would_make_too_many_objects() -> None:
    for batch in (of_headers(OBJECTS_MAX), of_headers(OBJECTS_MAX // 2, records=2)):
        assert verdict(batch, **COMPACTED)[0] is E.message_too_large
        assert verdict(batch)[0] is E.none  # nobody makes objects of it here


def test_a_record_that_claims_headers_which_it_has_not_is_no_record_where_no_objects_are_made() -> (
    None
):
    record = bytearray(b"\x00\x00\x00\x02k\x02v")  # attributes, time and offset; key and value
    write_varint(record, OBJECTS_MAX)
    body = bytearray()
    write_varint(body, len(record))
    assert verdict(of_body(bytes(body + record), ZSTD, 1), **NOT_BEFORE)[0] is E.invalid_record


def test_a_batch_of_as_many_headers_as_are_allowed_is_taken_and_read() -> None:
    batch = of_headers(OBJECTS_MAX // 2 - 1, records=2)
    assert verdict(batch, **COMPACTED)[0] is E.none
    assert len(read_records(batch)) == 2


def test_a_batch_of_as_many_records_as_are_allowed_is_taken_and_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At a lower limit: a million records are seconds of work here, and a minute beside six other parts of the tests."""
    for module in (records, produced):
        monkeypatch.setattr(module, "OBJECTS_MAX", 2_000)
    whole, one_more = (same(count, codec=ZSTD, key=b"k") for count in (2_000, 2_001))
    assert verdict(whole, **COMPACTED)[0] is E.none
    assert len(read_records(whole)) == 2_000
    assert verdict(one_more, **COMPACTED)[0] is E.message_too_large
    with pytest.raises(BatchRefused):
        read_records(one_more)


def test_a_batch_of_as_many_records_as_clients_put_into_one_is_taken_and_read() -> None:
    """A record is 8 bytes at least, and a client's batch a megabyte before it is packed."""
    whole = same(131_072, codec=ZSTD, key=b"k")
    assert verdict(whole, **COMPACTED)[0] is E.none
    assert len(read_records(whole)) == 131_072
