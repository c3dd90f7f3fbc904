"""The producers machine: Kafka's rules row by row, and against a slow twin that remembers everything."""

from dataclasses import dataclass

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.replication.log.producer_snapshot import (
    SEQUENCE_MAX,
    Batch,
    SnapshotDamaged,
    read_snapshot,
)
from fencepost.replication.log.producer_verdicts import (
    ACCEPT,
    CompletedTxn,
    Duplicate,
    Marker,
    Refused,
)
from fencepost.replication.log.producers_machine import TOUCH_MS, ProducersMachine
from fencepost.replication.log.verifications_machine import ENDED_MAX, NO_GUARD
from hypothesis import example, given, settings
from hypothesis import strategies as st
from producer_helpers import NOW, PID, Given, Produced

DAY = 24 * 60 * 60 * 1000


def five(first: int = 0, **kind: int) -> list[Produced]:
    return [Produced(first + 10 * i, 10, **kind) for i in range(5)]


OUT_OF_ORDER = ErrorCode.out_of_order_sequence_number
OLD_EPOCH = ErrorCode.invalid_producer_epoch

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


# -- transactions ------------------------------------------------------------------------------------


def test_a_marker_ends_the_transaction_and_keeps_the_window() -> None:
    log = Given().wrote(Produced(0, 10, is_transactional=True))
    assert log.machine.first_unstable_offset == 0
    assert log.ended() == CompletedTxn(PID, 0, 10, aborted=True, last_stable_offset=11)
    assert log.answer(Produced(0, 10, is_transactional=True)) == Duplicate(0, 9, 5)
    assert log.answer(Produced(10)) is ACCEPT


def test_a_marker_of_a_new_epoch_forgets_the_window() -> None:
    """KIP-890: the marker carries the bumped epoch, so a late write of the old one is a zombie's."""
    log = Given().wrote(Produced(0, 10, is_transactional=True))
    log.ended(epoch=1)
    assert log.answer(Produced(10, is_transactional=True)) == OLD_EPOCH
    assert log.answer(Produced(1, producer_epoch=1)) == OUT_OF_ORDER
    assert log.answer(Produced(0, producer_epoch=1)) is ACCEPT


def test_a_marker_without_a_transaction_completes_nothing() -> None:
    log = Given()
    assert log.ended() is None
    assert log.machine.state_of(PID).coordinator_epoch == 3


def test_an_emptied_control_batch_changes_nothing() -> None:
    log = Given().wrote(Produced(0, is_transactional=True))
    log.machine.apply(Produced(is_control=True, producer_epoch=5), 1, 1, now_ms=NOW)
    assert log.machine.state_of(PID).producer_epoch == 0
    assert log.machine.first_unstable_offset == 0


MARKERS = [
    # known epoch, open, marker's epoch, its coordinator's, version -> answer
    (5, True, 5, 3, 1, None),
    (5, True, 4, 3, 1, OLD_EPOCH),
    (5, True, 5, 3, 2, OLD_EPOCH),  # a late marker of the transaction before
    (5, True, 6, 3, 2, None),
    (5, False, 5, 3, 2, None),  # KAFKA-19999: the retry of a marker that was written
    (5, False, 4, 3, 2, OLD_EPOCH),
    (5, True, 5, 2, 1, ErrorCode.transaction_coordinator_fenced),
    (5, True, 6, 2, 2, ErrorCode.transaction_coordinator_fenced),
    (5, True, 6, 4, 2, None),
]


@pytest.mark.parametrize(("known", "is_open", "epoch", "coordinator", "version", "error"), MARKERS)
def test_a_marker_is_answered_as_kafka_answers(
    known: int, is_open: bool, epoch: int, coordinator: int, version: int, error: ErrorCode | None
) -> None:
    log = Given()
    log.ended(epoch=known, coordinator_epoch=3)
    if is_open:
        log.wrote(Produced(0, producer_epoch=known, is_transactional=True))
    verdict = log.machine.decide_marker(PID, epoch, coordinator, version)
    assert (verdict.error if isinstance(verdict, Refused) else None) == error


