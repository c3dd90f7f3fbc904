"""Whose runs count for the code that stands: those of commits with the same nodes."""

import ast
from pathlib import Path

import pytest
from fencepost.chaos.faults.older import PARTS
from fencepost.chaos.harness import checkout
from fencepost.chaos.report.nodes_code import COMMANDS, NOW, STARTED_WITH, UNKNOWN, NodesCode
from support.some_git import git

pytestmark = pytest.mark.needs("git")
CLI = "fencepost.node.cli."


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


def test_what_operators_type_is_no_part_of_a_node_but_for_its_start(history) -> None:
    (history / "node" / "cli").mkdir()
    before = write(history, "node/cli/start.py", "at first")
    typed = write(history, "node/cli/topic.py", "another sentence")
    started = write(history, "node/cli/start.py", "another way")
    assert NodesCode()(before) == NodesCode()(typed) != NodesCode()(started)
    (history / "node" / "cli" / "topic.py").write_text("not yet committed")
    assert NodesCode()(NOW) == NodesCode()(started)
    (history / "node" / "cli" / "start.py").write_text("not yet committed")
    assert NodesCode()(NOW) == UNKNOWN


def test_nothing_of_the_commands_is_used_by_nodes_and_chaos_but_what_is_counted() -> None:
    """Whatever imports more of them has to have it counted, or leave it."""
    root = Path(checkout.__file__).parents[2]
    counted = [root / name for name in sorted(STARTED_WITH)]
    used = {
        name
        for part in (*PARTS, "chaos")
        for file in (root / part).rglob("*.py")
        if root / COMMANDS not in file.parents or file in counted
        for name in of_the_commands(file, root)
    }
    assert used == {Path(name).stem for name in STARTED_WITH} - {"__init__", "serve"}


def of_the_commands(file: Path, root: Path) -> list[str]:
    """The modules of node/cli that a file imports, `fencepost.node.cli.children` as `children`."""
    package = ["fencepost", *file.relative_to(root).parent.parts]
    found = []
    for line in ast.walk(ast.parse(file.read_text())):
        if isinstance(line, ast.ImportFrom):
            above = package[: len(package) + 1 - line.level] if line.level else []
            module = ".".join((*above, *filter(None, [line.module])))
            names = [f"{module}.{each.name}" for each in line.names]
        elif isinstance(line, ast.Import):
            names = [each.name for each in line.names]
        else:
            continue
        found += [name.removeprefix(CLI).split(".")[0] for name in names if name.startswith(CLI)]
    return [name for name in found if (root / COMMANDS / f"{name}.py").exists()]


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
