"""Stories told as text: commands, a line of dashes, what came of them, an empty line.

    # why this story is told
    join a
    ----
    a  parked

A test hands in what runs one command line and gives back its output lines. With `--rewrite` the
file is written anew, for a human to read the diff.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

RULE = "----"


def blocks(text: str) -> list[tuple[list[str], list[str], list[str]]]:
    """(comments, commands, expected output) of each block."""
    found = []
    for chunk in text.strip("\n").split("\n\n"):
        lines = chunk.split("\n")
        rule = lines.index(RULE) if RULE in lines else len(lines)
        comments = [line for line in lines[:rule] if line.startswith("#")]
        commands = [line for line in lines[:rule] if not line.startswith("#")]
        found.append((comments, commands, lines[rule + 1 :]))
    return found


def check(path: Path, run: Callable[[str], list[str]], request: pytest.FixtureRequest) -> None:
    told = path.read_text()
    parts = []
    for comments, commands, _ in blocks(told):
        if not commands:
            parts.append("\n".join(comments))
            continue
        output = [line for command in commands for line in run(command)]
        parts.append("\n".join([*comments, *commands, RULE, *output]))
    now = "\n\n".join(parts) + "\n"
    if request.config.getoption("--rewrite"):
        path.write_text(now)
    assert now == told
