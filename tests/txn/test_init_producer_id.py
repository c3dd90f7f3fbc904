"""InitProducerId: every way in which a producer begins to work, or begins again."""

from dataclasses import replace
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.transactions.commands import Ended
from fencepost.txn.transactions.transaction import CLIENT_EPOCH_MAX, EPOCH_MAX
from transaction_scene import P0, P1, Scene

E = ErrorCode


def at_epoch(epoch: int, **more: Any) -> tuple[Scene, Any]:
    scene = Scene(**more)
    scene.init()
    scene.skip_to_epoch(epoch)
    return scene, scene.now().identity


def named(who: Any) -> dict[str, int]:
    return {"producer_id": who[0], "producer_epoch": who[1]}


def test_the_first_producer_gets_an_id_that_nobody_has() -> None:
    assert Scene().init()[:2] == (101, 0)


def test_the_next_producer_gets_the_next_epoch() -> None:
    scene = Scene()
    scene.init()
    assert scene.init()[:2] == (101, 1)
    assert scene.init(timeout_ms=5)[:2] == (101, 2)
    assert scene.now().timeout_ms == 5


def test_a_producer_of_before_is_fenced() -> None:
    scene = Scene()
    old = scene.init()
    new = scene.init()
    assert scene.add(old, P0) is E.producer_fenced
    assert scene.end(old, commit=False) is E.producer_fenced
    assert scene.init(**named(old)) is E.producer_fenced
    assert scene.add(new, P0) is E.none


def test_a_new_producer_ends_what_the_last_one_left_open_and_begins_at_once() -> None:
    scene = Scene()
    old = scene.init()
    scene.add(old, P0)
    ticket = scene.init()
    (markers,) = scene.sent
    assert (markers.commit, markers.producer_epoch, markers.partitions) == (False, 1, (P0,))
    assert scene.add(old, P1) is E.producer_fenced
    scene.written()
    assert scene.answers[ticket][:2] == (101, 2)
    assert scene.phase == "Empty"


def test_a_new_producer_waits_for_a_commit_that_was_decided() -> None:
    scene = Scene()
    old = scene.init()
    scene.add(old, P0)
    scene.end(old)
    ticket = scene.init()
    assert scene.sent[0].commit
    scene.written()
    assert scene.answers[ticket][:2] == (101, 1)


def test_two_that_come_at_once_get_one_epoch_each() -> None:
    scene = Scene()
    old = scene.init()
    scene.add(old, P0)
    first, second = scene.init(), scene.init()
    scene.written()
    assert scene.answers[first][:2] == (101, 2)
    assert scene.answers[second][:2] == (101, 3)


def test_an_open_transaction_without_partitions_needs_no_wait() -> None:
    scene = Scene()
    who = scene.init()
    scene.add(who, P0)
    state = replace(scene.now(), partitions=())
    scene.machine.transactions[state.transactional_id] = state
    assert scene.init()[:2] == (101, 2)


# -- KIP-360: a producer goes on after an error ------------------------------------------------------


def test_a_producer_that_names_what_it_has_gets_the_next_epoch() -> None:
    scene = Scene()
    who = scene.init()
    assert scene.init(**named(who))[:2] == (101, 1)


def test_asking_again_after_a_lost_answer_gives_the_same_epoch() -> None:
    scene = Scene()
    who = scene.init()
    told = scene.init(**named(who))
    records = len(scene.log)
    assert scene.init(**named(who)) == told
    assert len(scene.log) == records
    # Once it has worked with the new epoch it can't have missed the answer.
    scene.add(told, P0)
    assert scene.init(**named(who)) is E.producer_fenced


def test_a_retry_is_fenced_when_another_producer_has_come_since() -> None:
    scene = Scene()
    who = scene.init()
    scene.init(**named(who))
    scene.init()
    assert scene.init(**named(who)) is E.producer_fenced


def test_whoever_names_another_id_is_fenced() -> None:
    scene = Scene()
    who = scene.init()
    assert scene.init(producer_id=who[0] + 1, producer_epoch=0) is E.producer_fenced


def test_a_zombie_that_names_an_old_epoch_aborts_nothing() -> None:
    """Kafka compares only the id while a transaction is open, and aborts the successor's."""
    scene = Scene()
    zombie = scene.init()
    who = scene.init()
    scene.add(who, P0)
    assert scene.init(**named(zombie)) is E.producer_fenced
    assert scene.phase == "Ongoing"


def test_a_producer_goes_on_from_its_own_open_transaction() -> None:
    scene = Scene()
    who = scene.init()
    scene.add(who, P0)
    ticket = scene.init(**named(who))
    assert scene.phase == "PrepareAbort"
    scene.written()
    assert scene.answers[ticket][:2] == (101, 1)
    assert scene.init(**named(who))[:2] == (101, 1)


def test_a_producer_that_timed_out_goes_on_when_nobody_has_taken_its_place() -> None:
    scene = Scene()
    who = scene.init()
    scene.add(who, P0)
    scene.pass_time(60_000)
    scene.written()
    assert scene.init(**named(who))[:2] == (101, 1)


