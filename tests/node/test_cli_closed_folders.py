"""`dev --data` on a folder that this user may not use: a sentence that names it and the next step, never a traceback."""

import os
import socket
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from fencepost.node.cli.dev_folder import SOCKET
from fencepost.node.main import main

NOBODY = 65_534
STARTS = [(), ("--nodes", "3"), ("--start", "2")]


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """What is in it nobody may look at; root is somebody else meanwhile."""
    folder = tmp_path / "closed"
    folder.mkdir()
    is_root = os.geteuid() == 0
    folder.chmod(0)
    for module in ("dev", "start_again", "supervisor"):  # nobody may not read them
        import_module(f"fencepost.node.cli.{module}")
    if is_root:
        os.seteuid(NOBODY)
    yield folder
    if is_root:
        os.seteuid(0)
    folder.chmod(0o700)


def refused(capsys: pytest.CaptureFixture[str], path: Path, *words: str) -> str:
    assert main(["dev", "--data", str(path), *words]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert str(path) in said.err
    return said.err


@pytest.mark.parametrize("words", STARTS, ids=[" ".join(each) for each in STARTS])
def test_a_folder_below_one_that_is_closed_is_refused_with_its_path(closed, words, capsys) -> None:
    assert "Permission denied" in refused(capsys, closed / "x", *words)


@pytest.mark.parametrize("words", STARTS, ids=[" ".join(each) for each in STARTS])
def test_a_folder_that_can_not_be_is_refused_with_its_path(tmp_path, words, capsys) -> None:
    assert "File name too long" in refused(capsys, tmp_path / ("x" * 300), *words)


def test_the_cluster_of_another_user_is_not_asked(tmp_path, monkeypatch, capsys) -> None:
    class Closed(socket.socket):
        def connect(self, _: object) -> None:
            raise PermissionError(13, "Permission denied")

    (tmp_path / SOCKET).touch()
    monkeypatch.setattr("fencepost.node.cli.start_again.socket.socket", Closed)
    said = refused(capsys, tmp_path, "--start", "2")
    assert f"run it as the user who started it ({tmp_path.owner()})" in said


def test_a_file_of_another_user_in_the_folder_is_named(tmp_path, monkeypatch, capsys) -> None:
    secret = tmp_path / "peer.secret"
    secret.write_text("s")
    real = Path.read_text

    def read(path: Path, *words: str) -> str:
        if path == secret:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *words)

    monkeypatch.setattr(Path, "read_text", read)
    assert str(secret) in refused(capsys, tmp_path, "--nodes", "3", "--port", "0")
