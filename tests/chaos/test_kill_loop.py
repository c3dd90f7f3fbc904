"""The loop on a real node, in short; and that it fails when there is something to see."""

import pytest
from fencepost.chaos.checkers.history import FINAL, Operation
from fencepost.chaos.checkers.verdict import judge
from fencepost.chaos.harness import kill_loop
from fencepost.chaos.workloads.idempotent_stream import SPOILS, Damaged, parse, payload


def good_history() -> list[Operation]:
    sent = [Operation("send", "ok", 1, "t-0", n, n) for n in range(5)]
    return sent + [Operation("read", "ok", FINAL, "t-0", n, n, 1) for n in range(5)]


@pytest.mark.parametrize("spoil", sorted(SPOILS))
def test_every_way_to_spoil_a_history_makes_it_invalid(spoil) -> None:
    history = good_history()
    assert judge(history).valid
    SPOILS[spoil](history)
    assert not judge(history).valid


def test_a_record_with_one_other_byte_is_seen() -> None:
    data = payload(3, 17, 100)
    assert parse(data) == (3, 17)
    with pytest.raises(Damaged):
        parse(data[:-1] + b"x")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_node_killed_again_and_again_keeps_what_it_acknowledged(capsys) -> None:
    assert kill_loop.main(["--seconds", "8", "--seed", "11"]) == 0, capsys.readouterr().out
    printed = capsys.readouterr().out
    assert "kill -9" in printed
    assert printed.splitlines()[-1] == "VALID"


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_node_that_drops_one_record_is_found_out(capsys) -> None:
    """The same run, with one record hidden from the final reader."""
    assert kill_loop.main(["--seconds", "1", "--seed", "12", "--spoil", "drop"]) == 1
    assert "lost" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_node_that_does_not_start_is_no_verdict(tmp_path, capsys) -> None:
    arguments = ["--seconds", "1", "--data", str(tmp_path / "data"), "--command", "/bin/false"]
    assert kill_loop.main(arguments) == 2
    assert "exit code 1" in capsys.readouterr().out
