"""The run folder that a kill loop leaves with --out."""

import argparse
import json

import pytest
from fencepost.chaos.checkers.history import FINAL, Anomaly, Operation, from_lines, to_line
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn
from fencepost.chaos.checkers.txn_history import from_lines as txns_from_lines
from fencepost.chaos.checkers.txn_history import to_line as txn_to_line
from fencepost.chaos.checkers.txn_verdict import judge as judge_txns
from fencepost.chaos.checkers.verdict import Verdict, judge
from fencepost.chaos.checkers.worked import counted, lacking
from fencepost.chaos.harness import kill_loop
from fencepost.chaos.harness.kept_run import KeptRun
from fencepost.chaos.harness.loop_frame import run_loop
from fencepost.chaos.report import digest
from fencepost.chaos.runs.folder import NoRun, RunFolder
from fencepost.chaos.runs.judging import TRANSACTIONS_LOOP
from fencepost.chaos.runs.judging import judge as judge_again
from fencepost.chaos.workloads.txn_process import Damaged
from spoilt_history import forget_figures

CHOSEN = argparse.Namespace(
    seed=7, seconds=60.0, nodes=3, fault=["kill leader"], out="x", spoil=None
)


def lines(folder, name: str) -> list[dict]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def kept(folder) -> KeptRun:
    made = KeptRun(folder)
    made.create("cluster-kill-loop", CHOSEN)
    made.begin()
    return made


def test_a_loop_that_is_killed_leaves_a_run_of_which_nothing_is_known(tmp_path) -> None:
    run = kept(tmp_path / "run")
    with run.fault("kill leader"):
        run.hit(2)
        said = json.loads((tmp_path / "run" / "run.json").read_text())
        assert said["verdict"] == "unknown"
        assert said["command"].endswith("--fault 'kill leader' --nodes 3 --seconds 60 --seed 7")
        assert [line["until_s"] for line in lines(tmp_path / "run", "faults")] == [None]
    first, second = lines(tmp_path / "run", "faults")
    assert (
        first["id"] == second["id"]
        and second["nodes"] == [2]
        and second["until_s"] >= first["at_s"]
    )


def test_a_fault_that_hit_nobody_is_none(tmp_path) -> None:
    run = kept(tmp_path / "run")
    with run.fault("kill leader"):
        pass
    assert lines(tmp_path / "run", "faults") == []


def test_recovery_is_from_the_blow_to_the_acknowledgement_of_every_partition_that_was_tried(
    tmp_path,
) -> None:
    run = kept(tmp_path / "run")
    with run.fault("kill leader"):
        run.hit(1)
    blow = run._began_s + lines(tmp_path / "run", "faults")[0]["at_s"]
    sent = [
        Operation("send", "ok", 1, f"t-{n}", n, n, began_s=blow + 0.5, ended_s=blow + 1.0 + n)
        for n in range(3)
    ]
    read = [Operation("read", "ok", FINAL, f"t-{n}", n, n, 1, ended_s=blow + 9.0) for n in range(3)]
    shown = [Operation("read", "ok", "follower", "t-0", 0, 0, 1, ended_s=blow + 8.0)]
    history = [*sent, *shown, *read]
    run.judged(judge(history), [], map(to_line, history))
    made = digest.read(tmp_path / "run")
    assert made.verdict == "valid" and made.acknowledged == 3
    assert made.recovery_ms["p50"] == pytest.approx(3_000.0, abs=5.0)
    assert lines(tmp_path / "run", "history")[0]["ended_s"] == pytest.approx(
        blow + 1.0 - run._began_s, abs=1e-5
    )


def test_what_checkers_and_the_loop_have_found_is_in_the_folder_and_invalid(tmp_path) -> None:
    run = kept(tmp_path / "run")
    lost = Anomaly("lost", "t-0", "value 3 is not there")
    run.judged(Verdict((lost,), {"acknowledged": 1, "read at the end": 1}), ["replicas differ"], [])
    said = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (said["verdict"], said["why"]) == ("invalid", "replicas differ; lost")
    assert lines(tmp_path / "run", "anomalies")[0]["name"] == "lost"


