"""Random batches, records and messages for the property tests of the wire."""

from typing import Any

from fencepost.cluster.wire.records import Record, build_batch
from fencepost.cluster.wire.schema import FIXED, Field, fields_of
from hypothesis import strategies as st

INT64 = st.integers(-(2**63), 2**63 - 1)
TIMESTAMPS = st.integers(-2, 2**42)
MAYBE_BYTES = st.none() | st.binary(max_size=40)
HEADERS = st.lists(st.tuples(st.text(max_size=8), MAYBE_BYTES), max_size=3)


@st.composite
def record_lists(draw: Any, *, min_size: int = 1, max_size: int = 20) -> list[Record]:
    count = draw(st.integers(min_size, max_size))
    base = draw(TIMESTAMPS)
    return [
        Record(
            index,
            base + draw(st.integers(-1000, 1000)),
            draw(MAYBE_BYTES),
            draw(MAYBE_BYTES),
            draw(HEADERS),
        )
        for index in range(count)
    ]


@st.composite
def batches(draw: Any, *, codecs: Any = range(5)) -> bytearray:
    has_producer = draw(st.booleans())
    return build_batch(
        draw(record_lists()),
        compression=draw(st.sampled_from(list(codecs))),
        producer_id=draw(st.integers(0, 2**63 - 1)) if has_producer else -1,
        producer_epoch=draw(st.integers(0, 2**15 - 1)) if has_producer else -1,
        base_sequence=draw(st.integers(0, 2**31 - 1)) if has_producer else -1,
    )


_RANGES = {"b": 8, "h": 16, "i": 32, "q": 64}


def _numbers(kind: str) -> st.SearchStrategy[Any]:
    letter = FIXED[kind]
    if kind == "uuid":
        return st.none() | st.uuids(allow_nil=False)
    if letter == "?":
        return st.booleans()
    if letter == "d":
        return st.floats(allow_nan=False)
    if kind == "error_code":
        return st.integers(-1, 133)
    if letter.isupper():
        return st.integers(0, 2 ** _RANGES[letter.lower()] - 1)
    bits = _RANGES[letter]
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _values(field: Field, depth: int) -> st.SearchStrategy[Any]:
    if field.struct is not None:
        one: st.SearchStrategy[Any] = message_fields(field.struct, depth + 1)
    elif field.kind == "string":
        one = st.text(max_size=6)
    elif field.kind in ("bytes", "records"):
        one = st.binary(max_size=12)
    else:
        one = _numbers(field.kind)
    if field.is_array:
        one = st.lists(one, max_size=2)
    tagged_null = field.tag is not None and not field.is_array and field.struct is not None
    return st.none() | one if field.nullable and not tagged_null else one


def message_fields(entity: type, depth: int = 0) -> st.SearchStrategy[dict[str, Any]]:
    """Any legal message of `entity`, as the dict that `render` takes."""
    return st.fixed_dictionaries({field.name: _values(field, depth) for field in fields_of(entity)})
