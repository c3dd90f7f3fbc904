"""Two-phase commit (KIP-939): a prepared transaction is kept for whoever owns it next."""

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.transactions.commands import Ended
from fencepost.txn.transactions.transaction import CLIENT_EPOCH_MAX, EPOCH_MAX, NO_TIMEOUT
from transaction_scene import ID, P0, P1, Scene, begun

E = ErrorCode


def test_a_transaction_without_timeout_waits_for_its_owner() -> None:
    scene = Scene()
    who = scene.init(timeout_ms=NO_TIMEOUT)
    scene.add(who, P0)
    scene.pass_time(10**10)
    assert scene.phase == "Ongoing"
    assert scene.end(who) == Ended(101, 0)


def test_a_prepared_transaction_is_kept_for_the_next_incarnation_which_ends_it() -> None:
    """The walk-through of KIP-939: 42/100 is kept, 101 and 102 ask for it, 102 commits it."""
    scene = Scene()
    who = scene.init(timeout_ms=NO_TIMEOUT)
    scene.add(who, P0, version=2)
    kept = scene.init(timeout_ms=NO_TIMEOUT, keep_prepared=True)
    assert kept == (101, 1, 101, 0)
    again = scene.init(timeout_ms=NO_TIMEOUT, keep_prepared=True)
    assert again == (101, 2, 101, 0)
    assert scene.phase == "Prepared"
    assert scene.end(kept, bumps=True) is E.producer_fenced
    assert scene.end(again, bumps=True) == Ended(101, 3)
    (markers,) = scene.sent
    assert (markers.producer_epoch, markers.commit) == (3, True)
    scene.written()
    assert scene.now().identity == (101, 3)


def test_nothing_is_added_to_a_prepared_transaction() -> None:
    scene, who = begun()
    scene.add(who, P0)
    kept = scene.init(keep_prepared=True)
    assert scene.add(kept, P1) is E.invalid_txn_state


@pytest.mark.parametrize("had_epoch", [0, CLIENT_EPOCH_MAX])
def test_nothing_is_written_into_a_prepared_transaction(had_epoch: int) -> None:
    """1. it is kept, under another producer id where the epochs are used up   2. its next owner writes to one of its
    partitions, under that id   3. it is ended: its markers name the first one, and the write would hang for ever."""
    scene, who = begun()
    scene.skip_to_epoch(had_epoch)
    scene.add((who[0], had_epoch), P0)
    kept = scene.init(keep_prepared=True)
    assert scene.verify(kept, P0) == {P0: E.invalid_txn_state}


def test_a_producer_that_does_not_keep_a_prepared_transaction_aborts_it() -> None:
    scene, who = begun()
    scene.add(who, P0)
    scene.init(keep_prepared=True)
    ticket = scene.init()
    assert scene.phase == "PrepareAbort"
    (markers,) = scene.sent
    assert markers.producer_epoch == 2
    scene.written()
    assert scene.answers[ticket][:2] == (101, 3)


def test_with_nothing_open_there_is_nothing_to_keep() -> None:
    scene = Scene()
    assert scene.init(keep_prepared=True) == (101, 0, -1, -1)


def test_a_kept_transaction_whose_epochs_run_over_goes_on_under_another_id() -> None:
    scene, who = begun()
    scene.add(who, P0, version=2)
    kept = scene.init(keep_prepared=True)
    while kept.producer_epoch < EPOCH_MAX - 1:
        # As many incarnations as there are epochs, without the time that takes.
        state = scene.now()
        later = state.prepared(scene.now_ms, state.identity._replace(producer_epoch=EPOCH_MAX - 1))
        scene.machine.transactions[ID] = later
        kept = kept._replace(producer_epoch=EPOCH_MAX - 1)
    kept = scene.init(keep_prepared=True)
    assert kept == (102, 0, 101, 0)
    assert scene.end(kept, bumps=True) == Ended(102, 1)
    (markers,) = scene.sent
    assert (markers.producer_id, markers.producer_epoch) == (101, EPOCH_MAX)
    scene.written()
    assert scene.now().identity == (102, 1)