def test_an_unknown_producers_marker_is_accepted() -> None:
    assert ProducersMachine().decide_marker(1, 1, 1, 2) is ACCEPT


def test_the_first_unstable_offset_waits_for_the_markers_replication() -> None:
    log = Given().wrote(
        Produced(0, 10, is_transactional=True),
        Produced(0, 10, is_transactional=True, producer_id=8),
    )
    assert log.ended(pid=PID).last_stable_offset == 10  # producer 8 still runs
    assert log.machine.first_unstable_offset == 0  # ended, but who knows whether it stays
    log.machine.on_high_watermark(20)
    assert log.machine.first_unstable_offset == 0  # the marker is at 20
    log.machine.on_high_watermark(21)
    assert log.machine.first_unstable_offset == 10
    log.ended(pid=8)
    log.machine.on_high_watermark(22)
    assert log.machine.first_unstable_offset is None


def begin(log: Given, sequence: int = 0, epoch: int = 0) -> int:
    """A verification is begun; the guard that its answer must show."""
    guard = log.machine.start_verification(
        PID, sequence, epoch, supports_epoch_bump=False, now_ms=NOW
    )
    assert isinstance(guard, int)
    return guard


def test_a_transactions_first_write_needs_the_coordinators_word() -> None:
    log = Given(ProducersMachine(verify_transactions=True))
    write = Produced(0, is_transactional=True)
    assert log.answer(write) == ErrorCode.invalid_txn_state
    guard = begin(log)
    assert log.answer(write) == ErrorCode.invalid_txn_state
    assert log.machine.verifications.confirm(PID, 0, guard)
    assert log.answer(write) is ACCEPT
    assert begin(log) == NO_GUARD  # nor is it asked twice
    log.wrote(write)
    # Once it is under way it needs no more, until it ends.
    assert log.answer(Produced(1, is_transactional=True)) is ACCEPT
    log.ended()
    assert log.answer(Produced(1, is_transactional=True)) == ErrorCode.invalid_txn_state


def test_a_word_from_before_an_abort_is_worth_nothing() -> None:
    """VerificationGuard's ABA: verified, aborted, a new transaction not yet added, the stale write."""
    log = Given(ProducersMachine(verify_transactions=True))
    stale = begin(log)
    log.ended()
    assert not log.machine.verifications.confirm(PID, 0, stale)
    newer = begin(log)
    assert newer != stale
    assert not log.machine.verifications.confirm(PID, 0, stale)
    assert log.answer(Produced(0, is_transactional=True)) == ErrorCode.invalid_txn_state


def test_a_word_about_one_epoch_is_none_about_the_next() -> None:
    log = Given(ProducersMachine(verify_transactions=True))
    assert log.machine.verifications.confirm(PID, 0, begin(log))
    newer = begin(log, epoch=1)
    assert newer != NO_GUARD
    write = Produced(0, producer_epoch=1, is_transactional=True)
    assert log.answer(write) == ErrorCode.invalid_txn_state
    assert not log.machine.verifications.confirm(PID, 0, newer)
    assert log.machine.verifications.confirm(PID, 1, newer)
    assert log.answer(write) is ACCEPT


def test_a_marker_of_an_earlier_transaction_is_told_from_this_ones() -> None:
    """Of old clients, whose transactions all have one epoch: it was sent twice, and comes the second time late."""
    log = Given(ProducersMachine(verify_transactions=True))
    waiting = log.machine.verifications
    assert not waiting.is_of_another(PID, 500)  # nothing is known of this producer
    assert waiting.confirm(PID, 0, begin(log), 1_000)
    for _ in range(2):  # before its first batch is written, and behind it
        assert waiting.is_of_another(PID, 500)
        assert not waiting.is_of_another(PID, 1_000)
        assert not waiting.is_of_another(PID, -1)  # a person's marker names none
        log.wrote(Produced(0, is_transactional=True))
    log.ended()
    assert not waiting.is_of_another(PID, 1_000)


