"""Coordinators that take over: at every point of every course of a transaction, with nothing but the log."""

from collections.abc import Callable
from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.transactions.commands import Ended
from fencepost.txn.transactions.transaction import DECIDED, NO_TIMEOUT, OPEN, Phase
from transaction_scene import ID, P0, P1, Scene

E = ErrorCode


def commits(scene: Scene) -> None:
    who = scene.init()
    scene.add(who, P0)
    scene.add(who, P1)
    scene.end(who)
    scene.written()


def aborts_and_begins_again(scene: Scene) -> None:
    who = scene.init()
    scene.add(who, P0, version=2)
    who = scene.end(who, commit=False, bumps=True)
    scene.add(who, P1, version=2)  # waits
    scene.written()
    who = scene.end(who, bumps=True)
    scene.end(who, commit=False, bumps=True)  # of nothing: waits, too
    scene.written()


def is_fenced_by_another(scene: Scene) -> None:
    who = scene.init()
    scene.add(who, P0)
    scene.init()
    scene.written()


def times_out(scene: Scene) -> None:
    who = scene.init()
    scene.add(who, P0)
    scene.pass_time(60_000)
    scene.written()
    scene.init(producer_id=who[0], producer_epoch=who[1])


def is_prepared_and_kept(scene: Scene) -> None:
    who = scene.init(timeout_ms=NO_TIMEOUT)
    scene.add(who, P0, version=2)
    who = scene.init(timeout_ms=NO_TIMEOUT, keep_prepared=True)
    scene.end(who, bumps=True)
    scene.written()


def runs_out_of_epochs(scene: Scene) -> None:
    scene.init()
    scene.skip_to_epoch(32_766)
    who = scene.now().identity
    scene.add(who, P0, version=2)
    scene.end(who, bumps=True)
    scene.written()


COURSES = [
    commits,
    aborts_and_begins_again,
    is_fenced_by_another,
    times_out,
    is_prepared_and_kept,
    runs_out_of_epochs,
]


@pytest.mark.parametrize("course", COURSES)
@pytest.mark.parametrize("server_version", [0, 1, 2])
def test_every_prefix_of_the_log_gives_a_coordinator_that_goes_on(
    course: Callable[[Scene], None], server_version: int
) -> None:
    whole = Scene(server_version=server_version)
    course(whole)
    for length in range(1, len(whole.log) + 1):
        goes_on(whole.moved(whole.log[:length]))
        goes_on(whole.moved(compacted(whole.log[:length])))


def compacted(log: list[tuple[bytes, bytes | None]]) -> list[tuple[bytes, bytes | None]]:
    return list(dict(log).items())


def goes_on(scene: Scene) -> None:
    """What is decided is carried out as it was decided; what is open can be ended; then a new producer can work."""
    found = scene.now()
    assert bool(scene.sent) == (found.phase in DECIDED)
    if found.phase in DECIDED:
        (markers,) = scene.sent
        assert markers.commit == (found.phase is Phase.PREPARE_COMMIT)
        assert markers.partitions == found.partitions
        scene.written()
        done = Phase.COMPLETE_COMMIT if markers.commit else Phase.COMPLETE_ABORT
        assert scene.now().phase is done
    if found.phase is Phase.ONGOING and found.has_timeout:
        # A transaction that followed its predecessor at once is dated a moment later than it began.
        since_ms = min(found.start_timestamp, scene.now_ms)
        assert scene.timers["timeout", ID] == since_ms + found.timeout_ms
    if found.phase in OPEN:
        bumps = found.client_transaction_version == 2
        ended = Ended(found.identity.producer_id, found.identity.producer_epoch + bumps)
        if bumps and found.identity.is_exhausted:
            ended = Ended(scene.next_producer_id + 1, 0)
        assert scene.end(found.identity, bumps=bumps) == ended
        scene.written()
        assert scene.phase == "CompleteCommit"
    before = scene.now().identity
    who = scene.init()
    assert (who.producer_id, who.producer_epoch) > before or who.producer_id != before.producer_id
    assert scene.add(who, P1) is E.none
    assert scene.end(who) == Ended(*who[:2])
    scene.written()
    assert scene.phase == "CompleteCommit"


@pytest.mark.parametrize("course", COURSES)
def test_a_coordinator_knows_what_the_one_before_it_knew(course: Callable[[Scene], None]) -> None:
    whole = Scene()
    course(whole)
    assert whole.moved().machine.transactions == whole.machine.transactions


# -- answers that were lost with the coordinator -----------------------------------------------------


def test_an_end_whose_answer_was_lost_is_answered_by_the_next_coordinator() -> None:
    scene = Scene()
    who = scene.init()
    scene.add(who, P0, version=2)
    told = scene.end(who, bumps=True)
    after = scene.moved()
    assert after.end(who, bumps=True) == told
    assert after.end(who, commit=False, bumps=True) is E.concurrent_transactions
    after.written()
    assert after.end(who, commit=False, bumps=True) is E.invalid_txn_state
    assert after.end(who, bumps=True) == told
    assert after.moved().end(who, bumps=True) == told


def test_an_epoch_whose_answer_was_lost_is_given_again_by_the_next_coordinator() -> None:
    """KIP-360's retry. Kafka forgets the epoch before with the coordinator, and fences the producer."""
    scene = Scene()
    had = scene.init()
    told = scene.init(producer_id=had[0], producer_epoch=had[1])
    assert told[:2] == (101, 1)
    after = scene.moved()
    assert after.init(producer_id=had[0], producer_epoch=had[1]) == told
    assert after.moved().init(producer_id=had[0], producer_epoch=had[1]) == told


def test_what_waited_is_asked_again_of_the_next_coordinator() -> None:
    scene = Scene()
    who = scene.init()
    scene.add(who, P0)
    scene.end(who)
    scene.add(who, P1)
    after = scene.moved()
    ticket: Any = after.add(who, P1)
    after.written()
    assert after.answers == {ticket: E.none}
