"""Verdicts of runs, from their folders alone."""

import json

import pytest
from fencepost.chaos.checkers import queue_verdict
from fencepost.chaos.checkers.history import FINAL
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn, to_line
from fencepost.chaos.runs import judging
from fencepost.chaos.runs.commands import _check
from fencepost.chaos.runs.folder import ANOMALIES, HISTORY, RunFolder
from fencepost.chaos.runs.folder import SEEN as SEEN_BY_THE_HARNESS
from fencepost.chaos.runs.judging import judge
from fencepost.node.main import main

SENT = Txn("send", "ok", "a", 1, sends=[Sent("t0-0", 8, 0)], began_s=1.0, ended_s=1.5)
SEEN = Txn("read", "ok", FINAL, polls=[Polled("t0-0", 0, 8, 1)], began_s=9.0, ended_s=9.5)


SHOWN = Txn("read", "ok", "r", polls=[Polled("t0-0", 0, 8, 1)], began_s=2.0, ended_s=2.5)


def run_of(path, *ops, shown=(SHOWN,), **more):
    """With a consumer that was shown what came first."""
    folder = RunFolder(path)
    folder.create({"nodes": 3, "unknown": []} | more)
    folder.append_text(HISTORY, map(to_line, [*ops[:1], *shown, *ops[1:]]))
    return folder


def verdict(path, *ops, **more):
    found = judge(run_of(path, *ops, **more), lambda _: None)
    return found["verdict"], found["why"]


def test_a_run_in_which_all_was_found_is_valid(tmp_path) -> None:
    assert verdict(tmp_path / "run", SENT, SEEN)[0] == "valid"


def test_a_run_in_which_no_consumer_was_shown_anything_is_unknown(tmp_path) -> None:
    """Final polls are those of new consumers: they say nothing of the ones that were there."""
    empty = Txn("read", "ok", "r", began_s=2.0, ended_s=2.5)
    said = verdict(tmp_path / "run", SENT, SEEN, shown=[empty])
    assert said == ("unknown", "no consumer was shown anything while the load went on")


def test_a_run_in_which_no_record_was_acknowledged_is_unknown(tmp_path) -> None:
    """Consumers were shown what nobody heard the end of: that they polled is no acknowledgement of anything."""
    tried = Txn("send", "info", "a", 1, sends=SENT.sends, began_s=1.0, ended_s=1.5)
    assert verdict(tmp_path / "1", tried, SEEN) == ("unknown", "nothing was acknowledged")
    assert not queue_verdict.judge(tmp_path / "1" / HISTORY).proves_something
    polled = Txn("txn", "ok", "r", 2, polls=SHOWN.polls, began_s=2.0, ended_s=2.5)
    assert verdict(tmp_path / "2", tried, SEEN, shown=[polled])[0] == "unknown"


def test_a_run_that_did_not_come_to_its_end_is_unknown(tmp_path) -> None:
    said = verdict(tmp_path / "1", SENT, SEEN, unknown=["nodes [2] never came back"])
    assert said == ("unknown", "nodes [2] never came back")
    assert verdict(tmp_path / "2", SENT) == ("unknown", "nothing was read after the faults")
    assert verdict(tmp_path / "3", shown=())[0] == "unknown"


def test_what_was_found_in_a_run_that_was_cut_short_is_invalid_all_the_same(tmp_path) -> None:
    twice = Txn("read", "ok", "r", polls=[Polled("t0-0", 0, 8, 1), Polled("t0-0", 5, 8, 1)])
    said, why = verdict(tmp_path / "run", SENT, twice, unknown=["SIGTERM came"])
    assert said == "invalid"
    assert "1 duplicate" in why
    lines = (tmp_path / "run" / ANOMALIES).read_text().splitlines()
    assert {json.loads(line)["name"] for line in lines} >= {"duplicate"}


def test_an_operation_of_no_kind_that_is_known_is_passed_over_by_nobody(tmp_path) -> None:
    """What is behind it is not read, and is no proof that somebody was not served."""
    tried = Txn("send", "info", "a", 2, sends=[Sent("t0-0", 9)], began_s=20.0, ended_s=21.0)
    late = Txn("send", "ok", "a", 3, sends=[Sent("t0-0", 10, 1)], began_s=22.0, ended_s=23.0)
    last = Txn("read", "ok", FINAL, polls=[*SEEN.polls, Polled("t0-0", 1, 10, 3)])
    last.began_s = last.ended_s = 60.0
    times = {"healed_s": 20.0, "stopped_s": 55.0}
    folder = run_of(tmp_path / "run", SENT, tried, late, last, **times)
    found = judge(folder, lambda _: None)
    assert found["verdict"] == "valid", found["why"]
    whole = folder.history.read_text()
    for wrong in (('"send"', '"zzz"'), ('"ok"', '"OK"')):
        lines = whole.splitlines(keepends=True)
        lines[3] = lines[3].replace(*wrong)
        folder.history.write_text("".join(lines))
        found = judge(folder, lambda _: None)
        assert found["verdict"] == "unknown", found["why"]
        assert "the history is cut short: line 4 is no operation (there is no " in found["why"]