def test_a_word_counts_for_nothing_once_a_marker_has_come_for_its_transaction() -> None:
    waiting = ProducersMachine(verify_transactions=True).verifications
    assert not waiting.is_over(PID, 0, 1_000)
    waiting.note_end(PID, 0, 1_000)
    waiting.note_end(PID, 0, 900)  # of an earlier one, and late
    assert waiting.is_over(PID, 0, 1_000)
    assert not waiting.is_over(PID, 0, 1_001)  # the next one
    assert not waiting.is_over(PID, 1, 5)  # an epoch later, by a clock that was set back
    assert not waiting.is_over(PID + 1, 0, 1_000)
    waiting.note_end(PID, 1, -1)  # a person's marker does not say which transaction it ends
    assert waiting.is_over(PID, 1, 5_000)
    assert not waiting.is_over(PID, 2, 5_000)


def test_ends_that_are_not_remembered_make_every_older_word_void() -> None:
    waiting = ProducersMachine(verify_transactions=True).verifications
    for number in range(ENDED_MAX + 1):
        waiting.note_end(number, 0, 1_000 + number)
    assert waiting.is_over(0, 0, 1_000)
    assert waiting.is_over(ENDED_MAX + 5, 0, 1_000)  # who knows
    assert not waiting.is_over(0, 0, 1_001)
    assert waiting.is_over(1, 0, 1_001)


def test_a_persons_marker_makes_no_words_on_others_void() -> None:
    """It names no beginning, so that it may have ended any transaction of its epoch. Forgotten, it would have been one of
    anybody's: from then on every first write had to be asked about."""
    waiting = ProducersMachine(verify_transactions=True).verifications
    waiting.note_end(PID, 0, -1)
    for number in range(2 * ENDED_MAX):
        waiting.note_end(PID + 1 + number, 0, 1_000 + number)
    assert waiting.is_over(PID, 0, 10**13)  # it is remembered
    assert not waiting.is_over(PID + 1, 0, 10**13)
    for number in range(ENDED_MAX + 1):  # as many as are remembered, and one more
        waiting.note_end(PID - 1 - number, 0, -1)
    assert waiting.is_over(PID + 1, 0, 10**13)  # who knows


def test_verification_refuses_a_zombie_at_once() -> None:
    log = Given().wrote(Produced(0, producer_epoch=3))
    refused = log.machine.start_verification(PID, 0, 2, supports_epoch_bump=True, now_ms=NOW)
    assert isinstance(refused, Refused) and refused.error == OLD_EPOCH


def test_what_waits_for_verification_lets_nothing_overtake_it() -> None:
    log = Given()
    begin(log, 5)
    assert log.answer(Produced(6, is_transactional=True)) == OUT_OF_ORDER
    assert log.answer(Produced(5, is_transactional=True)) is ACCEPT
    begin(log, 3)
    assert log.answer(Produced(5, is_transactional=True)) == OUT_OF_ORDER
    begin(log, 9, epoch=1)
    assert log.answer(Produced(9, producer_epoch=1, is_transactional=True)) is ACCEPT


def test_a_retry_that_comes_when_its_transaction_has_ended_refuses_nothing_that_follows() -> None:
    """Kafka takes its sequence for the lowest that waits, and the producer's next batch is out of order."""
    log = Given(ProducersMachine(verify_transactions=True))
    log.wrote(Produced(0, is_transactional=True), Produced(1, is_transactional=True))
    log.ended()
    begin(log, 0)  # the late retry: the coordinator will say no
    assert log.answer(Produced(0, is_transactional=True)) == Duplicate(0, 0, 5)
    assert log.machine.verifications.confirm(PID, 0, begin(log, 2))
    assert log.answer(Produced(2, is_transactional=True)) is ACCEPT


