"""The command: what it says, and its exit codes."""

import os
import subprocess
import sys

import pytest
from fencepost.chaos.harness.processes import free_port

pytestmark = pytest.mark.slow


def said(*arguments: str, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "fencepost.clients.binlog", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_help_has_every_setting_and_a_wrong_one_is_an_exit_code_of_its_own() -> None:
    code, text = said("--help")
    assert code == 0 and "--stop-when-caught-up" in text and "FENCEPOST_BINLOG_" in text
    code, text = said("--port", "x", FENCEPOST_BINLOG_SOURCE="s")
    assert (code, text) == (64, "--port 'x' is no whole number\n")


def test_a_database_that_is_away_is_tried_for_as_long_as_was_said() -> None:
    port = str(free_port())
    code, text = said("--source", "s", "--port", port, "--give-up-s", "1")
    assert code == 2
    assert "trying again in 0.2 s" in text and "s ended: (2003, \"Can't connect" in text
