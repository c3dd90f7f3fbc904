"""`@pytest.mark.needs("java")`: what a machine with Python alone does not have.

INVARIANT  a missing tool skips by name with the reason; under CI=true it fails instead.
PREVENTS   a green build that has quietly stopped to run the Java clients.
PROVED BY  tests/support/test_needs.py::test_a_missing_tool_skips_by_name_and_fails_under_ci
"""

import importlib.util
import os
import shutil
import subprocess
from functools import cache
from typing import NoReturn

import pytest
from fencepost.chaos.faults.older import OLDER, why_none

# What has to be on the PATH for a need to be met. `python:NAME` is an importable module.
TOOLS = {
    "java": ("java", "javac", "mvn"),
    "jvm": ("java",),
    "kafka": ("java", "mvn"),
    "go": ("go",),
    "node": ("node", "npm"),
    "docker": ("docker",),
    "prometheus": ("prometheus", "promtool"),
    "git": ("git",),
    "history": ("git",),  # with the commit that upgrades begin on
}


def on_ci() -> bool:
    return os.environ.get("CI", "").lower() == "true"


def give_up(reason: str) -> NoReturn:
    """Skip, or fail where nothing may be missing."""
    if on_ci():
        pytest.fail(f"{reason} (CI=true: nothing may be missing)", pytrace=False)
    pytest.skip(reason)


def _fails(*command: str) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode != 0


@cache
def missing(need: str) -> str | None:
    """Why the need is not met, or None."""
    if need.startswith("python:"):
        module = need.removeprefix("python:")
        found = importlib.util.find_spec(module) is not None
        return None if found else f"needs the Python module {module}, which is not installed"
    for command in TOOLS[need]:
        if shutil.which(command) is None:
            return f"needs {need}: there is no `{command}` on the PATH"
    if need == "docker" and _fails("docker", "info"):
        return "needs docker: `docker info` fails, so no daemon answers"
    if need == "history" and (why := why_none(OLDER)):
        return f"needs history: {why}"
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        for need in marker.args:
            reason = missing(need)
            if reason is not None:
                give_up(reason)
