"""Check-back: a half message is decided once. Regressions name what RocketMQ's users suffered from."""

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.txn.transactions.check_back_commands import Verdict
from fencepost.txn.transactions.check_back_records import HalfState
from fencepost.txn.transactions.group_commit_commands import Refusal
from half_messages import FIRST_MS, ID, checked, half_sent

E = ErrorCode


@pytest.mark.parametrize(
    ("verdict", "phase"), [(Verdict.COMMIT, "PrepareCommit"), (Verdict.ROLLBACK, "PrepareAbort")]
)
def test_an_answer_ends_the_transaction_in_the_batch_that_decides_it(verdict, phase) -> None:
    scene, _ = half_sent()
    attempt = checked(scene)
    batches = len(scene.log)
    answered = scene.answers_check(ID, verdict, attempt=attempt.number)
    assert answered.is_new
    assert answered.half.decided_by == "checker c"
    assert (scene.phase(ID), len(scene.log)) == (phase, batches + 1)
    assert scene.moved().half(ID) == answered.half


def test_a_late_commit_never_beats_a_rollback() -> None:
    """RocketMQ #2694: the check said ROLLBACK, a later COMMIT won."""
    scene, identity = half_sent()
    attempt = checked(scene, verdict=Verdict.ROLLBACK)
    log = len(scene.log)
    for each in (scene, scene.moved()):
        late = each.answers_check(ID, Verdict.COMMIT, attempt=attempt.number)
        assert (late.is_new, late.half.state) == (False, HalfState.ROLLED_BACK)
        assert each.ends(ID, identity, commit=True) is E.invalid_txn_state
        each.finish()
        assert each.ends(ID, identity, commit=True) is E.invalid_txn_state
        assert each.half(ID).state is HalfState.ROLLED_BACK
        assert len(each.log) <= log + 1, "nothing but the markers' end is written"


def test_no_check_goes_on_after_a_commit() -> None:
    """RocketMQ #8158: "severe data inconsistency"."""
    scene, identity = half_sent()
    checked(scene, verdict=Verdict.UNKNOWN)
    waiting = scene.polls("pay", "c", wait_ms=10**9)
    assert scene.ends(ID, identity, commit=True) == identity
    scene.pass_ms(86_400_000)
    assert waiting in scene.parked
    assert scene.half(ID).state is HalfState.COMMITTED
    late = scene.answers_check(ID, Verdict.ROLLBACK, attempt=2)
    assert (late.is_new, late.half.state) == (False, HalfState.COMMITTED)


def test_a_check_that_arrives_after_the_decision_changes_nothing() -> None:
    """1. A checker is offered a check. 2. The producer commits. 3. The checker says that the check has reached it."""
    scene, identity = half_sent()
    attempt = checked(scene)
    scene.ends(ID, identity, commit=True)
    decided, batches = scene.half(ID), len(scene.log)
    scene.pass_ms(1)
    assert scene.polls("pay", "c", attempt) in scene.parked
    assert (scene.half(ID), len(scene.log)) == (decided, batches)


def test_what_was_committed_is_not_checked_by_a_coordinator_that_takes_over() -> None:
    """RocketMQ #1517: checked although already committed."""
    scene, identity = half_sent()
    scene.pass_ms(FIRST_MS)
    scene.ends(ID, identity, commit=True)
    for each in (scene, scene.moved()):
        waiting = each.polls("pay", "c", wait_ms=10**9)
        each.pass_ms(86_400_000)
        assert waiting in each.parked
        assert each.listed() == []


def test_nothing_is_discarded_before_the_log_has_been_read_to_its_end() -> None:
    """RocketMQ #8311: it discarded half messages before it had read what had become of them."""
    scene, _ = half_sent(transaction_check_max=1)
    checked(scene, verdict=Verdict.UNKNOWN)
    prefixes = len(scene.log)
    scene.answers_check(ID, Verdict.COMMIT)
    for batches in range(2, len(scene.log) + 1):
        moved = scene.moved(batches)
        half = moved.checks.halves.get(ID)
        if half is not None:
            expected = HalfState.WAITING if batches <= prefixes else HalfState.COMMITTED
            assert half.state is expected, "read, and not yet acted upon"


def test_the_next_half_message_is_not_decided_by_an_answer_to_the_one_before() -> None:
    """The transactions of an old client have one id and epoch; half messages have names of their own."""
    scene, identity = half_sent()
    attempt = checked(scene)
    scene.ends(ID, identity, commit=False)
    scene.finish()
    scene.writes(ID, identity)
    scene.prepares(ID, identity, "h2")
    late = scene.answers_check(ID, Verdict.COMMIT, "h1", attempt=attempt.number)
    assert isinstance(late, Refusal)
    assert "h2" in late.message
    assert scene.half(ID).state is HalfState.WAITING


def test_a_group_end_of_a_prepared_member_decides_its_half_message() -> None:
    scene, identity = half_sent()
    assert scene.end_group("pay", 1, commit=True, p1=identity).is_new
    assert scene.half(ID).state is HalfState.COMMITTED
    assert scene.half(ID).decided_by == "its producer"
