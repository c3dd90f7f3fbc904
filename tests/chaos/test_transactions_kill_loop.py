"""The loop under transactions on three real nodes, in short; and that it fails when there is something to see."""

import pytest
from fencepost.chaos.harness import transactions_kill_loop

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def faults(*names: str) -> list[str]:
    return [part for name in names for part in ("--fault", name)]


def test_transactions_stay_whole_while_coordinators_and_clients_die(capsys) -> None:
    chosen = faults("kill coordinator", "kill client", "double client")
    code = transactions_kill_loop.main(["--seconds", "8", "--seed", "5", *chosen])
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert printed.splitlines()[-1] == "VALID"


def test_a_cluster_that_loses_one_side_of_a_transfer_is_found_out(capsys) -> None:
    arguments = ["--seconds", "1", "--spoil", "drop", *faults("pause client")]
    assert transactions_kill_loop.main(arguments) == 1
    assert "torn" in capsys.readouterr().out