def test_a_folder_that_is_in_use_is_refused(tmp_path, capsys) -> None:
    kept(tmp_path / "run")
    with pytest.raises(NoRun, match="is not empty"):
        kept(tmp_path / "run")
    assert kill_loop.main(["--out", str(tmp_path / "run")]) == 2
    assert "is not empty" in capsys.readouterr().out


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = KeptRun()
    run.create("kill-loop", CHOSEN)
    with run.fault("kill leader"):
        run.hit(1)
    run.judged(Verdict((), {"acknowledged": 0, "read at the end": 0}), [], [])
    run.unknown("nothing")
    assert list(tmp_path.iterdir()) == []


# -- judged again ----------------------------------------------------------------------------------

STREAM = [
    Operation("send", "ok", 1, "t-0", 3, 0, began_s=1.0, ended_s=2.0),
    Operation("read", "ok", "follower", "t-0", 3, 0, 1, ended_s=3.0),
    Operation("read", "ok", FINAL, "t-0", 3, 0, 1, ended_s=9.0),
]
MOVED = Txn("txn", "ok", "a", 7, sends=[Sent("t-0", 56, 0)], began_s=1.0, ended_s=2.0)
IN_GROUP, ALONE = (
    Txn("txn", "ok", process, number, [], [Polled("t-0", 0, 56, 7)], {f"{group}|t-0": 1})
    for process, number, group in (("b.1", 8, "lists"), ("c.1", 9, "c.1"))
)
for each in (IN_GROUP, ALONE):
    each.began_s, each.ended_s = 2.0, 3.0
FOUND = Txn("read", "ok", FINAL, polls=[Polled("t-0", 0, 56, 7)], began_s=8.0, ended_s=9.0)
TOLD = Txn("position", "ok", FINAL, offsets=IN_GROUP.offsets | ALONE.offsets)
TOLD.writers = {"lists|t-0": 8, "c.1|t-0": 9}
TRANSACTIONS = [MOVED, IN_GROUP, ALONE, FOUND, TOLD]
LOOPS = {
    "cluster-kill-loop": (judge, [to_line(op) for op in STREAM]),
    TRANSACTIONS_LOOP: (judge_txns, [txn_to_line(op) for op in TRANSACTIONS]),
}


def ended(folder, loop: str, *, broken: list[str]) -> RunFolder:
    """A run whose loop has seen `broken`."""
    made = KeptRun(folder)
    made.create(loop, CHOSEN)
    made.begin()
    with made.fault("kill leader"):
        made.hit(1)
    judges, told = LOOPS[loop]
    read = from_lines if judges is judge else txns_from_lines
    made.judged(judges(read(told)), broken, told)
    return RunFolder(folder)


@pytest.mark.parametrize("loop", LOOPS)
def test_what_a_loop_has_seen_stays_broken_when_its_run_is_judged_again(tmp_path, loop) -> None:
    for name, broken, verdict in (
        ("good", [], "valid"),
        ("bad", ["replicas of t-0 differ"], "invalid"),
    ):
        folder = ended(tmp_path / name, loop, broken=broken)
        assert folder.read()["verdict"] == verdict
        before = folder.lines("anomalies.jsonl")
        for _ in range(2):
            again = judge_again(folder, lambda _: None)
            assert again["verdict"] == verdict, again["why"]
            assert all(each in again["why"] for each in broken)
        after = folder.lines("anomalies.jsonl")
        assert [each["what"] for each in before] == [each["what"] for each in after] == broken


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_is_judged_again_by_its_own_checkers(tmp_path, loop) -> None:
    folder = ended(tmp_path / "run", loop, broken=[])
    history = (folder.path / "history.jsonl").read_text()
    (folder.path / "history.jsonl").write_text(history.partition("\n")[2])
    again = judge_again(folder, lambda _: None)
    whole = len(LOOPS[loop][1])
    assert again["verdict"] == "unknown"
    assert f"{whole - 1} lines of {whole} are there" in again["why"]
    forget_figures(folder)
    value = "3" if loop == "cluster-kill-loop" else "56"
    (folder.path / "history.jsonl").write_text(
        history.replace(f'"value": {value}', '"value": 4', 1).replace(f"{value}, 7", "57, 7", 1)
    )
    assert judge_again(folder, lambda _: None)["verdict"] == "invalid"
    for wrong in (history[:-9], history + '{"f": "zzz", "type": "ok", "process": "a"}\n'):
        (folder.path / "history.jsonl").write_text(wrong)
        assert judge_again(folder, lambda _: None)["verdict"] == "unknown"


