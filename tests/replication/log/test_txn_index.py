"""The index of aborted transactions: Kafka's entries with checksums, and no aborted record left unnamed."""

import zlib

import pytest
from fencepost.replication.log.txn_index import (
    BLOCK,
    ENTRY,
    ENTRY_SIZE,
    AbortedIndex,
    AbortedTxn,
    IndexDamaged,
)
from hypothesis import given
from hypothesis import strategies as st

parse = AbortedIndex.parse


def test_what_is_added_to_one_index_is_in_no_other() -> None:
    """Empty ones share their nothing."""
    one, other = AbortedIndex(), parse(b"", base_offset=0)
    one.append(ONE)
    assert (len(one), len(other), len(AbortedIndex())) == (1, 0, 0)
    assert not other.cut(5)
    assert other.overlapping(0, 100) == ([], False)


def test_an_entry_is_kafkas_and_the_checksum_of_all_so_far() -> None:
    two = [AbortedTxn(7, 10, 20, 15), AbortedTxn(8, 11, 21, 22)]
    kafkas = ["0000" + "".join(f"{value:016x}" for value in each) for each in two]
    checksums = [f"{zlib.crc32(bytes.fromhex(''.join(kafkas[:end]))):08x}" for end in (1, 2)]
    data = AbortedIndex(two).to_bytes()
    assert data.hex() == kafkas[0] + checksums[0] + kafkas[1] + checksums[1]
    assert list(parse(data, base_offset=0)) == two


ONE = AbortedTxn(7, 10, 20, 15)
ONE_DATA = AbortedIndex([ONE]).to_bytes()
BAD = {
    "half an entry": ONE_DATA[:-1],
    "another version": b"\x00\x01" + ONE_DATA[2:],
    "a marker before the segment": AbortedIndex([AbortedTxn(7, 1, 4, 4)]).to_bytes(),
    "a marker before what it ends": AbortedIndex([AbortedTxn(7, 30, 20, 15)]).to_bytes(),
    "markers out of order": AbortedIndex([AbortedTxn(8, 11, 21, 15), ONE]).to_bytes(),
    "one marker twice": AbortedIndex([ONE, ONE]).to_bytes(),
    "no checksums, as Kafka writes it": ONE.to_bytes(),
}


@pytest.mark.parametrize("case", BAD)
def test_a_damaged_index_is_refused(case: str) -> None:
    with pytest.raises(IndexDamaged):
        parse(BAD[case], base_offset=5)


@given(st.binary(max_size=3 * ENTRY_SIZE))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    try:
        assert parse(data, base_offset=0).to_bytes() == data
    except IndexDamaged:
        pass


@given(st.lists(st.tuples(*[st.integers(0, 2**62)] * 3), unique_by=lambda row: row[2], max_size=5))
def test_what_is_written_is_read(rows: list[tuple[int, int, int]]) -> None:
    entries = [
        AbortedTxn(producer_id, min(first, last), last + 1, first)
        for producer_id, first, last in sorted(rows, key=lambda row: row[2])
    ]
    data = AbortedIndex(entries).to_bytes()
    assert list(parse(data, base_offset=0)) == entries


def test_truncation_keeps_the_markers_that_stay() -> None:
    def left(end: int) -> int:
        index = AbortedIndex([ONE, AbortedTxn(8, 12, 25, 21)])
        assert index.cut(end) == (len(index) < 2)
        return len(index)

    assert [left(end) for end in (20, 21, 25, 26)] == [0, 1, 1, 2]


@given(st.integers(1, 4), st.data())
def test_no_entry_can_change_unseen(count: int, data: st.DataObject) -> None:
    """A first offset that is later than it was hides a transaction; a stable offset, all that follow."""
    sound = AbortedIndex(
        AbortedTxn(7, 9 * i, 9 * i + 5, 9 * i + 3) for i in range(count)
    ).to_bytes()
    flipped = bytearray(sound)
    byte = data.draw(st.integers(0, len(sound) - 1))
    flipped[byte] ^= 1 << data.draw(st.integers(0, 7))
    if byte // ENTRY_SIZE < count - 1 and byte % ENTRY_SIZE >= ENTRY.size:
        # The checksum of an entry that is not the last: nobody asks it.
        assert list(parse(bytes(flipped), base_offset=0)) == list(parse(sound, base_offset=0))
        return
    with pytest.raises(IndexDamaged):
        parse(bytes(flipped), base_offset=0)


def test_entries_are_added_behind_those_that_were_written() -> None:
    index = AbortedIndex([ONE, AbortedTxn(8, 12, 25, 21)])
    whole = index.to_bytes()
    first = AbortedIndex([ONE]).to_bytes()
    assert first + index.to_bytes(1, checksum=int.from_bytes(first[-4:], "big")) == whole


@pytest.mark.parametrize("through_a_file", [False, True])
def test_blocks_hide_nothing(through_a_file: bool) -> None:
    """Short transactions, one that is open all the while, and one that begins before a cut and ends behind it."""
    entries = [AbortedTxn(1, 3 * i + 10, 3 * i + 11, 5) for i in range(3 * BLOCK)]
    entries.append(AbortedTxn(2, 5, 9 * BLOCK + 20, 9 * BLOCK + 21))
    index = AbortedIndex(entries)
    if through_a_file:
        index = parse(index.to_bytes(), base_offset=0)
    for first, last in ((0, 6), (0, 12), (4_000, 4_100), (9 * BLOCK, 9 * BLOCK + 9), (0, 99_999)):
        want = [each for each in entries if each.last_offset >= first and each.first_offset < last]
        places, done = index.overlapping(first, last)
        assert [index[place] for place in places] == want
        assert done == (last <= 9 * BLOCK + 21)
    index.cut(4_000)
    kept = [each for each in entries if each.last_offset < 4_000]
    assert list(index) == kept
    assert index.overlapping(0, 4_000) == (list(range(len(kept))), False)


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
        here = AbortedIndex(txn for txn in entries if base <= txn.last_offset < base + segment)
        places, done = here.overlapping(fetch, bound)
        found += [here[place] for place in places]
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
