"""The transactions of one partition, request by request: table-driven, with a coordinator made by hand."""

from typing import Any

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.transactions.commands import (
    ADDED_BEFORE,
    AddPartitions,
    Ended,
    InitProducerId,
    MarkersWritten,
)
from fencepost.txn.transactions.config import TransactionConfig
from fencepost.txn.transactions.policy import ON_END_TXN, ON_END_TXN_5, ON_END_TXN_5_AGAIN
from fencepost.txn.transactions.transaction import (
    CLIENT_EPOCH_MAX,
    COMPLETE,
    DECIDED,
    EPOCH_MAX,
    NO_TIMEOUT,
    Phase,
)
from transaction_scene import ID, P0, P1, P2, Scene

E = ErrorCode
P = Phase


def begun(**more: Any) -> tuple[Scene, Any]:
    scene = Scene(**more)
    return scene, scene.init()


# -- from the beginning to the end -----------------------------------------------------------------


def test_a_transaction_of_an_old_client_keeps_its_epoch() -> None:
    scene, who = begun()
    assert who[:2] == (101, 0)
    assert scene.phase == "Empty"
    assert scene.add(who, P0, P1) is E.none
    assert scene.phase == "Ongoing"
    assert scene.add(who, P2) is E.none
    assert scene.end(who) == Ended(101, 0)
    assert scene.phase == "PrepareCommit"
    (markers,) = scene.sent
    assert (markers.producer_id, markers.producer_epoch, markers.commit) == (101, 0, True)
    assert markers.partitions == (P0, P1, P2)
    scene.written()
    assert scene.phase == "CompleteCommit"
    assert scene.add(who, P1) is E.none
    assert scene.now().partitions == (P1,)


def test_a_transaction_of_a_new_client_ends_with_the_next_epoch() -> None:
    scene, who = begun()
    assert scene.add(who, P0, version=2) is E.none
    assert scene.end(who, commit=False, bumps=True) == Ended(101, 1)
    (markers,) = scene.sent
    assert (markers.producer_epoch, markers.commit, markers.transaction_version) == (1, False, 2)
    scene.written()
    assert scene.phase == "CompleteAbort"
    assert scene.add(who, P0, version=2) is E.producer_fenced
    assert scene.add((101, 1), P0, version=2) is E.none


def test_no_two_transactions_of_an_epoch_begin_at_one_time() -> None:
    """By that partitions tell a late marker of one from the next: an old client's have one epoch."""
    scene, who = begun()
    began = []
    for change_ms in (0, 0, -5_000, 1):
        scene.now_ms += change_ms
        scene.add(who, P0)
        began.append(scene.now().start_timestamp)
        scene.end(who)
        assert scene.now().start_timestamp == began[-1]
        scene.written()
    assert began == sorted(set(began))


def test_partitions_that_are_in_it_already_write_nothing() -> None:
    scene, who = begun()
    scene.add(who, P0, P1)
    records = len(scene.log)
    assert scene.add(who, P1) == ADDED_BEFORE
    assert len(scene.log) == records


def test_deciding_twice_gives_the_same_decision_and_changes_nothing() -> None:
    scene, who = begun()
    scene.add(who, P0)
    before = dict(scene.machine.transactions)
    command = InitProducerId(transactional_id=ID, timeout_ms=5, ticket=9)
    first = scene.machine.decide(command, scene.now_ms)
    assert scene.machine.decide(command, scene.now_ms) == first
    assert scene.machine.transactions == before
    assert not scene.machine.waiting


# -- who waits for markers -------------------------------------------------------------------------


def test_what_comes_while_markers_are_written_is_decided_in_the_turn_that_ends_them() -> None:
    """Kafka answers CONCURRENT_TRANSACTIONS, and the client's back-off is most of the latency."""
    scene, who = begun()
    scene.add(who, P0)
    scene.end(who)
    ticket = scene.add(who, P1)
    assert scene.phase == "PrepareCommit"
    assert ticket not in scene.answers
    records = len(scene.log)
    scene.written()
    assert scene.answers == {ticket: E.none}
    assert (scene.phase, scene.now().partitions) == ("Ongoing", (P1,))
    assert len(scene.log) == records + 2
    assert not scene.machine.waiting
    assert all(key[0] != "wait" for key in scene.timers)


