"""One fixed run of the whole pipeline: a short one, in which a broker and the job's driver are killed. Many: `run.py --runs 20`."""

import subprocess
import sys
from pathlib import Path

import pytest
from fencepost.chaos.harness import mariadb
from support.needs import give_up

PROGRAM = Path(__file__).resolve().parents[2] / "examples/pipeline/run.py"
RUN = ("--seed", "7", "--seconds", "8", "--kinds", "broker,driver")
EQUAL = 0
ENDS_S = 1200.0  # it gives up by itself before that, and says what it waited for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(ENDS_S + 60),
    pytest.mark.needs("jvm", "python:pyspark", "python:pyarrow"),
]


def test_what_the_database_says_is_what_the_topics_say_though_a_broker_and_the_driver_died(
    tmp_path: Path,
) -> None:
    program = mariadb.missing()
    if program is not None:
        give_up(f"needs MariaDB: there is no `{program}` (Debian's package mariadb-server)")
    command = [sys.executable, str(PROGRAM), *RUN, "--out", str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as run:
        try:
            said, _ = run.communicate(timeout=ENDS_S)
        finally:
            run.terminate()  # it ends all that it started, and then itself
    assert run.returncode == EQUAL, said[-8000:]
    assert "EQUAL" in said and "driver" in said and "broker" in said
    assert (tmp_path / "seed-7.html").stat().st_size
