"""Check-back: half messages whose producer never ended them. Regressions name what RocketMQ's users suffered from."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.metadata.broker_config import BROKER_CONFIGS
from fencepost.txn.runtime.decision import NOTHING
from fencepost.txn.transactions.added_config import AddedConfig
from fencepost.txn.transactions.check_back_commands import Attempt, PollGone, Verdict
from fencepost.txn.transactions.check_back_machine import CHECKERS_MAX
from fencepost.txn.transactions.check_back_records import MAY_BECOME, HalfState
from fencepost.txn.transactions.commands import InitProducerId
from fencepost.txn.transactions.group_commit_commands import Identity, Refusal
from fencepost.txn.transactions.transaction import Phase
from support.added_scene import AddedScene

E = ErrorCode
ID = "pay::p1"
FIRST_MS = 10_000
DELIVERY_MS = 5_000
README = Path(__file__).parents[2] / "txn" / "README.md"


def half_sent(**settings: int) -> tuple[AddedScene, Identity]:
    scene = AddedScene(**settings)
    identity = scene.opened(ID)
    assert scene.prepares(ID, identity).is_new
    return scene, identity


def checked(scene: AddedScene, member: str = "c", verdict: Verdict | None = None) -> Attempt:
    """Wait until the next check is due, take it, and say so or answer."""
    ticket = scene.polls("pay", member, wait_ms=10**9)
    while ticket in scene.parked:
        scene.pass_ms(1_000)
    (attempt,) = scene.given(ticket)
    if verdict is not None:
        scene.answers_check(ID, verdict, attempt=attempt.number)
    return attempt


# -- prepared ---------------------------------------------------------------------------------------


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


# -- asked --------------------------------------------------------------------------------------------


def test_checks_come_at_growing_intervals() -> None:
    scene, _ = half_sent(transaction_check_interval_max_ms=50_000)
    asked_ms, began_ms = [], scene.now_ms
    for _ in range(5):
        attempt = checked(scene)
        asked_ms.append(scene.now_ms - began_ms)
        scene.answers_check(ID, Verdict.UNKNOWN, attempt=attempt.number)
        began_ms = scene.now_ms
    assert asked_ms == [10_000, 20_000, 40_000, 50_000, 50_000]


def test_a_checker_that_comes_later_finds_what_is_due() -> None:
    scene, _ = half_sent()
    scene.pass_ms(FIRST_MS + 1)
    assert scene.polls("pay", "c") == (Attempt(ID, "h1", 1),)


def test_a_checker_is_only_asked_about_its_own_group() -> None:
    scene, _ = half_sent()
    ticket = scene.polls("other", "c", wait_ms=FIRST_MS * 2)
    scene.pass_ms(FIRST_MS * 3)
    assert scene.given(ticket) == ()


def test_who_waited_longest_is_asked_first() -> None:
    scene, _ = half_sent()
    first, second = scene.polls("pay", "c1"), scene.polls("pay", "c2")
    scene.pass_ms(FIRST_MS)
    assert scene.given(first) == (Attempt(ID, "h1", 1),)
    assert second in scene.parked


def test_a_poll_ends_when_its_time_is_over_and_when_the_same_member_polls_again() -> None:
    scene = AddedScene()
    first = scene.polls("pay", "c", wait_ms=5_000)
    second = scene.polls("pay", "c", wait_ms=5_000)
    assert scene.given(first) == ()
    scene.pass_ms(5_000)
    assert scene.given(second) == ()


def test_who_hangs_up_is_not_asked() -> None:
    scene, _ = half_sent()
    gone = scene.polls("pay", "c1")
    scene.do(PollGone(group="pay", member="c1", ticket=gone))
    there = scene.polls("pay", "c2")
    scene.pass_ms(FIRST_MS)
    assert scene.given(there) == (Attempt(ID, "h1", 1),)


def test_a_member_that_falls_silent_is_a_member_no_more() -> None:
    scene = AddedScene()
    scene.polls("pay", "c", wait_ms=5_000)
    assert list(scene.checks.checkers.of("pay").members) == ["c"]
    scene.pass_ms(5_000 + AddedConfig().transaction_check_session_timeout_ms)
    assert scene.checks.checkers.groups == {}


def test_a_group_has_so_many_checkers_at_most() -> None:
    scene = AddedScene()
    for number in range(CHECKERS_MAX):
        scene.polls("pay", f"c{number}")
    assert scene.polls("pay", "one too many").code is E.throttling_quota_exceeded
    assert scene.polls("pay", "c0") in scene.parked


# -- counted only when delivered ------------------------------------------------------------------------


def test_no_check_is_burned_without_being_delivered() -> None:
    """RocketMQ #8311: a long immunity burned all fifteen checks without one real one."""
    scene, _ = half_sent(transaction_check_max=3)
    for _ in range(40):  # offered to checkers that die before it reaches them
        ticket = scene.polls("pay", "dies", wait_ms=600_000)
        if isinstance(ticket, int):
            scene.pass_ms(DELIVERY_MS * 2)
    scene.pass_ms(7 * 86_400_000)  # and nobody there for a week
    assert (scene.half(ID).checks, scene.half(ID).state) == (0, HalfState.WAITING)
    assert scene.polls("pay", "lives") == (Attempt(ID, "h1", 1),)


def test_a_check_counts_when_its_checker_says_that_it_has_it() -> None:
    scene, _ = half_sent()
    attempt = checked(scene)
    assert scene.half(ID).checks == 0
    scene.polls("pay", "c", attempt)
    assert scene.half(ID).checks == 1
    scene.polls("pay", "c", attempt)
    assert scene.half(ID).checks == 1, "once"


