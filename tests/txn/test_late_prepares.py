"""A prepare that was held up on its way: whatever comes before it, it prepares its own half message or none.

Up to EndTxn 4 all transactions of a producer have one id and epoch, so that its half messages are told apart by their
numbers, which go up.
"""

from collections.abc import Callable

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.transactions.check_back_commands import Verdict
from fencepost.txn.transactions.check_back_records import HalfState
from fencepost.txn.transactions.commands import InitProducerId
from fencepost.txn.transactions.group_commit_commands import Identity, Refusal
from fencepost.txn.transactions.transaction import CLIENT_EPOCH_MAX
from support.added_scene import AddedScene

E = ErrorCode
ID = "pay::p1"
Ends = Callable[[AddedScene, Identity], None]


def by_its_producer(scene: AddedScene, identity: Identity) -> None:
    assert scene.ends(ID, identity, commit=True) == identity


def by_a_checker(scene: AddedScene, _: Identity) -> None:
    scene.answers_check(ID, Verdict.ROLLBACK, scene.half(ID).half_id)


def sent(scene: AddedScene, identity: Identity, number: int, ends: Ends = by_its_producer) -> None:
    """A half message from its first record to its end; `number` 0 of a client that counts none."""
    assert scene.writes(ID, identity) is E.none
    half_id = f"h{number}" if number else "uncounted"
    assert scene.prepares(ID, identity, half_id, number).is_new
    ends(scene, identity)
    scene.finish()


def two_and_a_half() -> tuple[AddedScene, Identity]:
    """h1 and h2 are over, h3 is written and not prepared."""
    scene = AddedScene()
    identity = scene.starts(ID)
    sent(scene, identity, 1)
    sent(scene, identity, 2, by_a_checker)
    assert scene.writes(ID, identity) is E.none
    return scene, identity


def is_refused(scene: AddedScene, identity: Identity, half_id: str, number: int) -> None:
    batches = len(scene.log)
    late = scene.prepares(ID, identity, half_id, number)
    assert isinstance(late, Refusal)
    assert late.code is E.invalid_txn_state
    assert f"{half_id} of {ID} is over: it is half message number {number}" in late.message
    assert (scene.phase(ID), len(scene.log)) == ("Ongoing", batches), "it is nobody's"


@pytest.mark.parametrize("moves", [False, True])
def test_a_prepare_that_comes_late_does_not_prepare_a_later_half_message_under_its_name(
    *, moves: bool
) -> None:
    """1. The prepare of h1 is held up at a door; another one prepares it. 2. h2 is sent. 3. h3 is written. 4. The door goes
    on: h3 was prepared as h1, and the check, told that h1's local transaction was committed, committed it."""
    scene, identity = two_and_a_half()
    if moves:
        scene = scene.moved()
    is_refused(scene, identity, "h1", 1)
    is_refused(scene, identity, "another of that number", 2)
    half = scene.prepares(ID, identity, "h3", 3).half
    assert (half.half_id, half.state, half.half_number) == ("h3", HalfState.WAITING, 3)


def test_a_prepare_that_comes_again_is_told_how_its_half_message_stands() -> None:
    scene, identity = two_and_a_half()
    late = scene.prepares(ID, identity, "h2", 2)
    assert (late.is_new, late.half.state) == (False, HalfState.ROLLED_BACK)
    for is_new in (True, False):
        assert scene.prepares(ID, identity, "h3", 3).is_new is is_new


def test_a_number_may_be_left_out_as_by_half_messages_that_were_never_prepared() -> None:
    scene, identity = two_and_a_half()
    assert scene.prepares(ID, identity, "h7", 7).is_new


def test_a_client_that_counts_no_half_messages_is_served_as_before() -> None:
    """Of an older build, or by the doors of older nodes while they are upgraded one by one."""
    scene = AddedScene()
    identity = scene.starts(ID)
    sent(scene, identity, 0)
    sent(scene, identity, 1)
    sent(scene, identity, 0)
    assert scene.writes(ID, identity) is E.none
    is_refused(scene, identity, "held up", 1)  # what is known of its numbers stays
    assert scene.prepares(ID, identity, "h2", 2).is_new


def test_a_producer_that_begins_anew_counts_from_the_beginning_and_late_ones_are_fenced() -> None:
    scene, before = two_and_a_half()
    after = scene.starts(ID)
    assert after.producer_id == before.producer_id
    assert scene.writes(ID, after) is E.none
    assert scene.prepares(ID, before, "h3", 3).code is E.producer_fenced
    assert scene.phase(ID) == "Ongoing"
    assert scene.prepares(ID, after, "first", 1).is_new


def test_a_producer_whose_epochs_are_used_up_counts_from_the_beginning_under_its_new_id() -> None:
    scene = AddedScene()
    before = scene.starts(ID)
    while before.producer_epoch < CLIENT_EPOCH_MAX:
        before = scene.starts(ID)
    sent(scene, before, 5)
    after = scene.starts(ID)
    assert after.producer_id != before.producer_id
    assert scene.writes(ID, after) is E.none
    assert scene.prepares(ID, before, "h4", 4).code is E.invalid_producer_id_mapping
    assert scene.prepares(ID, after, "first", 1).is_new


def test_who_has_taken_a_half_message_over_counts_from_the_beginning() -> None:
    """KIP-939: the record has its epoch then, and the number of the one before it."""
    scene, identity = two_and_a_half()
    assert scene.prepares(ID, identity, "h3", 3).is_new
    command = InitProducerId(
        transactional_id=ID, timeout_ms=60_000, keep_prepared=True, fresh_producer_id=9, ticket=99
    )
    kept = Identity(*scene.do(command)[:2])
    by_a_checker(scene, kept)
    scene.finish()
    assert scene.writes(ID, kept) is E.none
    assert scene.prepares(ID, identity, "h2", 2).code is E.producer_fenced
    assert scene.prepares(ID, kept, "first", 1).is_new
