"""A verdict says of how many faults progress was asked while they went on, and so does the record."""

import json

import pytest
from fencepost.chaos.checkers.history import FINAL
from fencepost.chaos.checkers.txn_history import Polled, Sent, Txn, to_line
from fencepost.chaos.report import digest
from fencepost.chaos.report.page import write_page
from fencepost.chaos.report.record import LEDGER, Ledger, add_all
from fencepost.chaos.runs.commands import _check
from fencepost.chaos.runs.folder import FAULTS, HISTORY, RunFolder


def ended(folder, until_s: float, **more) -> RunFolder:
    """Three nodes, of which one is killed until then; a record is acknowledged each half of a second."""
    made = RunFolder(folder)
    counts = {"faults": 1, "crashed clients": 0}
    summary = {"name": "x", "workload": "queue", "target": "processes", "nodes": 3, "seed": 1}
    summary |= {"began": "2026-11-25T14:00:00+00:00", "faults": ["kill"], "counts": counts}
    made.create(summary | {"healed_s": until_s, "stopped_s": 60.0} | more)
    line = {"id": "1", "fault": "kill", "nodes": [1], "at_s": 5.0, "until_s": None}
    if counts == made.read()["counts"]:
        made.append(FAULTS, [line, line | {"until_s": until_s}])
    sent, got = [], []
    for n in range(1, 110):
        at_s = n / 2
        txn = Txn("txn", "ok", "a", n, sends=[Sent("t0-0", 64 * n, n)], began_s=at_s)
        txn.ended_s = at_s + 0.1
        got.append(Polled("t0-0", n, 64 * n, n))
        read = Txn("read", "ok", "r", polls=got[-1:], began_s=at_s + 0.1, ended_s=at_s + 0.2)
        sent += [txn, read]
    last = Txn("read", "ok", FINAL, polls=got, positions={"t0-0": 110}, began_s=70.0, ended_s=71.0)
    given = Txn("assign", "ok", "r", positions={"t0-0": 0}, began_s=0.1, ended_s=0.2)
    made.append_text(HISTORY, map(to_line, [given, *sent, last]))
    return made


class Arguments:
    def __init__(self, *folders) -> None:
        self.folders = [each.path for each in folders]


@pytest.mark.parametrize(("until_s", "asked"), [(12.0, 0), (50.0, 1)])
def test_a_run_says_of_how_many_faults_progress_was_asked(tmp_path, capsys, until_s, asked) -> None:
    folder = ended(tmp_path / "runs" / "x", until_s)
    for _ in range(2):
        assert _check(Arguments(folder)) == 0, capsys.readouterr().out
        said = folder.read()
        assert said["verdict"] == "valid"
        assert said["why"].count("progress during faults") == 1
        assert said["why"].endswith(f"; progress during faults: asked of {asked} of 1")
        assert f"progress during faults: asked of {asked} of 1" in capsys.readouterr().out
    assert f"asked of {asked} of 1" in write_page(folder.path).read_text()
    made = digest.read(folder.path)
    assert made is not None and made.asked_meanwhile == asked
    ledger = Ledger.read(tmp_path / LEDGER)
    add_all(ledger, [tmp_path / "runs"])
    (line,) = map(json.loads, (tmp_path / LEDGER).read_text().splitlines())
    assert line["asked_meanwhile"] == asked


def test_where_no_fault_struck_there_is_nothing_to_ask_of(tmp_path) -> None:
    folder = ended(tmp_path / "x", 12.0, counts={"faults": 0}, faults=["none"])
    assert _check(Arguments(folder)) == 0
    assert "progress" not in folder.read()["why"]
