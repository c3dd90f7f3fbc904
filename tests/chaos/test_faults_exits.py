"""Nodes that ended though nobody had ended them, on a system that is nowhere."""

import json
import signal

import pytest
from fencepost.chaos.faults.exits import Watched, last_words, watched

BROKEN = "AssertionError('an epoch went backwards')"


def event(name: str, **more) -> str:
    return json.dumps({"event": name, **more})


def invariant(cause: str = BROKEN) -> str:
    return event("broken_invariant", cause=cause, exit_code=70)


class Straw:
    """Nodes end when they are told to, with what they are told to."""

    name = "processes"
    nodes = (1, 2, 3)

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self.logs = dict.fromkeys(self.nodes, "")
        self.stops_with = 0
        self.serves = True

    def end(self, node: int, code: int, said: str = "") -> None:
        self.codes[node] = code
        self.logs[node] += f"{said}\n"

    def runs(self, node: int) -> bool:
        return node not in self.codes

    def is_up(self, node: int) -> bool:
        return self.serves and self.runs(node)

    def exit_code(self, node: int) -> int | None:
        return self.codes.get(node)

    def said(self, node: int) -> str:
        return self.logs[node]

    def kill(self, node: int, signal_number: int = signal.SIGKILL) -> None:
        told = self.stops_with if signal_number == signal.SIGTERM else -signal_number
        self.codes.setdefault(node, told)

    def start(self, node: int) -> None:
        self.codes.pop(node, None)
        self.logs[node] += event("node_starts") + "\n"

    def stop(self) -> dict[int, int]:
        leaving = [node for node in self.nodes if self.runs(node)]
        for node in leaving:
            self.kill(node, signal.SIGTERM)
        return {node: self.codes[node] for node in leaving}


@pytest.fixture
def straw() -> Straw:
    return Straw()


def told(system: Watched) -> list[tuple]:
    return [(each.node, each.code, each.broken, each.excused) for each in system.exits]


def test_who_is_killed_and_started_again_is_no_news(straw) -> None:
    system = watched(straw)
    for number in (signal.SIGKILL, signal.SIGTERM):
        system.kill(2, number)
        system.look()
        system.start(2)
    system.stop()
    system.look()
    assert system.exits == []
    assert watched(system) is system and system.name == "processes"


@pytest.mark.parametrize("again", ["start", "kill"])
def test_a_node_that_ended_by_itself_is_told_of_before_it_is_started_again(straw, again) -> None:
    system = Watched(straw)
    straw.end(2, 70, invariant())
    getattr(system, again)(2)
    system.start(2)
    system.look()
    assert told(system) == [(2, 70, True, False)]
    assert str(system.exits[0]) == f"node 2 ended by itself with 70: {BROKEN}"


def test_what_ended_while_nobody_looked_is_told_when_all_is_over(straw) -> None:
    system = Watched(straw)
    straw.end(3, -9)
    system.stop()
    assert told(system) == [(3, -9, False, False)]


def test_a_clean_stop_that_was_none_is_told(straw) -> None:
    system = Watched(straw)
    straw.stops_with = 1
    system.kill(1, signal.SIGTERM)
    system.start(1)
    straw.stops_with = 70
    straw.logs[3] = invariant()
    system.stop()
    assert told(system)[0] == (1, 1, False, False)
    assert (3, 70, True, False) in told(system)
    assert "was told to stop and ended with 1" in str(system.exits[0])


def test_who_had_not_begun_to_listen_may_end_of_the_signal(straw) -> None:
    system = Watched(straw)
    straw.serves, straw.stops_with = False, -signal.SIGTERM
    system.kill(1, signal.SIGTERM)
    assert system.exits == []
    straw.serves = True
    system.kill(2, signal.SIGTERM)
    assert told(system) == [(2, -signal.SIGTERM, False, False)]


def test_a_disk_that_fails_excuses_an_end_and_no_broken_invariant(straw) -> None:
    system = Watched(straw)
    system.may_end([1, 2], "disk-fail")
    straw.end(1, 70, invariant("OSError(5, 'Input/output error')"))
    straw.end(2, 70, invariant())
    straw.end(3, 70, invariant("OSError(28, 'No space left on device')"))
    system.look()
    assert told(system) == [
        (1, 70, False, True),
        (2, 70, True, False),
        (3, 70, False, False),  # nobody had struck its disk: unforeseen, but no broken promise
    ]


@pytest.mark.parametrize("code", [-signal.SIGKILL, -signal.SIGSEGV, 137, 139])
def test_a_disk_excuses_nobody_whom_a_signal_ended(straw, code) -> None:
    """Of a node whose syncs had taken longer the kernel's kill was excused for the rest of its life."""
    system = Watched(straw)
    system.may_end([1], "disk-slow")
    system.over([1])
    straw.end(1, code)
    system.look()
    assert told(system) == [(1, code, False, False)]


def test_an_excuse_lasts_until_the_node_is_started_after_its_fault(straw) -> None:
    system = Watched(straw)
    system.may_end([1], "damage")
    system.kill(1)
    system.start(1)
    straw.end(1, 73, event("node_refused", cause="t-0/0.log is damaged"))
    system.kill(1)
    system.start(1)  # with an empty disk
    system.over([1])
    straw.end(1, 73)
    system.look()
    assert [each.excused for each in system.exits] == [True, False]
    # Nobody had to start this one: its disk was slow, and it may end of that a little later.
    system.may_end([2], "disk-slow")
    system.over([2])
    straw.end(2, 73)
    system.start(2)
    straw.end(2, 73)
    system.look()
    assert [each.excused for each in system.exits] == [True, False, True, False]


def test_of_damaged_files_a_broken_invariant_proves_nothing(straw) -> None:
    system = Watched(straw)
    system.may_end([1], "damage")
    straw.end(1, 70, invariant())
    system.look()
    assert told(system) == [(1, 70, False, False)]


def test_the_cause_is_that_of_the_last_start() -> None:
    before = [invariant(), event("node_starts"), event("node_stopped")]

    def words(*more: str) -> tuple[str, str]:
        return last_words("\n".join([*before, *more]))

    assert words() == ("", before[-1]), "it said nothing of its end"
    assert words(invariant("KeyError(1)")) == ("broken_invariant", "KeyError(1)")
    raised = ["Traceback (most recent call last):", "AssertionError: no leader", "", "Aborted"]
    assert words(*raised) == ("broken_invariant", "AssertionError: no leader")
    assert words(event("node_ends", cause="a later version")) == ("node_ends", "a later version")
    assert last_words("") == ("", "")


@pytest.mark.parametrize(
    ("said", "broken"),
    [
        (invariant(), True),
        (invariant("KeyError('t-0')"), True),
        (event("node_ends", cause="the journal could not be synced", exit_code=70), False),
        (invariant("OSError(28, 'No space left on device')"), False),
        ("", True),
    ],
    ids=["assertion", "unforeseen", "a sentence", "of the disk", "no word"],
)
def test_who_says_in_a_sentence_why_it_ends_has_broken_nothing(straw, said, broken) -> None:
    """The exit code is 70 all the same."""
    system = Watched(straw)
    straw.end(2, 70, said)
    system.look()
    assert told(system) == [(2, 70, broken, False)]
