"""What a compacted log makes of its records, as the watch reads it: the newest of a key is by offset."""

from types import SimpleNamespace
from typing import Any

from fencepost.chaos.sim import table_watch
from fencepost.cluster.wire.batch import parse_header
from fencepost.cluster.wire.records import Record, build_batch, control_batch


def data(offset: int, key: bytes, value: bytes | None, producer_id: int) -> bytes:
    return bytes(
        build_batch(
            [Record(offset, 0, key, value)],
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
    )


def end(offset: int, producer_id: int, *, commit: bool = True) -> bytes:
    return bytes(
        control_batch(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=0,
            base_offset=offset,
        )
    )


def table_of(monkeypatch: Any, *batches: bytes) -> dict[bytes, bytes]:
    rows = [(each, 0, parse_header(each)) for each in batches]
    monkeypatch.setattr(table_watch, "batches_between", lambda *_: iter(rows))
    log: Any = SimpleNamespace()
    return table_watch._table(lambda _: None, log, 0, 100)


def test_what_is_committed_later_and_was_written_before_is_not_the_newest(monkeypatch: Any) -> None:
    """A replica that is cleaned has lost it; one that is not has both."""
    both = [data(0, b"k", b"old", 1), data(1, b"k", b"new", 2), end(2, 2), end(3, 1)]
    assert table_of(monkeypatch, *both) == {b"k": b"new"}
    assert table_of(monkeypatch, *both[1:]) == {b"k": b"new"}


def test_a_tombstone_hides_what_was_written_before_it_alone(monkeypatch: Any) -> None:
    gone = [data(0, b"k", b"old", 1), data(1, b"k", None, 2), end(2, 2), end(3, 1)]
    assert table_of(monkeypatch, *gone) == {}
    assert table_of(monkeypatch, data(0, b"k", None, 1), data(1, b"k", b"v", 1), end(2, 1)) == {
        b"k": b"v"
    }


def test_what_was_aborted_or_is_open_is_nobody_s_value(monkeypatch: Any) -> None:
    log = [data(0, b"k", b"v", 1), end(1, 1), data(2, b"k", b"no", 2), end(3, 2, commit=False)]
    assert table_of(monkeypatch, *log, data(4, b"k", b"open", 1)) == {b"k": b"v"}
