"""What a run makes of processes that ended as they were not meant to, and how long its load goes on; without any broker."""

from collections import Counter
from types import SimpleNamespace

import pytest
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn
from fencepost.chaos.faults.exits import Exit
from fencepost.chaos.runs import run as runs
from fencepost.chaos.runs.folder import RunFolder
from fencepost.chaos.runs.plan import Plan
from fencepost.chaos.runs.run import Run

NOWHERE = SimpleNamespace(name="processes", nodes=(1, 2, 3), can=frozenset({"kill"}))


@pytest.fixture
def run(tmp_path, monkeypatch) -> Run:
    monkeypatch.setattr(runs, "system_of", lambda *_, **__: NOWHERE)
    monkeypatch.setattr(runs, "TICK_S", 0.0)
    made = Run(Plan(), RunFolder(tmp_path / "run"), lambda _: None)
    made.folder.create({})
    return made


def gone(node: int, code: int, *, broken: bool = False, excused: bool = False) -> Exit:
    return Exit(node, code, "why", broken=broken, excused=excused)


def test_a_node_that_ended_by_itself_is_no_secret(run) -> None:
    run.watched.exits = [gone(1, 1), gone(2, 70, broken=True), gone(3, 73, excused=True)]
    run._account_exits()
    assert run.unknown == ["node 1 ended by itself with 1: why"]
    assert run.broken == ["node 2 ended by itself with 70: why"]


def test_it_is_told_however_the_run_ends(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(runs, "system_of", lambda *_, **__: NOWHERE)
    made = Run(Plan(), RunFolder(tmp_path / "run"), lambda _: None)

    def measure() -> None:
        made.watched.exits.append(gone(2, 70, broken=True))
        raise TimeoutError("nobody answers")

    monkeypatch.setattr(made, "_measure", measure)
    found = made.go()
    assert found["verdict"] == "invalid"
    assert found["unknown"] == ["TimeoutError: nobody answers"]
    assert found["broken"] == ["node 2 ended by itself with 70: why"]


def test_of_many_nodes_that_ended_by_themselves_a_broken_invariant_is_not_left_out(run) -> None:
    run.watched.exits = [gone(1, 1)] * 9 + [gone(2, 70, broken=True)]
    run._account_exits()
    assert run.unknown[-1] == "5 more nodes ended by themselves"
    assert run.broken == ["node 2 ended by itself with 70: why"]


def test_a_client_that_ended_by_itself_makes_a_run_unknown(run) -> None:
    schedule = SimpleNamespace(counts=Counter(), left_out=[], trouble=[])
    schedule.stage = SimpleNamespace(seen=[], broken=[])
    said = "client 2 ended with 1: Traceback (most recent call last):\n  …\nValueError: x\n"
    run._account(schedule, SimpleNamespace(crashes=3, ended=[said, said]))
    [why] = run.unknown
    assert why.startswith("2 clients ended by themselves; client 2 ended with 1")
    assert why.endswith("ValueError: x")
    run.unknown.clear()
    run._account(schedule, SimpleNamespace(crashes=3, ended=[]))
    assert run.unknown == []


class Load:
    """Its clients' clock goes a second on with each look."""

    def __init__(self, served_from_s: float) -> None:
        self.now_s = 100.0
        self.served_from_s = served_from_s
        self.watching: list = []

    def tick(self) -> None:
        self.now_s += 1.0
        kind = "ok" if self.now_s >= self.served_from_s else "info"
        op = Txn("txn", kind, "a", 1, sends=[Sent("t0-0", 1)])
        op.began_s, op.ended_s = self.now_s - 0.9, self.now_s
        for see in self.watching:
            see(op)


@pytest.mark.parametrize(("served_from_s", "goes_on_s"), [(0.0, 4.0), (111.0, 11.0), (1e9, 35.0)])
def test_the_load_goes_on_after_all_faults_until_all_are_served_or_should_have_been(
    run, served_from_s, goes_on_s
) -> None:
    load = Load(served_from_s)
    run._calm(load)
    assert run.summary["healed_s"] == 100.0
    assert load.now_s - 100.0 == goes_on_s


def test_the_load_goes_on_until_consumers_were_shown_what_they_lacked_when_all_was_over(
    run,
) -> None:
    load = Load(0.0)
    lacks = Txn("assign", "ok", "c", positions={"t0-0": 0}, ended_s=98.0)
    sent = Txn("send", "ok", "s", 5, sends=[Sent("t0-0", 5, 7)], began_s=98.5, ended_s=99.0)
    shown = Txn("read", "ok", "c", polls=[Polled("t0-0", 7, 5)], began_s=110.0, ended_s=110.5)
    for op in (lacks, sent):
        run._see_polls(op)
    load.watching.append(lambda op: run._see_polls(shown) if op.ended_s >= 111.0 else None)
    run._calm(load)
    assert load.now_s == 111.0


def test_a_run_that_is_asked_to_end_waits_for_nobody(run) -> None:
    run.interrupts.asked = "SIGTERM"
    load = Load(1e9)
    run._calm(load)
    assert load.now_s == 100.0