def test_of_a_loop_that_was_kept_before_its_sentence_stands(tmp_path) -> None:
    folder = ended(tmp_path / "run", "transactions-kill-loop", broken=["replicas of t-0 differ"])
    summary = folder.read()
    del summary["broken"]
    folder.write(summary)
    for _ in range(2):
        again = judge_again(folder, lambda _: None)
        assert again["verdict"] == "invalid" and "replicas of t-0 differ" in again["why"]


def test_a_loop_that_could_not_be_judged_stays_unknown(tmp_path) -> None:
    run = kept(tmp_path / "run")
    run.unknown("node 2 did not come back")
    again = judge_again(RunFolder(tmp_path / "run"), lambda _: None)
    assert again["verdict"] == "unknown" and "node 2 did not come back" in again["why"]
    run = kept(tmp_path / "other")
    run.broken("acknowledged with a majority away")
    again = judge_again(RunFolder(tmp_path / "other"), lambda _: None)
    assert again["verdict"] == "invalid" and "with a majority away" in again["why"]


def test_a_loop_in_which_nobody_was_struck_proves_nothing(tmp_path) -> None:
    run = kept(tmp_path / "run")
    run.judged(judge(STREAM), [], map(to_line, STREAM))
    said = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (said["verdict"], said["why"]) == ("unknown", "no fault struck")
    assert judge_again(RunFolder(tmp_path / "run"), lambda _: None)["verdict"] == "unknown"


@pytest.mark.parametrize("gone", [IN_GROUP, ALONE], ids=["in a group", "alone"])
def test_a_loop_in_which_nobody_has_consumed_in_one_of_its_ways_proves_nothing(
    tmp_path, gone
) -> None:
    """Members may send and commit all the while, and be given no partition; others are shown the bank."""
    history = [op for op in TRANSACTIONS if op not in (gone, TOLD)]
    history.append(Txn("position", "ok", FINAL))
    history[-1].writers = {place: at for place, at in TOLD.writers.items() if at != gone.number}
    history[-1].offsets = dict.fromkeys(history[-1].writers, 1)
    lacks = lacking(TRANSACTIONS_LOOP, (), counted(TRANSACTIONS_LOOP, history))
    made = KeptRun(tmp_path / "run")
    made.create(TRANSACTIONS_LOOP, CHOSEN)
    made.begin()
    with made.fault("kill leader"):
        made.hit(1)
    said = made.judged(judge_txns(history), [], map(txn_to_line, history), lacks)
    assert (said.verdict, said.why) == ("unknown", *lacks)
    again = judge_again(RunFolder(tmp_path / "run"), lambda _: None)
    assert (again["verdict"], again["why"]) == ("unknown", *lacks)


def test_a_loop_that_is_served_damage_in_the_end_is_invalid(tmp_path, capsys) -> None:
    def run(*_) -> None:
        raise Damaged("t-0 at 7: no record")

    chosen = argparse.Namespace(**vars(CHOSEN) | {"out": tmp_path / "run", "data": tmp_path / "d"})
    assert run_loop("transactions-kill-loop", chosen, run) == 1
    assert "INVALID: t-0 at 7: no record" in capsys.readouterr().out
    said = RunFolder(tmp_path / "run").read()
    assert (said["verdict"], said["broken"]) == ("invalid", ["t-0 at 7: no record"])
