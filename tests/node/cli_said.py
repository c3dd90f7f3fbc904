"""Commands for people, run in this process: what they said."""

import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from fencepost.node.main import main


@dataclass
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> object:
        return json.loads(self.out)


Run = Callable[..., Said]


def runs(capsys: pytest.CaptureFixture[str]) -> Run:
    """Importing the client anew, in a process for each, would take most of the time."""

    def run(*words: str) -> Said:
        capsys.readouterr()
        try:
            code = main(words)
        except SystemExit as ended:  # argparse
            code = ended.code if isinstance(ended.code, int) else 1
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return run


def refused(said: Said, *parts: str, code: int = 1) -> None:
    """One sentence on standard error that has all the parts, and nothing of Python's."""
    assert said.code == code, said
    assert "Traceback" not in said.err
    for part in parts:
        assert part in said.err, said.err