def test_a_new_style_transaction_starts_at_zero_or_not_at_all() -> None:
    log = Given()
    log.machine.start_verification(PID, 5, 0, supports_epoch_bump=True, now_ms=NOW)
    assert log.answer(Produced(5, is_transactional=True)) == OUT_OF_ORDER


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


def test_verifications_expire_too() -> None:
    log = Given(ProducersMachine(verify_transactions=True))
    guard = begin(log)
    log.machine.expire(NOW + DAY)
    assert not log.machine.verifications.confirm(PID, 0, guard)


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


@dataclass
class Entry:
    """One batch of the twin's log."""

    batch: Produced
    first: int
    last: int
    marker: Marker | None = None


class SlowTwin:
    """Keeps the whole log and works every answer out from its beginning."""

    def __init__(self) -> None:
        self.log: list[Entry] = []

    @property
    def end(self) -> int:
        return self.log[-1].last + 1 if self.log else 0

    def batches_of(self, pid: int) -> tuple[int, list[Entry], int]:
        """Epoch, the batches of that epoch, the first offset of the open transaction (-1)."""
        epoch, batches, txn = -1, [], -1
        for entry in self.log:
            if entry.batch.producer_id != pid:
                continue
            if entry.batch.producer_epoch != epoch:
                epoch, batches = entry.batch.producer_epoch, []
            if entry.batch.is_control:
                txn = -1
            else:
                batches.append(entry)
                if entry.batch.is_transactional and txn < 0:
                    txn = entry.first
        return epoch, batches, txn

    def answer(self, batch: Produced) -> object:
        epoch, batches, txn = self.batches_of(batch.producer_id)
        sequences = self.sequences(batch)
        if batch.producer_epoch == epoch:
            for entry in batches[-5:]:
                if self.sequences(entry.batch) == sequences:
                    return Duplicate(entry.first, entry.last, entry.batch.max_timestamp)
        if batch.producer_epoch < epoch:
            return OLD_EPOCH
        if epoch >= 0:
            last = self.sequences(batches[-1].batch)[-1] if batches else -1
            expected = 0 if last == SEQUENCE_MAX or batch.producer_epoch > epoch else last + 1
            if batch.base_sequence != expected:
                return OUT_OF_ORDER
        if txn >= 0 and not batch.is_transactional:
            return ErrorCode.invalid_txn_state
        return ACCEPT

    @staticmethod
    def sequences(batch: Produced) -> list[int]:
        return [(batch.base_sequence + i) % (SEQUENCE_MAX + 1) for i in range(batch.count)]

    def unstable(self, high_watermark: int) -> int | None:
        """The first offset of a transaction whose marker is not below the high watermark."""
        begun: dict[int, int] = {}
        unstable = []
        for entry in self.log:
            pid = entry.batch.producer_id
            if entry.batch.is_control:
                first = begun.pop(pid, None)
                if first is not None and entry.first >= high_watermark:
                    unstable.append(first)
            elif entry.batch.is_transactional:
                begun.setdefault(pid, entry.first)
        return min([*unstable, *begun.values()], default=None)


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