def test_final_polls_that_found_not_all_though_all_nodes_served_are_invalid(tmp_path) -> None:
    said, why = verdict(tmp_path / "run", SENT, missed="transactions are still open in t0-0")
    assert (said, why) == ("invalid", "found: 1 unseen")


def test_a_checker_that_runs_out_of_memory_says_unknown(tmp_path, monkeypatch) -> None:
    def out(*_, **__):
        raise MemoryError

    monkeypatch.setattr(judging, "judge_history", out)
    assert verdict(tmp_path / "run", SENT, SEEN) == (
        "unknown",
        "it could not be judged: MemoryError",
    )


def unserved(path, load):
    tried = Txn("send", "info", "a", 2, sends=[Sent("t0-0", 9)], began_s=11.0, ended_s=12.0)
    late = Txn("send", "ok", "a", 3, sends=[Sent("t0-0", 10, 1)], began_s=90.0, ended_s=91.0)
    last = Txn("read", "ok", FINAL, polls=[*SEEN.polls, Polled("t0-0", 1, 10, 3)])
    last.began_s, last.ended_s = 95.0, 96.0
    folder = run_of(path, SENT, tried, late, last)
    fault = {"id": "1", "at_s": 10.0, "until_s": 20.0, "fault": "kill", "nodes": [1], "what": "x"}
    folder.append("faults.jsonl", [fault])
    folder.append("seen.jsonl", [{"at_s": 1.0, "load": load}])
    found = judge(folder, lambda _: None)
    return found["verdict"], found["why"]


def test_who_is_not_served_in_time_is_a_fault_only_where_the_machine_had_time(tmp_path) -> None:
    """80 s of a machine with six processes a core are 27 of its own; with four they are 40, with 1.5 they are 80."""
    for load in (1.5, 4.0):
        said = unserved(tmp_path / f"{load}", load)
        assert said == ("invalid", "found: 1 unavailable")
    assert unserved(tmp_path / "6", 6.0)[0] == "valid"


@pytest.mark.parametrize(
    ("verdicts", "code"), [("v", 0), ("vu", 2), ("ui", 1), ("iu", 1), ("vn", 2)]
)
def test_of_several_runs_the_worst_counts(tmp_path, verdicts, code, capsys) -> None:
    made = {
        "v": lambda at: run_of(at, SENT, SEEN),
        "u": lambda at: run_of(at, SENT),
        "i": lambda at: run_of(at, SENT, missed="x"),
        "n": lambda _: None,
    }
    folders = [tmp_path / str(number) for number in range(len(verdicts))]
    for folder, kind in zip(folders, verdicts, strict=True):
        made[kind](folder)

    class Arguments:
        pass

    arguments = Arguments()
    arguments.folders = folders
    assert _check(arguments) == code, capsys.readouterr().out


def test_what_is_no_folder_is_passed_by_unless_there_is_nothing_else(tmp_path, capsys) -> None:
    """`fencepost chaos check chaos-runs/*` ended as unknown as soon as an index lay beside the runs."""
    run_of(tmp_path / "run", SENT, SEEN)
    for name in ("index.html", "campaigns.jsonl"):
        (tmp_path / name).write_text("x")
    everything = sorted(map(str, tmp_path.iterdir()))
    assert main(["chaos", "check", *everything]) == 0
    assert "index.html" not in "".join(capsys.readouterr())
    assert main(["chaos", "check", str(tmp_path / "index.html")]) == 2
    assert f"no run in {tmp_path / 'index.html'}: a run is a folder" in capsys.readouterr().err
    assert main(["chaos", "check", *everything, str(tmp_path / "nothing")]) == 2
    assert "nothing holds no run: there is no run.json in it" in capsys.readouterr().err


# -- what the history does not tell ----------------------------------------------------------------


def test_what_was_seen_to_be_broken_stays_so_when_it_is_judged_again(tmp_path) -> None:
    folder = run_of(tmp_path / "run", SENT, SEEN, broken=["node 2 ended by itself with 70"])
    for _ in range(2):
        found = judge(folder, lambda _: None)
        assert found["verdict"] == "invalid"
        assert found["why"] == "found: 1 broken; node 2 ended by itself with 70"
    assert folder.lines(ANOMALIES)[0]["what"] == "node 2 ended by itself with 70"


