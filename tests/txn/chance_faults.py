"""Faults to be planted in the machines, for `chance_run.py` to see that something no longer holds."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from fencepost.replication.log import producers_machine
from fencepost.replication.log.producers_machine import ProducersMachine
from fencepost.replication.log.verifications_machine import Verifications
from fencepost.txn.runtime.decision import NOTHING
from fencepost.txn.transactions import policy
from fencepost.txn.transactions.commands import EndTransaction
from fencepost.txn.transactions.transaction import Transaction
from fencepost.txn.transactions.transactions_machine import TransactionsMachine

Plant = Callable[[pytest.MonkeyPatch], None]


def an_epoch_kept_by_an_older_client_is_given_on(patch: pytest.MonkeyPatch) -> None:
    """As it was: who was taken over was told that it had ended the other's transaction, and had its epoch."""
    asked = policy._is_again

    def is_next_epoch(transaction: Transaction, command: EndTransaction) -> bool:
        taken_for_its_own = replace(transaction, last_producer_epoch=command.producer_epoch)
        return asked(taken_for_its_own, command)

    patch.setattr(policy, "_is_again", is_next_epoch)


def every_end_is_taken_for_one_sent_again(patch: pytest.MonkeyPatch) -> None:
    def is_again(transaction: Transaction, _command: EndTransaction) -> bool:
        return transaction.phase in policy.ON_END_TXN_5_AGAIN

    patch.setattr(policy, "_is_again", is_again)


def retries_are_written_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(producers_machine, "find_duplicate", lambda *_: None)
    patch.setattr(producers_machine, "check_sequence", lambda *_: None)


def late_markers_are_written(patch: pytest.MonkeyPatch) -> None:
    """Old clients have one epoch for all of their transactions: a marker of one ends the next."""
    patch.setattr(Verifications, "is_of_another", lambda *_: False)


def late_words_count(patch: pytest.MonkeyPatch) -> None:
    """That a transaction has begun is heard when it has ended."""
    patch.setattr(Verifications, "is_over", lambda *_: False)


def nobody_sends_the_markers_after_a_move(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionsMachine, "loaded", lambda *_: NOTHING)


def leaders_ask_nobody(patch: pytest.MonkeyPatch) -> None:
    """A late write of a transaction that has ended is taken for the next one's first."""

    def start(*_: Any, **__: Any) -> int:
        return 0

    patch.setattr(ProducersMachine, "start_verification", start)
    patch.setattr(ProducersMachine, "_is_confirmed", lambda *_: True)


# Each with the first seed that finds it; how many of 600 do stands behind.
FAULTS: Final[dict[Plant, int]] = {
    an_epoch_kept_by_an_older_client_is_given_on: 287,  # 1
    every_end_is_taken_for_one_sent_again: 164,  # 3
    retries_are_written_again: 0,  # 298
    late_markers_are_written: 276,  # 2
    late_words_count: 5_948,  # 0; 3 of 31,000
    nobody_sends_the_markers_after_a_move: 7,  # 248
    leaders_ask_nobody: 0,  # 433
}
