"""Sizes, READMEs, and docstrings that name the test which proves them."""

import ast
import re

import pytest
from tree import ROOT, Source, sources

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
# The ratchet: files and functions that are longer today, each for a reason. None may be added.
LONG_FILES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {}

# Folders whose README must list each of their files.
READMES = sorted(
    {str(s.path.parent) for s in sources() if (ROOT / s.path.parent / "README.md").exists()}
)


@pytest.mark.parametrize("source", sources(), ids=lambda s: str(s.path))
def test_files_and_functions_fit_in_the_head(source: Source) -> None:
    lines = source.text.count("\n")
    assert lines <= FILE_LINES_MAX or str(source.path) in LONG_FILES, f"{lines} lines"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            length = node.end_lineno - node.lineno
            name = f"{source.path}::{node.name}"
            assert length <= FUNCTION_LINES_MAX or name in LONG_FUNCTIONS, f"{name}: {length} lines"


@pytest.mark.parametrize("source", sources(), ids=lambda s: str(s.path))
def test_the_test_that_a_docstring_names_exists(source: Source) -> None:
    for path, test in re.findall(r"(tests/[\w/]+\.py)::(\w+)", source.text):
        file = ROOT / path
        assert file.exists(), f"{source.path} names {path}, which is not there"
        assert f"def {test}(" in file.read_text(), f"{source.path} names {test}, not in {path}"


@pytest.mark.parametrize("folder", READMES)
def test_a_readme_lists_every_file_of_its_folder(folder: str) -> None:
    text = (ROOT / folder / "README.md").read_text()
    missing = [
        s.path.name
        for s in sources()
        if str(s.path.parent) == folder and s.path.name != "__init__.py" and s.path.name not in text
    ]
    assert missing == [], f"{folder}/README.md does not name {missing}"
