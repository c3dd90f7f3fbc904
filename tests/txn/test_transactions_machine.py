"""The transactions of one partition, request by request: table-driven, with a coordinator made by hand."""

from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.transactions.commands import ADDED_BEFORE, AddPartitions, Ended, InitProducerId
from fencepost.txn.transactions.config import TransactionConfig
from fencepost.txn.transactions.turn import WAITING_MAX
from transaction_scene import ID, P0, P1, P2, Scene, begun

E = ErrorCode

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


def test_so_many_wait_for_one_transaction_and_others_are_sent_away_at_once() -> None:
    """One request may name it 45,000 times: that so many waited for each other held the loop up for 46 s."""
    scene, who = begun()
    scene.add(who, P0)
    scene.end(who)
    tickets = [scene.add(who, P1) for _ in range(WAITING_MAX)]
    assert scene.add(who, P1) is E.concurrent_transactions
    assert scene.init() is E.concurrent_transactions
    scene.written()
    assert {scene.answers[each] for each in tickets} == {E.none, ADDED_BEFORE}
    assert not scene.machine.waiting


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


# -- one command of another's --------------------------------------------------------------------


def test_a_command_names_whose_records_it_rests_on() -> None:
    machine = Scene().machine
    command = AddPartitions(transactional_id=ID, producer_id=1, producer_epoch=0, partitions=(P0,))
    assert machine.owners_of(command) == (ID,)
