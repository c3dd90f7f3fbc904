"""A transaction's first write needs the coordinator's word (KIP-890): which words count, and for how long."""

from fencepost.cluster.base.errors import ErrorCode
from fencepost.replication.log.producer_verdicts import ACCEPT, Duplicate, Refused
from fencepost.replication.log.producers_machine import ProducersMachine
from fencepost.replication.log.verifications_machine import ENDED_MAX, NO_GUARD
from producer_helpers import DAY, NOW, OLD_EPOCH, OUT_OF_ORDER, PID, Given, Produced, begin


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


def test_a_word_from_before_the_log_was_cut_is_worth_nothing_for_who_asks_behind_it() -> None:
    """A lead was lost and won while the coordinator was asked: the transaction was ended by the leader in between."""
    log = Given(ProducersMachine(verify_transactions=True))
    stale = begin(log)
    log.machine.reset(log.end)  # a follower's log is cut, and its producers are read anew
    log.ended()
    newer = begin(log)
    assert newer != stale
    assert not log.machine.verifications.confirm(PID, 0, stale)
    assert log.answer(Produced(0, is_transactional=True)) == ErrorCode.invalid_txn_state
    assert log.machine.verifications.confirm(PID, 0, newer)


def test_what_has_ended_has_ended_when_the_log_was_cut_too() -> None:
    """A leader takes back batches of which a full disk took only some, and words that were sent before are still on their way."""
    machine = ProducersMachine(verify_transactions=True)
    machine.verifications.note_end(PID, 0, 1_000)
    machine.reset(0)
    assert machine.verifications.is_over(PID, 0, 1_000)
    assert not machine.verifications.is_over(PID, 0, 1_001)


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
        assert not waiting.is_of_another(PID, 1_001)  # nobody else would end what is open
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


def test_verifications_expire_too() -> None:
    log = Given(ProducersMachine(verify_transactions=True))
    guard = begin(log)
    log.machine.expire(NOW + DAY)
    assert not log.machine.verifications.confirm(PID, 0, guard)
