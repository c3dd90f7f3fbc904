"""The node as a command: what is said where it can't start as it was asked to."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_said import Run, refused, runs
from fencepost.chaos.harness.processes import Node
from support.fencepost_process import fencepost


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with fencepost() as running:
        yield running


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runs(capsys)


def test_a_port_in_use_is_named(node: Node, tmp_path: Path, run: Run) -> None:
    said = run("dev", "--port", str(node.port), "--data", str(tmp_path / "data"))
    refused(said, node.bootstrap, "Address already in use", "--port PORT", code=75)
    assert said.out == ""


def test_a_folder_in_use_is_named(node: Node, run: Run) -> None:
    said = run("dev", "--port", "0", "--data", str(node.data))
    refused(said, str(node.data), "in use by another fencepost process", "--data FOLDER", code=75)


def test_a_folder_that_can_not_be_made_is_named(tmp_path: Path, run: Run) -> None:
    (tmp_path / "file").touch()
    said = run("dev", "--port", "0", "--data", str(tmp_path / "file"))
    refused(said, str(tmp_path / "file"), "must be a folder", "--data FOLDER", code=73)


def test_an_impossible_setting_stops_the_start(tmp_path: Path, run: Run) -> None:
    data = tmp_path / "data"
    said = run("dev", "--data", str(data), "--set", "flush.polcy=os")
    refused(said, "unknown setting flush.polcy;", "did you mean flush.policy?", code=2)
    refused(run("serve", "--config", str(tmp_path / "none.toml")), "none.toml", code=2)
    assert not data.exists()


def test_spans_that_can_not_be_made_are_refused_as_any_setting(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.node.tracing.open._is_there", lambda _: False)
    words = ("--set", "tracing.otlp.endpoint=http://127.0.0.1:4318/v1/traces")
    said = run("dev", "--port", "0", "--data", str(tmp_path / "data"), *words)
    refused(said, '"node_refused"', "OpenTelemetry is not installed", code=2)


@pytest.mark.parametrize("flag", [False, True])
def test_a_variable_counts_where_no_flag_was_given(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, flag: bool
) -> None:
    """`dev` has defaults of its own, which must not pass for flags."""
    monkeypatch.setenv("FENCEPOST_LISTENERS", "PLAINTEXT://127.0.0.1:x")
    monkeypatch.setenv("FENCEPOST_LOG_DIRS", "a,b")
    words = ("--port", "0", "--data", str(tmp_path / "c,d")) if flag else ()
    refused(run("dev", *words), "c,d" if flag else "127.0.0.1:x", code=2)
    monkeypatch.delenv("FENCEPOST_LISTENERS")
    refused(run("dev", *words), "c,d" if flag else "a,b", code=2)