def test_only_the_check_that_is_under_way_counts() -> None:
    """A word of an earlier one that was delayed must not lower the count, one of a later one not raise it."""
    scene, _ = half_sent()
    first = checked(scene, verdict=Verdict.UNKNOWN)
    checked(scene, verdict=Verdict.UNKNOWN)
    for number in (0, first.number, 2, 4, 15):
        scene.polls("pay", "c", Attempt(ID, "h1", number))
        scene.answers_check(ID, Verdict.UNKNOWN, attempt=number)
        assert scene.half(ID).checks == 2


def test_a_check_that_arrived_late_is_not_offered_again_to_who_has_it() -> None:
    scene, _ = half_sent()
    attempt = checked(scene)
    scene.pass_ms(DELIVERY_MS)  # it is due again by now
    assert scene.polls("pay", "c", attempt) in scene.parked
    assert scene.half(ID).checks == 1


def test_an_answer_says_that_the_check_was_delivered() -> None:
    scene, _ = half_sent()
    attempt = checked(scene, verdict=Verdict.UNKNOWN)
    assert scene.half(ID).checks == 1
    scene.answers_check(ID, Verdict.UNKNOWN, attempt=attempt.number)
    scene.polls("pay", "c", attempt)
    assert scene.half(ID).checks == 1, "said twice, in two ways"


def test_what_was_offered_and_not_taken_is_offered_to_another_one() -> None:
    scene, _ = half_sent()
    checked(scene, "dies")
    ticket = scene.polls("pay", "lives")
    scene.pass_ms(DELIVERY_MS)
    assert scene.given(ticket) == (Attempt(ID, "h1", 1),)
    assert scene.half(ID).checks == 0


def test_a_check_that_was_under_way_when_the_coordinator_moved_counts_at_the_next_one() -> None:
    scene, _ = half_sent()
    attempt = checked(scene)
    moved = scene.moved()
    moved.polls("pay", "c", attempt)
    assert moved.half(ID).checks == 1
    assert moved.moved().half(ID).checks == 1


def test_a_coordinator_that_takes_over_goes_on_with_the_intervals() -> None:
    scene, _ = half_sent()
    checked(scene, verdict=Verdict.UNKNOWN)
    scene.pass_ms(15_000)
    moved = scene.moved()
    ticket = moved.polls("pay", "c", wait_ms=60_000)
    moved.pass_ms(4_999)
    assert ticket in moved.parked
    moved.pass_ms(1)
    assert moved.given(ticket) == (Attempt(ID, "h1", 2),)


# -- decided, once ------------------------------------------------------------------------------------


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


# -- parked -------------------------------------------------------------------------------------------


def parked_one() -> AddedScene:
    scene, _ = half_sent(transaction_check_max=2)
    for _ in range(2):
        checked(scene, verdict=Verdict.UNKNOWN)
    scene.pass_ms(60_000)
    return scene


def test_a_half_message_over_the_limit_is_parked_where_people_see_it_and_not_lost() -> None:
    """RocketMQ #598, #4435: over-limit messages were lost, there was nothing to resume them with."""
    scene = parked_one()
    for each in (scene, scene.moved()):
        assert each.half(ID).state is HalfState.PARKED
        assert each.listed(parked=True) == [ID]
        each.pass_ms(86_400_000)
        assert each.phase(ID) == "Prepared", "nobody guesses"
        waiting = each.polls("pay", "c", wait_ms=1_000)
        assert waiting in each.parked


def test_a_parked_one_that_is_released_is_checked_again_from_the_start() -> None:
    scene = parked_one()
    waiting = scene.polls("pay", "c", wait_ms=60_000)
    released = scene.releases(ID)
    assert (released.is_new, released.half.checks) == (True, 0)
    scene.pass_ms(1)
    assert scene.given(waiting) == (Attempt(ID, "h1", 1),)
    assert scene.listed(parked=True) == []
    assert scene.releases(ID).is_new is False


@pytest.mark.parametrize("verdict", [Verdict.COMMIT, Verdict.ROLLBACK])
def test_a_parked_one_is_decided_by_a_person_or_its_producer(verdict) -> None:
    scene = parked_one()
    assert scene.answers_check(ID, verdict).is_new
    assert scene.releases(ID).code is E.invalid_txn_state
    assert scene.listed() == []


def test_what_nobody_knows_cannot_be_answered_or_released() -> None:
    scene, _ = half_sent()
    for refusal in (
        scene.answers_check("pay::x", Verdict.COMMIT),
        scene.answers_check(ID, Verdict.COMMIT, "h9"),
        scene.releases("pay::x"),
    ):
        assert refusal.code is E.transactional_id_not_found


def test_the_defaults_are_what_the_settings_say() -> None:
    """RocketMQ #500: the documentation said 15, the code 5."""
    config = AddedConfig()
    for name in AddedConfig.__dataclass_fields__:
        setting = BROKER_CONFIGS[name.replace("_", ".")]
        assert setting.default == getattr(config, name), name


def test_decisions_are_forgotten_when_their_ids_are() -> None:
    scene, _ = half_sent()
    scene.answers_check(ID, Verdict.COMMIT)
    scene.finish()
    scene.pass_ms(8 * 86_400_000)
    assert scene.checks.halves == {}
    assert scene.moved().checks.halves == {}


def test_the_diagram_in_the_readme_is_the_table() -> None:
    assert set(MAY_BECOME) == set(HalfState)
    diagram = re.search(
        r"<!-- half messages -->\n```mermaid\n(.*?)```", README.read_text(), re.DOTALL
    )
    assert diagram is not None
    rows = ["stateDiagram-v2", "    [*] --> WAITING"]
    for state in HalfState:
        rows += [f"    {state.name} --> {after.name}" for after in MAY_BECOME[state]]
    assert diagram.group(1).splitlines() == rows
