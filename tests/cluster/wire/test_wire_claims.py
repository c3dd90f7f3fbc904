"""How many records a packed batch may claim: a claim is offsets taken, and nobody unpacks what is produced."""

from functools import cache

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.wire.batch import HEADER_SIZE, BatchRefused, check_produced, parse_header
from fencepost.cluster.wire.compression import NAMES, compress, decompress
from fencepost.cluster.wire.records import Record, build_batch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_wire_produced import COMPACTED, MEGABYTE, NOW, change, seal, verdict

E = ErrorCode
PACKED = range(1, 5)
CLAIM_MAX = 2**31 - 1
SMALLEST = 7
A_BYTE = 4


def same(count: int, *, codec: int, key: bytes | None = None, size: int = 0) -> bytearray:
    value = bytes(size) if size else None
    return build_batch([Record(i, NOW, key, value) for i in range(count)], compression=codec)


def claiming(batch: bytes | bytearray, count: int, **fields: int) -> bytearray:
    return change(batch, record_count=count, last_offset_delta=count - 1, **fields)


def of_body(body: bytes, codec: int, count: int) -> bytearray:
    """A batch of any bytes."""
    batch = same(1, codec=codec)[:HEADER_SIZE] + compress(codec, body)
    batch[8:12] = (len(batch) - 12).to_bytes(4)
    return claiming(batch, count)


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("claim", [10_000, 3_000_000, CLAIM_MAX])
def test_a_packed_batch_that_claims_what_its_bytes_can_not_hold_is_refused(
    codec: int, claim: int
) -> None:
    """Six of them took 12,884,901,882 offsets. Kafka unpacks each batch, and answers INVALID_RECORD (DefaultRecordBatch: premature EOF)."""
    lying = claiming(same(1, codec=codec, key=b"k", size=1), claim)
    with pytest.raises(BatchRefused) as refused:
        check_produced(lying, message_max_bytes=MEGABYTE, now_ms=NOW)
    assert refused.value.code is E.invalid_record
    assert f"claims {claim} records" in refused.value.message
    assert f"{NAMES[codec]} unpacks to 9 bytes, which hold 1 at most" in refused.value.message


@pytest.mark.parametrize("codec", PACKED)
def test_a_max_timestamp_that_was_left_out_lets_no_claim_in(codec: int) -> None:
    """Where it unpacks to too much its records are not looked into: nor would they have been counted."""
    bomb = of_body(bytes(34 << 20), codec, CLAIM_MAX)
    assert len(bomb) < 2 * MEGABYTE
    lies = change(bomb, max_timestamp=-1)
    assert verdict(lies, message_max_bytes=2 * MEGABYTE)[0] is E.message_too_large
    few = claiming(bomb, 1_000, max_timestamp=-1)
    assert verdict(few, message_max_bytes=2 * MEGABYTE) == (E.none, [])


@pytest.mark.parametrize("codec", PACKED)
def test_what_unpacks_to_enough_is_let_in_without_being_unpacked_wholly(codec: int) -> None:
    """By its size it can hold them: that is all that is asked where nobody asks for more."""
    bomb = of_body(bytes(34 << 20), codec, 4_700_000)
    assert verdict(bomb, message_max_bytes=2 * MEGABYTE)[0] is E.none
    # Above what is unpacked for anybody: a client makes smaller ones of it.
    more = claiming(bomb, 9_000_000)
    assert verdict(more, message_max_bytes=2 * MEGABYTE)[0] is E.message_too_large


@cache  # it takes seconds, and each codec packs the same
def _a_million(key: bytes | None) -> bytes:
    return bytes(same(1_000_000, codec=0, key=key)[HEADER_SIZE:])


@pytest.mark.slow
@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("key", [None, b"k"])
def test_a_million_empty_records_of_one_key_are_let_in(codec: int, key: bytes | None) -> None:
    """As many as librdkafka puts into one batch (batch.num.messages), packed as well as can be."""
    batch = of_body(_a_million(key), codec, 1_000_000)
    assert verdict(batch, message_max_bytes=8 << 20) == (E.none, [])
    assert A_BYTE * (len(batch) - HEADER_SIZE) > 1_000_000, "and nobody unpacks them for it"


@settings(max_examples=60)
@given(
    st.sampled_from(PACKED),
    st.integers(1, 3_000),
    st.none() | st.binary(max_size=3),
    st.integers(0, 50),
    st.integers(1, CLAIM_MAX) | st.integers(1, 20_000),
)
@example(4, 3_000, None, 0, 20_000)
def test_what_is_true_is_let_in_and_a_claim_is_refused_where_the_size_can_not_hold_it(
    codec: int, count: int, key: bytes | None, size: int, claim: int
) -> None:
    """The slow twin unpacks each."""
    batch = same(count, codec=codec, key=key, size=size)
    assert verdict(batch)[0] is E.none
    packed = batch[HEADER_SIZE:]
    is_held = SMALLEST * claim <= len(decompress(codec, packed)) or claim <= A_BYTE * len(packed)
    wanted = E.none if is_held else E.invalid_record
    assert verdict(claiming(batch, claim))[0] is wanted
    if claim != count:
        assert verdict(claiming(batch, claim), **COMPACTED)[0] is E.invalid_record


@settings(max_examples=60)
@given(st.sampled_from(PACKED), st.data(), st.integers(1, CLAIM_MAX))
def test_what_claims_much_and_is_no_codecs_is_refused_in_no_other_way(
    codec: int, data: st.DataObject, claim: int
) -> None:
    batch = claiming(same(50, codec=codec, key=b"k", size=9), claim)
    for _ in range(data.draw(st.integers(1, 6))):
        batch[data.draw(st.integers(HEADER_SIZE, len(batch) - 1))] = data.draw(st.integers(0, 255))
    seal(batch)
    assert verdict(batch)[0] in (E.none, E.invalid_record, E.message_too_large)
    assert parse_header(batch).record_count == claim
