"""Check-back: half messages whose producer never ended them. Regressions name what RocketMQ's users suffered from."""

import re
from pathlib import Path

import pytest
from fencepost.cluster.base.errors import ErrorCode
from fencepost.cluster.metadata.broker_config import BROKER_CONFIGS
from fencepost.txn.transactions.added_config import AddedConfig
from fencepost.txn.transactions.check_back_commands import Attempt, PollGone, Verdict
from fencepost.txn.transactions.check_back_machine import CHECKERS_MAX
from fencepost.txn.transactions.check_back_records import MAY_BECOME, HalfState
from half_messages import DELIVERY_MS, FIRST_MS, ID, checked, half_sent, parked_one
from support.added_scene import AddedScene

E = ErrorCode
README = Path(__file__).parents[2] / "txn" / "README.md"

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


# -- parked -------------------------------------------------------------------------------------------


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
