"""What a run makes of processes that ended as they were not meant to, and how long its load goes on; without any broker."""

import threading
import time
from collections import Counter
from math import inf
from types import SimpleNamespace
from typing import ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn, to_line
from fencepost.chaos.faults.exits import Exit
from fencepost.chaos.faults.system import CannotDo
from fencepost.chaos.report import page
from fencepost.chaos.runs import judging
from fencepost.chaos.runs import run as runs
from fencepost.chaos.runs.folder import HISTORY, SEEN, RunFolder
from fencepost.chaos.runs.interrupts import Beside
from fencepost.chaos.runs.plan import Plan
from fencepost.chaos.runs.run import Run
from fencepost.node.main import main

NOWHERE = SimpleNamespace(name="processes", nodes=(1, 2, 3), can=frozenset({"kill"}), foreign={})


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
    assert run.summary["seen"] == ["node 3 ended by itself with 73: why"], "excused is not hidden"


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


def test_what_a_fault_saw_is_told_though_the_load_ended_in_trouble(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(runs, "system_of", lambda *_, **__: Entered())
    stage = SimpleNamespace(seen=["slow"], broken=["an older node serves"])
    schedule = SimpleNamespace(counts=Counter(kill=2), left_out=[], trouble=[], stage=stage)
    clients = SimpleNamespace(crashes=3, hung=0, ended=[], idle=list, kill=lambda: None)
    made = Run(Plan(), RunFolder(tmp_path / "run"), lambda _: None)

    def load(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(made, "_clients", lambda _: clients)
    monkeypatch.setattr(made, "_schedule", lambda *_: schedule)
    monkeypatch.setattr(made, "_load", load)
    found = made.go()
    assert (found["verdict"], found["broken"]) == ("invalid", ["an older node serves"])
    assert found["unknown"] == ["OSError: no space left"]
    assert found["counts"]["faults"] == 2
    assert found["history"]["lines"] == 0


class Entered:
    """A system of which nothing is asked."""

    name, nodes, can, bootstrap = "processes", (1, 2, 3), frozenset({"kill"}), "127.0.0.1:1"
    foreign: ClassVar[dict[str, str]] = {}

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


SAW = {"broken": ["node 2 ended by itself with 70: why"]}


@pytest.mark.parametrize("saw", [SAW, {"missed": "t0-0 is missing"}, SAW | {"began_s": "x"}])
def test_what_was_seen_to_be_broken_stays_so_when_its_history_says_nothing(
    tmp_path, monkeypatch, saw
) -> None:
    """Without a history, with one that no memory is enough for, or with what nobody has foreseen."""

    def out(*_: object, **__: object) -> None:
        raise MemoryError

    def unforeseen(*_: object, **__: object) -> None:
        raise KeyError("x")

    for number, fails in enumerate((None, out, unforeseen)):
        for more, verdict in ((saw, "invalid"), ({"unknown": ["SIGTERM came"]}, "unknown")):
            folder = RunFolder(tmp_path / f"{number}-{verdict}")
            folder.create({"nodes": 3, "verdict": "valid"} | more)
            if fails is None:
                folder.history.unlink()
            else:
                monkeypatch.setattr(judging, "judge_history", fails)
            for _ in range(2):
                found = judging.judge(folder, lambda _: None)
                assert found["verdict"] == folder.read()["verdict"] == verdict
                why = "there is no history" if fails is None else "it could not be judged"
                assert why in found["why"]
                told = more.get("broken") or more.get("unknown") or ["1 unseen"]
                assert all(each in found["why"] for each in told)


@pytest.mark.parametrize(
    "wrong", [{"nodes": "x"}, {"healed_s": "x"}, {"options": []}, {"counts": 3}, {"faults": 3}]
)
def test_of_several_folders_one_that_nobody_can_judge_keeps_no_other_from_it(
    tmp_path, wrong, capsys
) -> None:
    """A traceback ends with 1, which says invalid."""
    for name, more in (("a", wrong), ("b", {"missed": "t0-0 is missing"})):
        folder = RunFolder(tmp_path / name)
        folder.create({"nodes": 3, "verdict": "valid"} | more)
        sent = Txn("send", "ok", "a", 1, sends=[Sent("t0-0", 8, 0)], began_s=1.0, ended_s=1.5)
        folder.append_text(HISTORY, [to_line(sent)])
    assert main(["chaos", "check", str(tmp_path / "a")]) == 2
    assert RunFolder(tmp_path / "a").read()["verdict"] == "unknown"
    assert main(["chaos", "check", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    assert "INVALID: found: 1 unseen" in capsys.readouterr().out


def test_a_folder_that_cannot_be_read_is_refused_in_a_sentence(tmp_path, capsys) -> None:
    (tmp_path / "run.json").write_bytes(b"[" * 100_000)
    assert main(["chaos", "check", str(tmp_path)]) == 2
    assert "could not be judged: RecursionError" in capsys.readouterr().err


def test_of_many_nodes_that_ended_by_themselves_a_broken_invariant_is_not_left_out(run) -> None:
    run.watched.exits = [gone(1, 1)] * 9 + [gone(2, 70, broken=True)]
    run._account_exits()
    assert run.unknown[-1] == "5 more nodes ended by themselves"
    assert run.broken == ["node 2 ended by itself with 70: why"]


@pytest.mark.parametrize("target", ["before anything", "in the middle", "afterwards"])
def test_what_nobody_foresaw_ends_a_run_as_unknown_in_a_sentence(
    tmp_path, monkeypatch, capsys, target
) -> None:
    """A traceback ends with 1, which says invalid; and what was seen to be broken by then is."""
    monkeypatch.setattr(runs, "system_of", lambda *_, **__: Entered())

    def fails(*_: object) -> None:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, "nobody there"))

    where, name = {
        "before anything": (RunFolder, "create"),
        "in the middle": (Run, "_clients"),
        "afterwards": (runs, "judge"),
    }[target]
    monkeypatch.setattr(where, name, fails)
    if target == "afterwards":
        monkeypatch.setattr(Run, "_measure", lambda _: None)
    out = tmp_path / "run"
    assert main(["chaos", "run", "--faults", "kill", "--out", str(out)]) == 2
    said = capsys.readouterr()
    assert "KafkaException" in said.out + said.err and "nobody there" in said.out + said.err
    if target != "before anything":
        found = RunFolder(out).read()
        assert found["verdict"] == "unknown"
    if target == "in the middle":
        assert "UNKNOWN: KafkaException: " in said.out
        assert "in fails" in found["trace"], "for who mends it"


def test_what_cannot_be_had_is_refused_as_long_as_nothing_has_begun(
    tmp_path, monkeypatch, capsys
) -> None:
    stage = SimpleNamespace(seen=[], broken=["an older node serves"])
    schedule = SimpleNamespace(counts=Counter(), left_out=[], trouble=[], stage=stage)

    def refuse(*_: object) -> None:
        raise CannotDo("there is no engine")

    monkeypatch.setattr(runs, "system_of", lambda *_, **__: Entered())
    for name, code in (("_clients", 2), ("_load", 1)):
        monkeypatch.setattr(Run, "_schedule", lambda *_: schedule)
        monkeypatch.setattr(Run, name, refuse)
        assert main(["chaos", "run", "--faults", "kill", "--out", str(tmp_path / name)]) == code
        monkeypatch.setattr(Run, "_clients", lambda *_: SimpleNamespace(**NO_CLIENTS))
    said = capsys.readouterr()
    assert said.err == "fencepost: there is no engine\n"
    assert "INVALID: found: 1 broken; an older node serves" in said.out


NO_CLIENTS = {"crashes": 0, "hung": 0, "ended": [], "idle": list, "kill": lambda: None}


def test_a_page_that_cannot_be_written_changes_no_verdict(tmp_path, monkeypatch, capsys) -> None:
    def fails(*_: object) -> None:
        raise KeyError("no such chart")

    monkeypatch.setattr(runs, "system_of", lambda *_, **__: Entered())
    monkeypatch.setattr(Run, "go", lambda _: {"verdict": "valid"})
    monkeypatch.setattr(page, "write_page", fails)
    assert main(["chaos", "run", "--faults", "kill", "--out", str(tmp_path / "run")]) == 0
    assert "there is no report: KeyError" in capsys.readouterr().out


def test_a_client_that_ended_by_itself_makes_a_run_unknown(run) -> None:
    schedule = SimpleNamespace(counts=Counter(), left_out=[], trouble=[])
    schedule.stage = SimpleNamespace(seen=[], broken=[])
    said = "client 2 ended with 1: Traceback (most recent call last):\n  …\nValueError: x\n"
    run._account(schedule, SimpleNamespace(crashes=3, hung=0, ended=[said, said], idle=list))
    [why] = run.unknown
    assert why.startswith("2 clients ended by themselves; client 2 ended with 1")
    assert why.endswith("ValueError: x")
    run.unknown.clear()
    run._account(schedule, SimpleNamespace(crashes=3, hung=2, ended=[], idle=list))
    assert run.unknown == []
    assert run.summary["counts"]["hung clients"] == 2
    run._account(schedule, SimpleNamespace(crashes=3, hung=2, ended=[], idle=lambda: [2, 4]))
    assert run.unknown == ["clients [2, 4] never did anything"]


class Load:
    """Its clients' clock goes a second on with each look."""

    def __init__(self, served_from_s: float) -> None:
        self.now_s = 100.0
        self.served_from_s = served_from_s
        self.oldest_s = inf  # of what is under way
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


@pytest.mark.parametrize(("began_s", "goes_on_s"), [(95.0, 10.0), (101.0, 10.0), (103.9, 4.0)])
def test_the_load_goes_on_until_what_was_under_way_for_long_has_ended(
    run, began_s, goes_on_s
) -> None:
    """It was a try of a partition that nobody had served yet, and ended in vain when the load was over: the run was unknown."""
    load = Load(0.0)
    load.oldest_s = began_s

    def ends(_: Txn) -> None:
        load.oldest_s = inf if load.now_s >= 110.0 else began_s

    load.watching.append(ends)
    run._calm(load)
    assert load.now_s - 100.0 == goes_on_s


@pytest.mark.parametrize("seen_at_s", [99.0, 102.0])
def test_the_load_goes_on_until_consumers_were_shown_what_they_lacked_when_all_was_over(
    run, seen_at_s
) -> None:
    """What was acknowledged by then is seen a moment later: two runs were unknown for it."""
    load = Load(0.0)
    lacks = Txn("assign", "ok", "c", positions={"t0-0": 0}, ended_s=98.0)
    sent = Txn("send", "ok", "s", 5, sends=[Sent("t0-0", 5, 7)], began_s=98.5, ended_s=99.0)
    shown = Txn("read", "ok", "c", polls=[Polled("t0-0", 7, 5)], began_s=110.0, ended_s=110.5)
    run._see_polls(lacks)
    moments = {seen_at_s: sent, 111.0: shown}
    for at_s in [each for each in moments if each < load.now_s]:
        run._see_polls(moments.pop(at_s))
    load.watching.append(
        lambda op: run._see_polls(moments.pop(op.ended_s)) if op.ended_s in moments else None
    )
    run._calm(load)
    assert load.now_s == 111.0


def test_on_a_busy_machine_the_load_goes_on_until_it_can_be_asked_for(run) -> None:
    """Nobody is served: 30 s of the machine's own time are a minute where it has twice as much to do, and four have to do."""
    run.folder.append(SEEN, ({"at_s": float(at), "load": 4.0} for at in range(200)))
    load = Load(1e9)
    run._calm(load)
    assert load.now_s - 100.0 == 65.0
    run.folder.append(SEEN, ({"at_s": float(at), "load": 90.0} for at in range(200, 400)))
    load = Load(1e9)
    load.now_s = 300.0
    run._calm(load)
    assert load.now_s - 300.0 == runs.CALM_MAX_S, "it ends whatever the machine has to do"


def test_a_group_that_stands_still_has_the_time_that_groups_have(run) -> None:
    load = Load(0.0)
    run._see_polls(Txn("subscribe", "ok", "c", rebalanced=["t0-0"], ended_s=98.0))
    run._see_polls(
        Txn("send", "ok", "s", 5, sends=[Sent("t0-0", 5, 7)], began_s=98.5, ended_s=99.0)
    )
    run._calm(load)
    assert load.now_s - 100.0 == 65.0


def test_who_reads_under_another_name_by_now_is_waited_for_no_more(run) -> None:
    """Of a reader that began another life nobody has said that it is over: every run of the bank went on for 35 s."""
    load, sent = Load(0.0), Txn("send", "ok", "s", 5, sends=[Sent("t0-0", 5, 7)])
    sent.began_s, sent.ended_s = 98.5, 99.0
    first = Txn("snapshot", "ok", "auditor-4.1.1", positions={"t0-0": 0}, ended_s=98.0)
    run._see_polls(first)
    run._see_polls(sent)
    second = Txn("snapshot", "ok", "auditor-4.1.2", positions={"t0-0": 8}, ended_s=104.5)
    load.watching.append(lambda op: run._see_polls(second) if op.ended_s >= 105.0 else None)
    run._calm(load)
    assert load.now_s == 105.0


def test_a_run_that_is_asked_to_end_waits_for_nobody(run) -> None:
    run.interrupts.asked = "SIGTERM"
    load = Load(1e9)
    run._calm(load)
    assert load.now_s == 100.0


def test_who_is_asked_twice_to_end_does_not_wait_for_nodes_to_come_back(
    run, monkeypatch, tmp_path
) -> None:
    """`stop` waits for nodes, for minutes at worst; the first Ctrl-C waits for it, the second for nobody."""
    over, asked = threading.Event(), threading.Event()

    def stop() -> None:
        asked.set()
        assert over.wait(60.0)

    class Interrupted(Load):
        known = SimpleNamespace(acknowledged=1, acknowledged_bytes=1)

        def start(self) -> None:
            pass

        def tick(self) -> None:
            super().tick()
            if asked.is_set():
                raise KeyboardInterrupt

    stage = SimpleNamespace(asked=SimpleNamespace(seen=dict), stopping=threading.Event())
    schedule = SimpleNamespace(stage=stage, run=lambda: None, counts=Counter(), stop=stop)
    monkeypatch.setattr(run.workload.__class__, "to_drain", lambda *_: {})
    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            run._load(NOWHERE, Interrupted(0.0), schedule)
        assert time.monotonic() - began < 30.0
        assert stage.stopping.is_set()
    finally:
        over.set()


def test_what_nobody_foresaw_when_faults_end_is_raised_where_the_load_goes_on() -> None:
    def fails() -> None:
        raise CannotDo("no older build")

    beside = Beside(fails, name="test")
    with pytest.raises(CannotDo, match="no older build"):
        beside.end()
    assert beside.is_over
