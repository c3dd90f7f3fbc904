"""EndTxn, row by row of its tables, and ends that come twice, too early or from a stranger."""

from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.transactions.commands import Ended, MarkersWritten
from fencepost.txn.transactions.policy import ON_END_TXN, ON_END_TXN_5, ON_END_TXN_5_AGAIN
from fencepost.txn.transactions.transaction import COMPLETE, DECIDED, Phase
from transaction_scene import ID, P0, Scene, begun

E = ErrorCode
P = Phase


def test_the_tables_of_end_txn_are_total() -> None:
    assert set(ON_END_TXN) == set(ON_END_TXN_5) == set(Phase) - {P.DEAD}
    assert set(ON_END_TXN_5_AGAIN) == DECIDED | COMPLETE


def in_phase(phase: Phase, *, bumps: bool) -> tuple[Scene, Any]:
    """A scene whose transaction is in this phase, with the identity that its producer has now."""
    scene, who = begun()
    version = 2 if bumps else 0
    if phase is P.EMPTY:
        return scene, who
    scene.add(who, P0, version=version)
    if phase is P.PREPARED:
        scene.take(scene.machine.prepare(ID, scene.now_ms))
    if phase in DECIDED | COMPLETE:
        commit = phase in (P.PREPARE_COMMIT, P.COMPLETE_COMMIT)
        who = scene.end(who, commit=commit, bumps=bumps)
    if phase in COMPLETE:
        scene.written()
    assert scene.now().phase is phase
    return scene, who


@pytest.mark.parametrize("phase", sorted(set(ON_END_TXN) - {P.PREPARE_EPOCH_FENCE}))
@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("bumps", [False, True])
def test_an_end_of_the_present_epoch_is_answered_by_the_table(
    phase: Phase, commit: bool, bumps: bool
) -> None:
    scene, who = in_phase(phase, bumps=bumps)
    verdict = (ON_END_TXN_5 if bumps else ON_END_TXN)[phase][commit]
    reply = scene.end(who, commit=commit, bumps=bumps)
    if isinstance(verdict, Phase):
        assert reply == Ended(who[0], who[1] + bumps)
        is_open = phase in (P.ONGOING, P.PREPARED)
        assert scene.now().phase is (verdict if is_open else P.COMPLETE_ABORT)
    elif verdict is E.none:
        assert reply == Ended(*who[:2])
        assert scene.now().phase is phase
    elif isinstance(verdict, ErrorCode):
        assert reply is verdict
        assert scene.now().phase is phase
    else:
        assert scene.machine.waiting[ID][0].ticket == reply


@pytest.mark.parametrize("phase", sorted(ON_END_TXN_5_AGAIN))
@pytest.mark.parametrize("commit", [False, True])
def test_an_end_that_is_sent_again_is_told_from_the_next_one_by_its_epoch(
    phase: Phase, commit: bool
) -> None:
    scene, who = in_phase(phase, bumps=True)
    verdict = ON_END_TXN_5_AGAIN[phase][commit]
    reply = scene.end((who[0], who[1] - 1), commit=commit, bumps=True)
    assert reply == (Ended(*who) if verdict is E.none else verdict)
    assert scene.now().phase is phase


@pytest.mark.parametrize("bumps", [False, True])
@pytest.mark.parametrize("phase", sorted(set(ON_END_TXN) - {P.PREPARE_EPOCH_FENCE}))
def test_nobody_but_its_producer_ends_a_transaction(phase: Phase, bumps: bool) -> None:
    scene, who = in_phase(phase, bumps=bumps)
    assert scene.end((who[0] + 1, who[1]), bumps=bumps) is E.invalid_producer_id_mapping
    assert scene.end((who[0], who[1] + 1), bumps=bumps) is E.producer_fenced
    assert scene.end((who[0], who[1] - 2), bumps=bumps) is E.producer_fenced


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("successor_commits", [False, True])
def test_whose_place_an_older_client_has_taken_is_not_given_that_ones_epoch(
    commit: bool, successor_commits: bool
) -> None:
    """Up to EndTxn 4 the epoch stays, and is one more than that of the idle producer who was taken over.

    Who was given it wrote sequence 0 once more, which passed for the other one's: acknowledged, and nowhere.
    """
    scene, who = begun()
    scene.add(who, P0, version=2)
    who = scene.end(who, bumps=True)
    scene.written()
    successor = scene.init()
    assert tuple(successor[:2]) == (who[0], who[1] + 1)
    scene.add(successor, P0)
    for _ in range(2):  # while the markers are written, and then
        assert scene.end(successor, commit=successor_commits) == Ended(*successor[:2])
        assert scene.end(who, commit=commit, bumps=True) is E.producer_fenced
        scene.written()


@pytest.mark.parametrize("commit", [False, True])
def test_an_end_that_overtakes_its_batches_is_sent_back_until_they_have_come(commit: bool) -> None:
    """Java's producer looks for batches to send and then, not in one step, for its EndTxn (4.3, Sender).

    1. it finds no batch   2. its user begins a transaction, sends and commits   3. it finds the EndTxn and sends it
    first. One that waited for the markers of the transaction before would find nothing open: its client ends on
    INVALID_TXN_STATE; an abort is over, and the batches become part of the next transaction.
    """
    scene, who = begun()
    scene.add(who, P0, version=2)
    who = scene.end(who, commit=False, bumps=True)
    assert scene.end(who, commit=commit, bumps=True) is E.concurrent_transactions
    scene.written()
    assert ID not in scene.machine.waiting
    assert scene.phase == "CompleteAbort"
    assert scene.add(who, P0, version=2) is E.none
    assert scene.end(who, commit=commit, bumps=True) == Ended(101, 2)
    assert scene.phase == ("PrepareCommit" if commit else "PrepareAbort")


def test_nobody_knows_a_transactional_id_that_was_never_begun() -> None:
    scene = Scene()
    assert scene.add((1, 0), P0) is E.invalid_producer_id_mapping
    assert scene.end((1, 0)) is E.invalid_producer_id_mapping
    assert scene.verify((1, 0), P0) == {P0: E.invalid_producer_id_mapping}


def test_markers_that_are_told_twice_do_not_end_the_next_transaction_of_an_old_client() -> None:
    """All of its transactions have one epoch.

    1. markers are written, and the record of it is, too, but the coordinator waits for it in vain and tries again
    2. that record is committed after all, and the next transaction begins and ends   3. the second try comes
    """
    scene, who = begun()
    scene.add(who, P0)
    scene.end(who)
    (first,) = scene.sent
    scene.written()
    scene.add(who, P0)
    scene.end(who)
    scene.take(scene.machine.decide(MarkersWritten(done=(first.done,)), scene.now_ms))
    assert scene.phase == "PrepareCommit"
    scene.written()
    assert scene.phase == "CompleteCommit"
