"""Markers as the producers machine takes them: what they end, whom they fence, which it refuses."""

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.replication.log.producer_verdicts import ACCEPT, CompletedTxn, Duplicate, Refused
from fencepost.replication.log.producers_machine import ProducersMachine
from producer_helpers import NOW, OLD_EPOCH, OUT_OF_ORDER, PID, Given, Produced


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
