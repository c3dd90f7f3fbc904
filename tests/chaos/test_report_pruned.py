"""A run that was pruned is what it was found to be, whoever asks."""

import json

from fencepost.chaos.report.page import write_page
from fencepost.chaos.report.prune import prune
from fencepost.node.main import main
from report_scene import good_run, run_json


def test_a_run_that_was_pruned_keeps_its_verdict_when_it_is_judged_again(tmp_path, capsys) -> None:
    """It became unknown, as there was no history, while the index went on calling it valid."""
    pruned, lost = good_run(tmp_path / "pruned"), good_run(tmp_path / "lost")
    assert prune(pruned) > 0
    write_page(lost)
    (lost / "history.jsonl").unlink()
    before = {file: file.read_bytes() for file in pruned.iterdir()}
    assert main(["chaos", "check", str(pruned)]) == 0
    assert f"VALID, as {pruned} was found to be before it was pruned" in capsys.readouterr().out
    assert {file: file.read_bytes() for file in pruned.iterdir()} == before
    assert main(["chaos", "check", str(lost)]) == 2, "it was not pruned"
    assert "UNKNOWN: there is no history" in capsys.readouterr().out
    (pruned / "run.json").write_text(json.dumps(run_json(seed=8)))
    assert main(["chaos", "check", str(pruned)]) == 2, "of another run nothing was found"
