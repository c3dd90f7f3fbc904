"""The index of aborted transactions: Kafka's format, and no aborted record left unnamed."""

import pytest
from fencepost.replication.log.txn_index import (
    ENTRY_SIZE,
    AbortedTxn,
    IndexDamaged,
    collect,
    parse,
    truncated,
)
from hypothesis import given
from hypothesis import strategies as st


def test_an_entry_is_kafkas() -> None:
    data = AbortedTxn(7, 10, 20, 15).to_bytes()
    assert data.hex() == "0000" + "".join(f"{value:016x}" for value in (7, 10, 20, 15))
    assert parse(data, base_offset=0) == [AbortedTxn(7, 10, 20, 15)]


ONE = AbortedTxn(7, 10, 20, 15)
BAD = {
    "half an entry": ONE.to_bytes()[:-1],
    "another version": b"\x00\x01" + ONE.to_bytes()[2:],
    "a marker before the segment": AbortedTxn(7, 1, 4, 4).to_bytes(),
    "a marker before what it ends": AbortedTxn(7, 30, 20, 15).to_bytes(),
    "markers out of order": AbortedTxn(8, 11, 21, 15).to_bytes() + ONE.to_bytes(),
    "one marker twice": ONE.to_bytes() * 2,
}


@pytest.mark.parametrize("case", BAD)
def test_a_damaged_index_is_refused(case: str) -> None:
    with pytest.raises(IndexDamaged):
        parse(BAD[case], base_offset=5)


@given(st.binary(max_size=3 * ENTRY_SIZE))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    try:
        assert b"".join(txn.to_bytes() for txn in parse(data, base_offset=0)) == data
    except IndexDamaged:
        pass


def test_truncation_keeps_the_markers_that_stay() -> None:
    entries = [ONE, AbortedTxn(8, 12, 25, 21)]
    assert [truncated(entries, end) for end in (20, 21, 25, 26)] == [0, 1, 1, 2]


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[int, str]]:
    """A log of (producer, what): data, or the end of its transaction."""
    ops = st.tuples(st.integers(1, 3), st.sampled_from(["data", "data", "abort", "commit"]))
    return draw(st.lists(ops, max_size=30))


@given(logs(), st.integers(0, 30), st.integers(0, 30), st.integers(1, 8))
def test_no_aborted_record_is_left_unnamed(
    log: list[tuple[int, str]], fetch: int, length: int, segment: int
) -> None:
    """Against a slow twin that looks at every record and its marker, over segments as Kafka searches them."""
    open_at: dict[int, int] = {}
    entries: list[AbortedTxn] = []
    fate: dict[int, tuple[int, str]] = {}
    for offset, (producer, what) in enumerate(log):
        if what == "data":
            open_at.setdefault(producer, offset)
        elif producer in open_at:
            first = open_at.pop(producer)
            for i in range(first, offset):
                if log[i] == (producer, "data"):
                    fate[i] = (first, what)
            if what == "abort":
                stable = min(open_at.values(), default=offset + 1)
                entries.append(AbortedTxn(producer, first, offset, stable))
    bound = min(fetch + length, min(open_at.values(), default=len(log)))
    found: list[AbortedTxn] = []
    for base in range(fetch - fetch % segment, len(log), segment):
        here = [txn for txn in entries if base <= txn.last_offset < base + segment]
        some, done = collect(here, fetch, bound)
        found += some
        if done:
            break
    named = {(txn.producer_id, txn.first_offset) for txn in found}
    aborted = {
        (log[i][0], first)
        for i, (first, what) in fate.items()
        if what == "abort" and fetch <= i < bound
    }
    assert aborted <= named
    assert all(txn.first_offset < bound and txn.last_offset >= fetch for txn in found)
