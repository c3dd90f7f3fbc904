"""What the record says of faults: how often each was played and struck, whom, and of how many it was asked meanwhile."""

import pytest
from fencepost.chaos.faults.kinds import FAULTS
from fencepost.chaos.report import digest, record_tables
from fencepost.chaos.report.__main__ import main
from fencepost.chaos.report.record import Ledger
from report_scene import good_run
from test_report_record import codes_of, of_four_commits, record_folder


@pytest.mark.parametrize(
    ("now", "fault", "said"),
    [("1", "kill", "8,000 | 16,000"), ("1", "slow-reader", "0 | 0"), ("", "kill", "0 | 16,000")],
)
def test_each_fault_of_the_simulator_is_told_of_the_code_as_it_stands_and_of_all(
    tmp_path, now, fault, said
) -> None:
    told = record_tables.tables(of_four_commits(tmp_path), codes_of(now))
    assert f"| `{fault}` | {said} |" in told.splitlines()


def test_of_how_many_faults_it_was_asked_meanwhile_and_whom_they_struck_is_told(tmp_path) -> None:
    into, runs = record_folder(tmp_path / "into"), tmp_path / "runs"
    good_run(runs / "a", counts={"asked meanwhile": 1})
    good_run(runs / "b", began="2026-11-21T17:00:00+00:00")  # in which nobody has counted
    assert main(["record", str(runs), "--into", str(into)]) == 0
    text = (into / "RECORD.md").read_text()
    (row,) = [line for line in text.splitlines() if line.startswith("| Fencepost on processes")]
    assert row.endswith("| 4 | 2,220 | 0 | 0 | 1 of 2 |"), row
    assert "| leaders | 2 | 0 | 0 |\n" in text and "| minority | 0 | 0 | 0 |\n" in text


def test_every_fault_is_counted_by_target_also_those_that_never_struck(tmp_path) -> None:
    """Said by hand, the list was old within a day."""
    ledger = Ledger(tmp_path / "record.jsonl")
    struck = [
        ("processes", {"kill": 3}),
        ("kafka", {"kill": 1, "cut": 2}),
        ("processes", {"kill": 4}),
    ]
    for number, (target, counts) in enumerate(struck):
        began = f"2026-11-21T16:0{number}:00+00:00"
        run = digest.Digest(workload="queue", target=target, began=began, struck=counts)
        ledger.add_run(run)
    loop = digest.Digest(workload="kill-loop", target="processes", began="x", struck={"power": 9})
    ledger.add_run(loop)
    told = record_tables.tables(ledger, str)
    assert "### Faults that struck, on real nodes" in told
    assert "| `kill` | 7 | 0 | 1 |" in told and "| `cut` | 0 | 0 | 2 |" in told
    assert "| `power` | 0 | 0 | 0 |" in told
    assert all(f"| `{name}` |" in told for name in FAULTS)
