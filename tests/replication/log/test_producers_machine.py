"""The producers machine: Kafka's rules row by row, and against a slow twin that remembers everything."""

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.replication.log.producer_snapshot import SEQUENCE_MAX, SnapshotDamaged, read_snapshot
from fencepost.replication.log.producer_verdicts import ACCEPT, Duplicate
from fencepost.replication.log.producers_machine import TOUCH_MS, ProducersMachine
from hypothesis import example, given, settings
from hypothesis import strategies as st
from producer_helpers import DAY, NOW, OLD_EPOCH, OUT_OF_ORDER, PID, Given, Produced, five
from producers_twin import Pair

# What is in the log, what comes, what Kafka answers.
ROWS: dict[str, tuple[list[Produced], Produced, object]] = {
    "a new producer starts at 0": ([], Produced(0), ACCEPT),
    "an unknown producer may go on anywhere": ([], Produced(41, producer_epoch=3), ACCEPT),
    "the next sequence follows": (five(), Produced(50, 3), ACCEPT),
    "a gap is out of order": (five(), Produced(51), OUT_OF_ORDER),
    "an old batch outside the window is out of order": (
        [*five(), Produced(50)], Produced(0, 10), OUT_OF_ORDER,
    ),
    "the newest batch again is a duplicate": (five(), Produced(40, 10), Duplicate(40, 49, 5)),
    "the oldest of five is still known": (five(), Produced(0, 10), Duplicate(0, 9, 5)),
    "the same start with another length is no duplicate": (five(), Produced(40, 9), OUT_OF_ORDER),
    "the same end with another start is no duplicate": (five(), Produced(41, 9), OUT_OF_ORDER),
    "a lower epoch is a zombie": (five(producer_epoch=2), Produced(50, producer_epoch=1), OLD_EPOCH),
    "a zombie's duplicate is no duplicate": (
        five(producer_epoch=2), Produced(40, 10, producer_epoch=1), OLD_EPOCH,
    ),
    "a new epoch starts at 0": (five(), Produced(0, 10, producer_epoch=1), ACCEPT),
    "a new epoch that does not is out of order": (
        five(), Produced(50, producer_epoch=1), OUT_OF_ORDER,
    ),
    "an epoch may skip some": (five(), Produced(0, producer_epoch=300), ACCEPT),
    "the last epoch there is": (
        five(producer_epoch=32766), Produced(0, producer_epoch=32767), ACCEPT,
    ),
    "after the largest sequence comes 0": ([Produced(SEQUENCE_MAX)], Produced(0), ACCEPT),
    "after the largest sequence nothing else comes": (
        [Produced(SEQUENCE_MAX)], Produced(1), OUT_OF_ORDER,
    ),
    "a batch may wrap inside": ([Produced(SEQUENCE_MAX - 4, 3)], Produced(SEQUENCE_MAX - 1, 5), ACCEPT),
    "after a batch that wrapped": ([Produced(SEQUENCE_MAX - 1, 5)], Produced(3), ACCEPT),
    "a batch that wrapped is known again": (
        [Produced(SEQUENCE_MAX - 1, 5)], Produced(SEQUENCE_MAX - 1, 5), Duplicate(0, 4, 5),
    ),
    "a batch without producer is never refused": (five(), Produced(producer_id=-1), ACCEPT),
    "a plain write inside a transaction": (
        [Produced(0, is_transactional=True)], Produced(1), ErrorCode.invalid_txn_state,
    ),
    "a plain write of the next epoch inside a transaction": (
        [Produced(0, is_transactional=True)], Produced(0, producer_epoch=1),
        ErrorCode.invalid_txn_state,
    ),
    "a transactional write after plain ones": (five(), Produced(50, is_transactional=True), ACCEPT),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_a_client_is_answered_as_kafka_answers(row: str) -> None:
    written, batch, answer = ROWS[row]
    assert Given().wrote(*written).answer(batch) == answer


def test_coordinators_write_without_sequences_but_not_as_zombies() -> None:
    """AppendOrigin.COORDINATOR: TxnOffsetCommit's records carry an epoch and no sequence."""
    log = Given().wrote(Produced(-1, producer_epoch=4, is_transactional=True))
    again = Produced(-1, producer_epoch=4, is_transactional=True)
    zombie = Produced(-1, producer_epoch=3, is_transactional=True)
    assert log.answer(again, origin_client=False) is ACCEPT
    assert log.answer(zombie, origin_client=False) == OLD_EPOCH


def test_a_refused_first_batch_is_not_overtaken() -> None:
    """Two batches in flight, a full disk for the first only: the second must wait for it."""
    log = Given()
    log.machine.note_refused(Produced(0, 10))
    assert log.answer(Produced(10, 10)) == OUT_OF_ORDER
    assert log.answer(Produced(0, 10)) is ACCEPT
    assert log.wrote(Produced(0, 10)).answer(Produced(10, 10)) is ACCEPT


def test_a_refusal_counts_for_its_own_epoch_only() -> None:
    log = Given()
    log.machine.note_refused(Produced(100, producer_epoch=1))
    log.machine.note_refused(Produced(200, producer_epoch=1))
    assert log.answer(Produced(101, producer_epoch=1)) == OUT_OF_ORDER
    assert log.answer(Produced(101, producer_epoch=2)) is ACCEPT
    log.machine.note_refused(Produced(0, producer_epoch=2))
    assert log.answer(Produced(101, producer_epoch=1)) is ACCEPT


def test_refusals_are_remembered_for_a_bounded_number_of_producers() -> None:
    log = Given()
    for producer_id in range(1_500):
        log.machine.note_refused(Produced(0, producer_id=producer_id))
    assert log.answer(Produced(1, producer_id=0)) is ACCEPT
    assert log.answer(Produced(1, producer_id=1_499)) == OUT_OF_ORDER


def test_who_was_refused_just_now_is_not_the_first_to_be_forgotten() -> None:
    log = Given()
    for producer_id in (*range(1_000), 0, 1_000):
        log.machine.note_refused(Produced(0, producer_id=producer_id))
    assert log.answer(Produced(1, producer_id=0)) == OUT_OF_ORDER
    assert log.answer(Produced(1, producer_id=1)) is ACCEPT


# -- forgetting --------------------------------------------------------------------------------------


def test_an_idle_producer_expires_and_comes_back_without_an_error() -> None:
    log = Given().wrote(*five())
    assert log.machine.expire(NOW + DAY - 1) == 0
    assert log.machine.expire(NOW + DAY) == 1
    assert log.answer(Produced(50)) is ACCEPT


def test_expiry_goes_by_the_brokers_clock_not_the_records() -> None:
    """A producer that copies old records would otherwise be forgotten while it writes."""
    log = Given().wrote(Produced(0, max_timestamp=1))
    assert log.machine.expire(NOW + 1) == 0
    assert log.answer(Produced(0, max_timestamp=1)) == Duplicate(0, 0, 1)


def test_an_open_transaction_never_expires() -> None:
    log = Given().wrote(Produced(0, is_transactional=True), Produced(0, producer_id=8))
    assert log.machine.expire(NOW + 10 * DAY) == 1
    assert log.machine.state_of(PID) is not None
    assert log.machine.state_of(8) is None


def test_use_keeps_a_producer_alive() -> None:
    log = Given().wrote(Produced(0))
    log.now_ms += DAY - 1
    log.wrote(Produced(1))
    assert log.machine.expire(NOW + DAY + TOUCH_MS) == 0
    assert log.machine.expire(log.now_ms + DAY) == 1


def test_a_clock_that_was_ahead_does_not_keep_producers_for_ever() -> None:
    log = Given(now_ms=NOW + 1_000 * DAY).wrote(Produced(0))
    log.now_ms = NOW
    log.wrote(Produced(0, producer_id=8))
    assert log.machine.expire(NOW) == 0
    assert log.machine.expire(NOW + DAY) == 2


# -- snapshots ---------------------------------------------------------------------------------------


def some_log() -> Given:
    log = Given().wrote(*five(), Produced(0, 3, producer_id=8, is_transactional=True))
    log.wrote(Produced(0, producer_id=9, producer_epoch=2, is_transactional=True))
    log.ended(pid=9, epoch=2, commit=True)
    return log


def test_a_restart_from_a_snapshot_remembers_the_whole_window() -> None:
    """Kafka's own snapshot keeps the last batch only: the retry of the first would be out of order."""
    log = some_log()
    again = Given(ProducersMachine())
    assert again.machine.restore(log.machine.snapshot(), now_ms=NOW) == log.end
    assert again.answer(Produced(0, 10)) == Duplicate(0, 9, 5)
    assert again.machine.states() == log.machine.states()
    assert again.machine.first_unstable_offset == log.machine.first_unstable_offset == 50
    assert again.machine.snapshot() == log.machine.snapshot()


def test_what_expired_while_the_node_was_down_is_not_loaded() -> None:
    again = ProducersMachine()
    again.restore(some_log().machine.snapshot(), now_ms=NOW + DAY)
    assert [state.producer_id for state in again.states()] == [8]  # its transaction is open


@given(st.data())
@settings(max_examples=300)
def test_no_damage_to_a_snapshot_is_believed(data: st.DataObject) -> None:
    good = some_log().machine.snapshot()
    damage = data.draw(st.sampled_from(["flip", "cut", "grow"]))
    if damage == "flip":
        bit = data.draw(st.integers(0, len(good) * 8 - 1))
        flipped = bytearray(good)
        flipped[bit // 8] ^= 1 << bit % 8
        bad = bytes(flipped)
    elif damage == "cut":
        bad = good[: data.draw(st.integers(0, len(good) - 1))]
    else:
        bad = good + data.draw(st.binary(min_size=1, max_size=40))
    with pytest.raises(SnapshotDamaged):
        read_snapshot(bad)


@given(st.binary(max_size=200))
@example(b"FPPS\x00\x01")
def test_garbage_is_no_snapshot(data: bytes) -> None:
    with pytest.raises(SnapshotDamaged):
        read_snapshot(data)


def test_a_snapshot_that_lies_about_its_counts_is_refused_even_with_a_right_checksum() -> None:
    import zlib

    body = (5).to_bytes(8, "big") + (2**32 - 1).to_bytes(4, "big") + bytes(4) + bytes(30)
    with pytest.raises(SnapshotDamaged):
        read_snapshot(b"FPPS\x00\x01" + zlib.crc32(body).to_bytes(4, "big") + body)


# -- what the cleaner must leave ---------------------------------------------------------------------


def test_the_cleaner_keeps_what_the_window_needs() -> None:
    machine = Given().wrote(*five(), Produced(50)).machine
    needs = [machine.still_needs(PID, 0, last, is_control=False) for last in (9, 19, 29, 49, 50)]
    assert needs == [False, True, True, True, True]
    assert not machine.still_needs(99, 0, 19, is_control=False)


def test_the_cleaner_keeps_the_marker_that_holds_an_epoch() -> None:
    log = Given().wrote(Produced(0, is_transactional=True))
    log.ended(epoch=1)
    assert log.machine.still_needs(PID, 1, 1, is_control=True)
    assert not log.machine.still_needs(PID, 0, 0, is_control=False)


# -- the slow twin -----------------------------------------------------------------------------------


writes = st.tuples(
    st.sampled_from([1, 1, 1, 1, 2, 3]),  # producer
    st.sampled_from([0, 0, 0, 0, 0, 0, 0, 1, -1]),  # epoch relative to the current one
    st.sampled_from(["next"] * 8 + ["retry", "retry", "gap", "zero"]),
    st.integers(1, 4),  # records
    st.booleans(),
)
KINDS = ["mark", "replicate", "truncate", "snapshot", "restart", "rest"]
# Weighted by hand, or windows would never fill.
ops = st.tuples(st.sampled_from(["write"] * 24 + KINDS), writes, st.integers(0, 8), st.booleans())


# Shorter lists are mostly too short to fill a window; "rest" lets a failing one shrink.
@given(st.lists(ops, min_size=40, max_size=80))
@settings(max_examples=100)
@pytest.mark.slow
def test_the_machine_and_its_slow_twin_agree(operations: list[tuple]) -> None:
    pair = Pair()
    for op in operations:
        pair.run(op)