def struck(path, *kinds, asked, **more):
    folder = run_of(path, SENT, SEEN, faults=asked)
    lines = [{"id": str(n), "at_s": 90.0, "fault": kind} | more for n, kind in enumerate(kinds)]
    folder.append("faults.jsonl", lines)
    found = judge(folder, lambda _: None)
    return found["verdict"], found["why"]


def test_a_run_in_which_no_fault_struck_is_unknown(tmp_path) -> None:
    nobody = "unknown", "no fault struck (drain)"
    assert struck(tmp_path / "1", asked=["drain"]) == nobody
    assert struck(tmp_path / "failed", "drain", asked=["drain"], struck=False) == nobody
    assert struck(tmp_path / "2", asked=["none"])[0] == "valid"
    assert struck(tmp_path / "3", "kill", asked=["kill"])[1].endswith("or out of order")


def test_a_kind_that_never_struck_is_named(tmp_path) -> None:
    said, why = struck(tmp_path / "run", "kill", "cut", asked=["kill", "drain", "cut", "hunt"])
    assert said == "valid"
    assert why.endswith("; never struck: drain, hunt")


def test_a_cluster_that_serves_nobody_when_all_faults_are_over_is_invalid(tmp_path) -> None:
    tried = [
        Txn("send", "info", "a", n, sends=[Sent("t0-0", n)], began_s=n, ended_s=n + 0.9)
        for n in range(20, 60)
    ]
    ended = {"healed_s": 20.0, "stopped_s": 55.0}
    assert verdict(tmp_path / "1", SENT, *tried, SEEN, **ended) == (
        "invalid",
        "found: 1 unavailable",
    )
    assert verdict(tmp_path / "2", SENT, *tried, SEEN, **ended | {"stopped_s": 45.0}) == (
        "unknown",
        "nothing of t0-0 was acknowledged from 20.0 s to 45.0 s, after all faults were over: the load ended before it was asked for",
    )


def test_a_busy_machine_makes_a_cluster_that_serves_nobody_unknown_and_not_valid(tmp_path) -> None:
    """It is given more time than there was load: what was never asked for was taken for served."""
    tried = [
        Txn("send", "info", "a", n, sends=[Sent("t0-0", n)], began_s=n, ended_s=n + 0.9)
        for n in range(20, 60)
    ]
    for load, said in ((1.0, "invalid"), (2.2, "invalid"), (4.0, "unknown")):
        folder = run_of(
            tmp_path / f"{load}", SENT, *tried, SEEN, healed_s=20.0, stopped_s=55.0, seconds=60.0
        )
        folder.append(SEEN_BY_THE_HARNESS, ({"at_s": at, "load": load} for at in range(60)))
        assert judge(folder, lambda _: None)["verdict"] == said


def test_a_group_that_is_shown_nothing_after_all_faults_is_unknown_when_the_load_ends_too_soon(
    tmp_path,
) -> None:
    """A group may take a minute, and the load went on for half of one."""

    def of(stopped: int, until: int, again: int = 1_000) -> tuple[str, str]:
        ops = [Txn("subscribe", "ok", "m", rebalanced=["t0-0"], began_s=9.0, ended_s=9.0)]
        for at in range(10, stopped):
            sent = Txn("send", "ok", "a", at, sends=[Sent("t0-0", at, at - 10)])
            look = Txn("txn", "ok", "m", 1_000 + at)
            if at < until or at == again:
                first = min(until, at)
                look.polls = [Polled("t0-0", n - 10, n, n) for n in range(first, at + 1)]
            sent.began_s, sent.ended_s = at, at + 0.4
            look.began_s, look.ended_s = at + 0.5, at + 0.9
            ops += [sent, look]
        last = Txn("read", "ok", FINAL, began_s=199.0, ended_s=199.5)
        last.polls = [Polled("t0-0", n - 10, n, n) for n in range(10, stopped)]
        folder = tmp_path / f"{stopped}-{until}-{again}"
        return verdict(folder, *ops, last, shown=(), healed_s=57.0, stopped_s=float(stopped))

    assert of(stopped=92, until=50) == (
        "unknown",
        "the group was shown nothing of t0-0 after all faults, from 50.4 s to 92.0 s, in 42 operations: the load ended before it was asked for",
    )
    assert of(stopped=112, until=50)[0] == "invalid"
    assert of(stopped=92, until=50, again=60)[0] == "valid"
