"""The command: what it says, and its exit codes."""

import os
import subprocess
import sys

import pytest
from confluent_kafka import Producer
from fencepost.chaos.harness.mariadb import Mariadb
from fencepost.chaos.harness.processes import free_port
from fencepost.clients.binlog.kept_positions import KeptPositions

pytestmark = pytest.mark.slow


def said(*arguments: str, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "fencepost.clients.binlog", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
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


@pytest.mark.parametrize("kept", ['{"flavor": "mariadb", "gtid": "0-1"}', "0-1-7", "{}"])
def test_a_position_that_is_none_ends_in_a_sentence(
    database: Mariadb, bootstrap: str, kept: str
) -> None:
    client = {"bootstrap.servers": bootstrap}
    positions = KeptPositions(client, "positions-broken")
    positions.prepare()
    producer = Producer(client)
    positions.write(producer, "s", kept)
    assert producer.flush(20) == 0
    where = ("--port", str(database.port), "--bootstrap", bootstrap, "--tables", "none.*")
    code, text = said("--source", "s", *where, "--position-topic", positions.topic)
    assert code == 2 and "Traceback" not in text
    assert "s ended: the position that positions-broken has for s can't be read" in text
    assert "--resnapshot" in text