def test_those_who_wait_are_decided_in_the_order_in_which_they_came() -> None:
    scene, who = begun()
    scene.add(who, P0)
    scene.end(who)
    added, came = scene.add(who, P1), scene.init()
    scene.written()
    assert scene.answers == {added: E.none}  # the newcomer has fenced what was begun in between
    assert scene.phase == "PrepareAbort"
    scene.written()
    assert scene.answers[came][:2] == (101, 2)


def test_whoever_waits_too_long_is_sent_away_to_ask_again() -> None:
    scene, who = begun()
    scene.add(who, P0)
    scene.end(who)
    ticket = scene.add(who, P1)
    scene.pass_time(scene.config.wait_ms_max)
    assert scene.answers == {ticket: E.concurrent_transactions}
    scene.written()
    assert scene.phase == "CompleteCommit"


def test_the_markers_of_a_transaction_that_is_over_say_nothing_of_the_next_one() -> None:
    scene, who = begun()
    scene.add(who, P0)
    scene.end(who)
    late = list(scene.sent)
    scene.written()
    scene.add(who, P0)
    scene.sent = late
    scene.written()
    assert scene.phase == "Ongoing"


# -- EndTxn, every row of the tables ---------------------------------------------------------------


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


# -- verification (KIP-890) ------------------------------------------------------------------------


def test_a_partition_is_verified_by_being_part_of_the_open_transaction() -> None:
    scene, who = begun()
    assert scene.verify(who, P0) == {P0: E.transaction_abortable}
    scene.add(who, P0)
    assert scene.verify(who, P0, P1) == {P0: E.none, P1: E.transaction_abortable}
    assert scene.verify((who[0], who[1] + 1), P0) == {P0: E.producer_fenced}
    assert scene.verify((who[0] + 1, 0), P0) == {P0: E.invalid_producer_id_mapping}


def test_a_late_write_of_a_finished_transaction_is_not_verified() -> None:
    scene, who = begun()
    scene.add(who, P0)
    scene.end(who)
    scene.written()
    assert scene.verify(who, P0) == {P0: E.transaction_abortable}


# -- time ------------------------------------------------------------------------------------------


def test_a_transaction_whose_time_is_up_is_aborted_and_its_producer_fenced() -> None:
    scene, who = begun()
    scene.add(who, P0)
    scene.pass_time(59_999)
    assert scene.phase == "Ongoing"
    scene.pass_time(1)
    assert scene.phase == "PrepareAbort"
    assert scene.add(who, P1) is E.producer_fenced
    assert scene.end(who) is E.producer_fenced
    scene.written()
    assert scene.phase == "CompleteAbort"
    assert scene.init()[:2] == (101, 2)


def test_a_new_client_whose_transaction_timed_out_goes_on_after_its_abort() -> None:
    """KIP-890: its abort is taken for a repetition of ours, and tells it the epoch."""
    scene, who = begun()
    scene.add(who, P0, version=2)
    scene.pass_time(60_000)
    assert scene.end(who, commit=True, bumps=True) is E.concurrent_transactions
    assert scene.end(who, commit=False, bumps=True) == Ended(101, 1)
    scene.written()
    assert scene.end(who, commit=True, bumps=True) is E.invalid_txn_state  # as Kafka 4.3 has it
    assert scene.end(who, commit=False, bumps=True) == Ended(101, 1)


def test_time_runs_from_the_first_partition_and_not_from_the_last() -> None:
    scene, who = begun()
    scene.pass_time(50_000)
    scene.add(who, P0)
    scene.pass_time(50_000)
    scene.add(who, P1)
    scene.pass_time(10_000)
    assert scene.phase == "PrepareAbort"


def test_a_transaction_that_ended_does_not_time_out() -> None:
    scene, who = begun()
    scene.add(who, P0)
    scene.end(who)
    assert ("timeout", ID) not in scene.timers


