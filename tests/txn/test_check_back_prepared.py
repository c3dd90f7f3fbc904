"""Check-back: who prepares a half message, and what may not happen to it while it is prepared."""

from dataclasses import replace

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.runtime.decision import NOTHING
from fencepost.txn.transactions.check_back_commands import Verdict
from fencepost.txn.transactions.check_back_records import HalfState
from fencepost.txn.transactions.commands import InitProducerId
from fencepost.txn.transactions.group_commit_commands import Identity, Refusal
from fencepost.txn.transactions.transaction import Phase
from half_messages import ID, half_sent, parked_one
from support.added_scene import AddedScene

E = ErrorCode


def test_no_timeout_ends_a_prepared_transaction() -> None:
    scene, _ = half_sent()
    scene.pass_ms(7 * 86_400_000)
    assert scene.phase(ID) == "Prepared"
    assert scene.moved().phase(ID) == "Prepared"


def test_nothing_is_added_to_a_prepared_transaction() -> None:
    scene, identity = half_sent()
    assert scene.writes(ID, identity) is E.invalid_txn_state


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("by_a_checker", [False, True])
def test_a_half_message_in_no_partition_is_decided_like_any_other(
    commit: bool, by_a_checker: bool
) -> None:
    """It ends in one turn, as no marker is to be written: every attempt ended its coordinator, one after the other."""
    scene = AddedScene()
    identity = scene.starts(ID)
    assert scene.writes(ID, identity, partitions=()) is E.none
    assert scene.prepares(ID, identity).is_new
    if by_a_checker:
        scene.answers_check(ID, Verdict.COMMIT if commit else Verdict.ROLLBACK)
    else:
        scene.ends(ID, identity, commit=commit)
    assert scene.phase(ID) == ("CompleteCommit" if commit else "CompleteAbort")
    state = HalfState.COMMITTED if commit else HalfState.ROLLED_BACK
    assert scene.half(ID).state is scene.moved().half(ID).state is state


def test_a_new_incarnation_waits_until_the_half_message_is_decided() -> None:
    """Kafka would abort what its predecessor left open: that would be a guess."""
    scene, _ = half_sent()
    assert scene.starts(ID) is E.concurrent_transactions
    assert scene.moved().starts(ID) is E.concurrent_transactions
    scene.answers_check(ID, Verdict.COMMIT)
    scene.finish()
    assert isinstance(scene.starts(ID), Identity)


@pytest.mark.parametrize("parked", [False, True])
def test_a_new_incarnation_that_keeps_the_transaction_is_the_one_that_may_end_it(parked) -> None:
    """KIP-939; what is known of its checks stays, under the new identity."""
    scene = parked_one() if parked else half_sent()[0]
    before = scene.half(ID)
    command = InitProducerId(
        transactional_id=ID, timeout_ms=60_000, keep_prepared=True, fresh_producer_id=9, ticket=99
    )
    kept = scene.do(command)
    half = scene.half(ID)
    assert half.producer_epoch == kept.producer_epoch == before.producer_epoch + 1
    assert (half.state, half.checks) == (before.state, before.checks)
    for each in (scene, scene.moved()):
        assert each.answers_check(ID, Verdict.COMMIT).half.state is HalfState.COMMITTED


PREPARES = [
    ("nobody::x", (0, 0), E.invalid_producer_id_mapping),
    (ID, (50, 0), E.invalid_producer_id_mapping),
    (ID, (0, 1), E.producer_fenced),
]


@pytest.mark.parametrize(("name", "off", "code"), PREPARES)
def test_who_is_not_its_producer_cannot_prepare_a_transaction(name, off, code) -> None:
    scene = AddedScene()
    identity = scene.opened(ID)
    refusal = scene.prepares(name, Identity(identity[0] + off[0], identity[1] + off[1]))
    assert isinstance(refusal, Refusal)
    assert refusal.code is code
    assert scene.phase(ID) == "Ongoing"


def test_what_is_not_open_cannot_be_prepared() -> None:
    scene = AddedScene()
    identity = scene.starts(ID)
    assert scene.prepares(ID, identity).code is E.invalid_txn_state


def test_a_cluster_whose_log_cannot_say_prepared_does_not_prepare() -> None:
    """Records of transaction.version 0 have no place for it: the next coordinator would take it for open and abort."""
    scene = AddedScene()
    identity = scene.opened(ID)
    scene.machine.transaction_version = lambda: 0
    assert scene.prepares(ID, identity).code is E.unsupported_version
    assert scene.phase(ID) == "Ongoing"


def test_a_half_message_whose_log_went_back_to_an_old_version_is_still_decided_once() -> None:
    """The feature was lowered while it was open: the next coordinator finds its transaction as an ordinary one."""
    scene, _ = half_sent()
    known = scene.machine.transactions[ID]
    scene.machine.transactions[ID] = replace(known, phase=Phase.ONGOING)
    assert scene.machine.tick(("timeout", ID), scene.now_ms) == NOTHING, "no timeout ends it"
    assert scene.answers_check(ID, Verdict.ROLLBACK).half.state is HalfState.ROLLED_BACK
    assert scene.phase(ID) == "PrepareAbort"


def test_preparing_again_is_the_same_once_more_and_under_another_name_refused() -> None:
    scene, identity = half_sent()
    again = scene.prepares(ID, identity)
    assert (again.is_new, again.half) == (False, scene.half(ID))
    assert scene.prepares(ID, identity, "h2").code is E.invalid_txn_state


def test_a_delayed_prepare_of_one_half_message_does_not_prepare_the_next() -> None:
    """Up to EndTxn 4 both transactions have the same producer id and epoch."""
    scene, identity = half_sent()
    scene.ends(ID, identity, commit=True)
    scene.finish()
    scene.writes(ID, identity)
    late = scene.prepares(ID, identity)
    assert (late.is_new, late.half.state) == (False, HalfState.COMMITTED)
    assert scene.phase(ID) == "Ongoing"
