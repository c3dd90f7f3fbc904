"""`fencepost trace`: one id through several nodes' logs."""

import io
import json
import signal
from pathlib import Path

import pytest
from fencepost.node.main import main


def written(path: Path, *lines: tuple[str, int, str, str]) -> str:
    rows = [
        {"time": at, "level": "info", "area": "node", "event": event, "message": event,
         "node_id": node, "request_id": request_id}
        for at, node, event, request_id in lines
    ]  # fmt: skip
    path.write_text("".join(f"node | {json.dumps(row)}\nnot json\n" for row in rows))
    return str(path)


def test_lines_of_one_request_come_in_order_of_time_from_all_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = written(
        tmp_path / "1.log",
        ("2026-11-21T09:00:00.001Z", 1, "asked", "1-5-12"),
        ("2026-11-21T09:00:00.002Z", 1, "another", "1-5-123"),
        ("2026-11-21T09:00:00.009Z", 1, "answered", "1-5-12"),
    )
    two = written(
        tmp_path / "2.log",
        ("2026-11-21T09:00:00.005Z", 2, "served", "1-9-9,1-5-12"),
        ("2026-11-21T09:00:00.006Z", 2, "served too", "2-5-12"),
    )
    assert main(["trace", "1-5-12", one, two]) == 0
    said = capsys.readouterr().out
    assert [line.split(": node ")[1] for line in said.splitlines()] == [
        "1: asked | request_id=1-5-12",
        "2: served | request_id=1-9-9,1-5-12",
        "1: answered | request_id=1-5-12",
    ]


def test_an_id_that_no_line_has_is_said_with_how_to_have_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", "1-1-1", written(tmp_path / "1.log")]) == 1
    assert "request.log=client=CLIENT_ID" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", "1-1-1", str(tmp_path / "none.log")]) == 2
    assert "none.log: No such file or directory" in capsys.readouterr().err


def test_who_called_it_is_not_ended_by_a_broken_pipe_later() -> None:
    """`| head` may end the command. A process that goes on would be ended by the next socket that its peer closed."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python has it
    main(["trace", "1-1-1", "none.log"])
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN


def line(**fields: object) -> str:
    return json.dumps({"time": "2026", "event": "e", "request_id": "1-1-1", **fields}) + "\n"


def test_whatever_a_line_has_is_shown_or_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Logs hold what clients send; of one line that can't be written all others were lost."""
    path = tmp_path / "1.log"
    nested = "[" * 100_000
    path.write_text(
        line(message="half \ud800 of a pair")
        + line(message="no level of a log", level=None, area=["x"])
        + f'{{"request_id":"1-1-1","b":{nested}\n'
        + "".join(
            line(message="deep")[:-2] + f', "b": {"[" * n}{"]" * n}}}\n' for n in range(800, 1000)
        )
        + line(message="the last one")
    )
    assert main(["trace", "1-1-1", str(path)]) == 0
    said = capsys.readouterr().out
    assert "half \\ud800 of a pair" in said
    assert "no level of a log" in said
    assert said.splitlines()[-1].endswith("the last one | request_id=1-1-1")
    assert main(["trace", "--json", "1-1-1", str(path)]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert json.loads(first)["message"] == "half \ud800 of a pair"


def test_what_is_piped_in_may_be_no_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    piped = io.BytesIO(b"\xff | " + line(message="found").encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(piped, encoding="utf-8"))
    assert main(["trace", "1-1-1"]) == 0
    assert "found" in capsys.readouterr().out