def test_a_wall_clock_that_was_set_back_keeps_no_transaction_beyond_its_time() -> None:
    """Timers go by steady time. With the wall clock's word for it, stable offsets stood for as long as it was set back."""
    scene, who = begun()
    scene.add(who, P0)
    scene.now_ms -= 100_000_000
    scene.take(scene.machine.tick(("timeout", ID), scene.now_ms))
    assert scene.phase == "PrepareAbort"


def test_an_id_that_nobody_works_under_is_forgotten_and_an_open_one_is_not() -> None:
    config = TransactionConfig(transactional_id_expiration_ms=1_000)
    scene = Scene(config=config)
    scene.take(scene.machine.loaded(scene.now_ms))
    idle, busy = scene.init("idle"), scene.init("busy", timeout_ms=900_000)
    scene.add(busy, P0, transactional_id="busy")
    scene.now_ms += 2_000
    scene.take(scene.machine.tick(("expire",), scene.now_ms))
    assert list(scene.machine.transactions) == ["busy"]
    assert scene.add(idle, P0, transactional_id="idle") is E.invalid_producer_id_mapping
    assert scene.init("idle").producer_id > idle.producer_id


# -- connections: what tells old clients' late requests --------------------------------------------


def test_a_late_end_over_a_connection_that_was_given_up_ends_nothing() -> None:
    """KAFKA-17754, as far as it can be told for clients whose epoch stays."""
    scene = Scene()
    who = scene.init()
    scene.add(who, P0, connection=5)
    # 1. EndTxn over connection 5 is delayed; the client gives up, connects anew and sends it again.
    assert scene.end(who, connection=6) == Ended(101, 0)
    scene.written()
    # 2. The next transaction begins; then the first EndTxn arrives.
    scene.add(who, P1, connection=6)
    assert scene.end(who, connection=5) is E.not_coordinator
    assert scene.phase == "Ongoing"
    assert scene.end(who, commit=False, connection=6) == Ended(101, 0)


def test_a_late_partition_opens_no_transaction() -> None:
    scene = Scene()
    who = scene.init()
    scene.add(who, P0, connection=6)
    scene.end(who, connection=6)
    scene.written()
    assert scene.add(who, P0, connection=5) is E.not_coordinator
    assert scene.phase == "CompleteCommit"


def test_a_producer_that_comes_again_over_its_older_connection_is_heard() -> None:
    """It has two and uses both, as aiokafka does, whose InitProducerId goes over one of its own."""
    scene = Scene()
    who = scene.init()
    scene.add(who, P0, connection=6)
    assert scene.end(who, connection=5) is E.not_coordinator
    assert scene.end(who, connection=5) == Ended(101, 0)


def test_a_fenced_producer_is_told_so_over_its_old_connection() -> None:
    scene = Scene()
    zombie = scene.init()
    scene.add(zombie, P0, connection=5)
    scene.init()
    scene.written()
    assert scene.add(zombie, P0, connection=5) is E.producer_fenced
    assert scene.end(zombie, connection=5) is E.producer_fenced


def test_a_zombie_that_begins_again_in_vain_hides_no_late_request() -> None:
    scene = Scene()
    zombie = scene.init()
    who = scene.init()
    scene.add(who, P0, connection=6)
    assert scene.init(producer_id=zombie[0], producer_epoch=zombie[1]) is E.producer_fenced
    assert scene.end(who, connection=5) is E.not_coordinator


def test_a_new_producer_may_come_over_an_older_connection() -> None:
    scene = Scene()
    who = scene.init()
    scene.add(who, P0, connection=6)
    scene.end(who, connection=6)
    scene.written()
    who = scene.init()
    assert scene.add(who, P0, connection=5) is E.none


# -- two-phase commit (KIP-939) --------------------------------------------------------------------


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


# -- one command of another's --------------------------------------------------------------------


def test_a_command_names_whose_records_it_rests_on() -> None:
    machine = Scene().machine
    command = AddPartitions(transactional_id=ID, producer_id=1, producer_epoch=0, partitions=(P0,))
    assert machine.owners_of(command) == (ID,)