class Pair:
    """The machine and its twin, driven by the same operations."""

    def __init__(self) -> None:
        self.twin = SlowTwin()
        self.machine = ProducersMachine()
        self.snapshots: list[bytes] = []
        self.high_watermark = 0

    def run(self, op: tuple) -> None:
        kind, write, number, flag = op
        match kind:
            case "write":
                self.write(*write)
            case "mark":
                self.mark(1 + number % 3, number % 2, flag)
            case "replicate":
                self.replicate(number)
            case "truncate":
                self.truncate(number)
            case "snapshot":
                self.snapshots.append(self.machine.snapshot())
            case "restart":
                self.restart()
        self.compare()

    def write(self, pid: int, step: int, how: str, count: int, transactional: bool) -> None:
        epoch, batches, txn = self.twin.batches_of(pid)
        last = self.twin.sequences(batches[-1].batch)[-1] if batches else -1
        sequence = {
            "next": 0 if step > 0 else (last + 1) % (SEQUENCE_MAX + 1), "zero": 0, "retry": 0,
            "gap": last + 3 if batches else SEQUENCE_MAX - 3,
        }[how]  # fmt: skip
        if how == "retry" and batches:
            old = batches[-1 - (count - 1) * 2 % len(batches)].batch
            sequence, count = old.base_sequence, old.count
        transactional = transactional or txn >= 0
        batch = Produced(
            sequence % (SEQUENCE_MAX + 1), count, max(0, epoch + step), pid, transactional,
            max_timestamp=self.twin.end,
        )  # fmt: skip
        verdict = self.machine.decide(batch, origin_client=True)
        answer = verdict.error if isinstance(verdict, Refused) else verdict
        assert answer == self.twin.answer(batch)
        if answer is ACCEPT:
            self.put(Entry(batch, self.twin.end, self.twin.end + count - 1))

    def mark(self, pid: int, step: int, commit: bool) -> None:
        epoch = max(0, self.twin.batches_of(pid)[0] + step)
        batch = Produced(-1, 1, epoch, pid, True, True)
        end = self.twin.end
        self.put(Entry(batch, end, end, Marker(1, commit, end)))

    def put(self, entry: Entry) -> None:
        self.twin.log.append(entry)
        self.machine.apply(entry.batch, entry.first, entry.last, now_ms=NOW, marker=entry.marker)

    def replicate(self, count: int) -> None:
        ends = [entry.last + 1 for entry in self.twin.log if entry.last >= self.high_watermark]
        if ends:
            self.high_watermark = ends[min(count, len(ends) - 1)]
            self.machine.on_high_watermark(self.high_watermark)

    def truncate(self, entries: int) -> None:
        """As a follower does, never below the high watermark."""
        while entries and self.twin.log and self.twin.log[-1].first >= self.high_watermark:
            self.twin.log.pop()
            entries -= 1
        self.restart()

    def restart(self) -> None:
        """The newest snapshot that is not past the log's end, then the rest of the log."""
        self.machine = ProducersMachine()
        self.snapshots = [s for s in self.snapshots if read_snapshot(s).end_offset <= self.twin.end]
        start = self.machine.restore(self.snapshots[-1], now_ms=NOW) if self.snapshots else 0
        for entry in self.twin.log:
            if entry.first >= start:
                self.machine.apply(
                    entry.batch, entry.first, entry.last, now_ms=NOW, marker=entry.marker
                )
        self.machine.on_high_watermark(self.high_watermark)

    def compare(self) -> None:
        assert self.machine.end_offset == self.twin.end
        assert self.machine.first_unstable_offset == self.twin.unstable(self.high_watermark)
        for pid in range(1, 4):
            epoch, batches, txn = self.twin.batches_of(pid)
            state = self.machine.state_of(pid)
            if state is None:
                assert (epoch, batches) == (-1, [])
                continue
            assert (state.producer_epoch, state.txn_first_offset) == (epoch, txn)
            window = tuple(
                Batch(s[0], s[-1], e.first, e.last, e.batch.max_timestamp)
                for e in batches[-5:]
                if (s := self.twin.sequences(e.batch))
            )
            assert state.batches == window


# Shorter lists are mostly too short to fill a window; "rest" lets a failing one shrink.
@given(st.lists(ops, min_size=40, max_size=80))
@settings(max_examples=100)
@pytest.mark.slow
def test_the_machine_and_its_slow_twin_agree(operations: list[tuple]) -> None:
    pair = Pair()
    for op in operations:
        pair.run(op)
