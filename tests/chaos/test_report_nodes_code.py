"""Whose runs count for the code that stands: those of commits with the same nodes."""

from pathlib import Path

import pytest
from fencepost.chaos.harness import checkout
from fencepost.chaos.report.nodes_code import NOW, UNKNOWN, NodesCode
from support.some_git import git

pytestmark = pytest.mark.needs("git")


@pytest.fixture
def history(tmp_path, monkeypatch) -> Path:
    """With a node of two files."""
    monkeypatch.setattr(checkout, "ROOT", tmp_path)
    git(tmp_path, "init")
    for name in ("node/main.py", "txn/machine.py", "node/README.md", "chaos/sim.py"):
        write(tmp_path, name, "at first")
    return tmp_path


def write(folder: Path, name: str, text: str) -> str:
    """The commit with it."""
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    git(folder, "add", name)
    git(folder, "commit", "-m", f"{name}: {text}")
    return checkout.said("rev-parse", "--short", NOW)


def test_only_a_change_of_the_nodes_makes_another_code(history) -> None:
    first = write(history, "node/README.md", "a sentence more")
    same = write(history, "chaos/sim.py", "another fault")
    other = write(history, "txn/machine.py", "mended")
    back = write(history, "txn/machine.py", "at first")
    code = NodesCode()
    assert code(first) == code(same) == code(back) != UNKNOWN
    assert code(other) not in (code(first), UNKNOWN)
    assert code(NOW) == code(f"v1-3-g{back}") == code(back)


def test_what_is_in_no_commit_is_of_no_known_code(history) -> None:
    commit = write(history, "node/README.md", "a sentence more")
    for unknown in ("", f"{commit}+", f"{commit}-dirty", "0123abc"):
        assert NodesCode()(unknown) == UNKNOWN
    (history / "chaos" / "sim.py").write_text("not yet committed")
    assert NodesCode()(NOW) == NodesCode()(commit) != UNKNOWN
    (history / "node" / "main.py").write_text("not yet committed")
    assert NodesCode()(NOW) == UNKNOWN


def test_where_there_is_no_history_nothing_is_known(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(checkout, "ROOT", tmp_path)
    assert NodesCode()(NOW) == NodesCode()("0123abc") == UNKNOWN