def test_an_id_that_expired_begins_anew_whatever_it_names() -> None:
    assert Scene().init(producer_id=5, producer_epoch=3)[:2] == (101, 0)


# -- the end of the epochs: KAFKA-19367, librdkafka#3720 ---------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "following"),
    [
        (32_764, (101, 32_765)),
        (32_765, (101, 32_766)),
        (32_766, (102, 0)),
        (32_767, (102, 0)),
    ],
)
def test_after_the_last_epoch_there_is_another_id(epoch: int, following: tuple[int, int]) -> None:
    scene, _ = at_epoch(epoch)
    assert scene.init()[:2] == following


@pytest.mark.parametrize("epoch", [32_765, 32_766])
@pytest.mark.parametrize("server_version", [0, 2])
def test_fencing_near_the_last_epoch_runs_over_nowhere(epoch: int, server_version: int) -> None:
    """KAFKA-19367: fence and abort each counted one on, 32766 became negative, and the id was unusable."""
    scene, who = at_epoch(epoch, server_version=server_version)
    scene.add(who, P0)
    ticket = scene.init()
    assert scene.now().producer_epoch == epoch + 1
    scene.written()
    assert scene.answers[ticket] == "needs a producer id"
    assert scene.init()[:2] == (102, 0)


def test_a_new_client_that_ends_its_last_epoch_goes_on_under_another_id() -> None:
    scene, who = at_epoch(CLIENT_EPOCH_MAX)
    scene.add(who, P0, version=2)
    assert scene.end(who, bumps=True) == Ended(102, 0)
    (markers,) = scene.sent
    assert (markers.producer_id, markers.producer_epoch) == (101, EPOCH_MAX)
    assert scene.end(who, bumps=True) == Ended(102, 0)  # asked again before the markers
    scene.written()
    assert scene.end(who, bumps=True) == Ended(102, 0)  # and after them
    assert scene.end(who, commit=False, bumps=True) is E.invalid_txn_state
    assert scene.add(who, P0, version=2) is E.invalid_producer_id_mapping
    assert scene.add((102, 0), P0, version=2) is E.none


def test_what_comes_under_the_new_id_waits_for_the_markers_of_the_old_one() -> None:
    scene, who = at_epoch(CLIENT_EPOCH_MAX)
    scene.add(who, P0, version=2)
    following = scene.end(who, bumps=True)
    ticket = scene.add(following, P1, version=2)
    scene.written()
    assert scene.answers[ticket] is E.none
    assert scene.now().identity == (102, 0)


def test_a_lost_answer_with_another_id_is_given_again() -> None:
    scene, who = at_epoch(CLIENT_EPOCH_MAX)
    told = scene.init(**named(who))
    assert told[:2] == (102, 0)
    assert scene.init(**named(who)) == told
    assert scene.moved().init(**named(who)) == told
    scene.init()
    assert scene.init(**named(who)) is E.producer_fenced


def test_a_timeout_in_the_last_epoch_leaves_the_id_usable() -> None:
    scene, who = at_epoch(CLIENT_EPOCH_MAX)
    scene.add(who, P0, version=2)
    scene.pass_time(60_000)
    assert scene.now().producer_epoch == EPOCH_MAX
    scene.written()
    told = scene.init(**named(who))
    assert told[:2] == (102, 0)
    assert scene.init(**named(who)) == told


def test_a_last_epoch_that_somebody_else_ended_is_followed_by_another_id() -> None:
    """A transaction group ends its members' transactions, and has no new producer ids at hand."""
    scene, who = at_epoch(CLIENT_EPOCH_MAX)
    scene.add(who, P0, version=2)
    scene.take(scene.machine.end("pay", commit=True, now_ms=scene.now_ms))
    ticket = scene.end(who, bumps=True)
    assert scene.end(who, commit=False, bumps=True) is E.concurrent_transactions
    scene.written()
    assert scene.end(who, commit=False, bumps=True) is E.invalid_txn_state
    assert scene.answers[ticket] == "needs a producer id"  # and its shell asks again with one
    assert scene.end(who, bumps=True) == Ended(102, 0)
    assert scene.add((102, 0), P0, version=2) is E.none


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("moves", [False, True], ids=["stays", "moves"])
def test_the_other_id_that_follows_such_an_end_is_told_again(commit: bool, moves: bool) -> None:
    """Its answer was lost: it was committed, and the client that asks once more must not hear that its id is unknown."""
    scene, who = at_epoch(CLIENT_EPOCH_MAX)
    scene.add(who, P0, version=2)
    scene.take(scene.machine.end("pay", commit=commit, now_ms=scene.now_ms))
    scene.written()
    assert scene.end(who, commit=commit, bumps=True) == Ended(102, 0)
    scene = scene.moved() if moves else scene
    assert scene.end(who, commit=not commit, bumps=True) is E.invalid_txn_state
    assert scene.end(who, commit=commit, bumps=True) == Ended(102, 0)
    assert scene.init(**named(who))[:2] == (102, 0)  # or gives up on the answer
    assert scene.add((102, 0), P0, version=2) is E.none
    assert scene.end(who, commit=commit, bumps=True) is E.invalid_producer_id_mapping
