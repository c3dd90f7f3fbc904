"""What a read_committed consumer makes of the bytes of a fetch."""

from fencepost.chaos.workloads.txn_reader import committed_records
from fencepost.cluster.wire.batch import parse_header
from fencepost.cluster.wire.records import Record, build_batch, control_batch
from fencepost.replication.log.cleaner import emptied


def data(offset: int, *values: bytes, producer_id: int = 9, transactional: bool = True) -> bytes:
    records = [Record(offset + at, 0, None, value) for at, value in enumerate(values)]
    return bytes(
        build_batch(
            records,
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=transactional,
        )
    )


def end(offset: int, *, commit: bool, producer_id: int = 9) -> bytes:
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


def read(content: bytes, aborted=(), position: int = 0):
    records, position = committed_records(content, aborted, position)
    return [(each.offset, each.value) for each in records], position


def test_records_of_an_aborted_transaction_are_left_out_up_to_its_marker() -> None:
    content = data(0, b"a") + data(1, b"b", producer_id=8) + end(2, commit=False) + data(3, b"c")
    assert read(content, [(9, 0)]) == ([(1, b"b"), (3, b"c")], 4)


def test_two_aborted_transactions_of_one_producer_are_left_out_both() -> None:
    first, second = data(0, b"a") + end(1, commit=False), data(2, b"b") + end(3, commit=False)
    assert read(first + second, [(9, 2), (9, 0)]) == ([], 4)


def test_a_plain_record_of_a_producer_with_an_aborted_transaction_is_kept() -> None:
    content = data(0, b"a", transactional=False) + data(1, b"b") + end(2, commit=False)
    assert read(content, [(9, 1)]) == ([(0, b"a")], 3)


def test_markers_move_the_position_and_what_lies_before_it_is_no_answer() -> None:
    content = data(0, b"a", b"b") + end(2, commit=True)
    assert read(content, position=1) == ([(1, b"b")], 3)


def test_a_marker_that_compaction_has_emptied_ends_nothing() -> None:
    """Its transaction had no records left (KIP-534); the batch stays where a producer or a segment needs it."""
    marker = end(1, commit=False)
    empty = bytes(emptied(parse_header(marker)))
    content = data(0, b"a") + empty + data(2, b"b") + end(3, commit=False)
    assert read(content, [(9, 0)]) == ([], 4)
    assert read(empty + data(2, b"b")) == ([(2, b"b")], 3)
